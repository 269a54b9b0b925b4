"""Flags in place of Spark options: in errors, and for options that a command sets itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from jetspark.errors import ConfigError, PipelineError

_SWITCHED_ON = re.compile(r"\b([Ss])et (?:the )?option '(\w+)' to true")
_SET = re.compile(r"\b([Ss])et ([a-z]+[A-Z]\w*) to (\w+)")
_NAMED = re.compile(r"\b(?:the )?option '(\w+)'", re.IGNORECASE)
_QUOTED = re.compile(r"'([a-z]+[A-Z]\w*)'")  # no value looks like this


def refuse_own(option: str, given: Mapping[str, str], flags: Mapping[str, str]) -> None:
    """Raise ConfigError for an option that the command sets from a flag. Spark ignores case.

    `option`: the flag with which options are given by their own name.
    """
    folded = {name.casefold(): flag for name, flag in flags.items()}
    for name in given:
        if flag := folded.get(name.casefold()):
            raise ConfigError(f"Give {flag} in place of {option} {name}.")


@contextmanager
def options_as_flags(flags: Mapping[str, str], given: Mapping[str, str]) -> Iterator[None]:
    """`flags`: the flag of each option; `given`: options that were given by their own name."""
    known = {name: flag for name, flag in flags.items() if name not in given}
    try:
        yield
    except (ConfigError, PipelineError) as error:
        if error.args:
            error.args = (_renamed(str(error), known), *error.args[1:])
        raise


def _renamed(sentence: str, flags: Mapping[str, str]) -> str:
    def switched_on(match: re.Match[str]) -> str:
        verb = "Give" if match[1] == "S" else "give"
        return f"{verb} {flags[match[2]]}" if match[2] in flags else match[0]

    def flag(match: re.Match[str]) -> str:
        return flags.get(match[1], match[0])

    def set_to(match: re.Match[str]) -> str:
        verb = "Give" if match[1] == "S" else "give"
        return f"{verb} {flags.get(match[2], f'--option {match[2]}={match[3]}')}"

    for pattern, replace in (
        (_SET, set_to),
        (_SWITCHED_ON, switched_on),
        (_NAMED, flag),
        (_QUOTED, flag),
    ):
        sentence = pattern.sub(replace, sentence)
    return sentence
