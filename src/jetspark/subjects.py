"""Rules for subjects, queue names and the names of streams and consumers (ADR-6), ids; all pure."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Sequence
from itertools import combinations

from jetspark.errors import BadNameError, BadQueueError, BadSubjectError, ConfigError

# These would break the line protocol, so they are refused even with check_subjects off.
_BREAKS_PROTOCOL = re.compile(r"[\s\x00\ud800-\udfff]")
NO_TEXT = re.compile(r"[\ud800-\udfff]")
"""Lone surrogates, which Python's text may hold (in a file name that is not UTF-8), but not UTF-8.
"""
_ASKS_WITH_STARS = ("$SR.v1.GET.", "$SR.v1.UPDATE.", "$SR.v1.REMOVE.")
"""Requests to a schema registry, in which * is a word for "any"."""
_NOT_A_TEXT = "it is not a text"
_NAME_FORBIDDEN = re.compile(r"[\s.*>/\\\x00-\x1f\x7f]")


def check_publish_subject(subject: str, *, strict: bool = True, label: str = "subject") -> None:
    """Raise BadSubjectError unless a message may be published to `subject`.

    `strict=False` checks only what the line protocol needs: not empty, no white space. `label`: the
    caller's name for it.
    """
    _check(subject, wildcards=False, strict=strict, label=label)


def check_subscribe_subject(subject: str, *, strict: bool = True) -> None:
    """Raise BadSubjectError unless `subject` may be subscribed to (wildcards allowed)."""
    _check(subject, wildcards=True, strict=strict)


def _check(subject: str, *, wildcards: bool, strict: bool, label: str = "subject") -> None:
    if not subject:
        raise BadSubjectError(subject, "it is empty", label)
    if not isinstance(subject, str):
        raise BadSubjectError(subject, _NOT_A_TEXT, label)
    if _BREAKS_PROTOCOL.search(subject):
        raise BadSubjectError(subject, _problem_of(subject), label)
    if not strict:
        return
    tokens = subject.split(".")
    if "" in tokens:
        raise BadSubjectError(subject, "an empty token (a dot at an end, or two in a row)", label)
    if wildcards:
        if ">" in tokens[:-1]:
            raise BadSubjectError(subject, "'>' may only be the last token", label)
    elif ("*" in tokens and not subject.startswith(_ASKS_WITH_STARS)) or ">" in tokens:
        raise BadSubjectError(subject, "it has a wildcard, which cannot be published to", label)


def _problem_of(text: str) -> str:
    if NO_TEXT.search(text):
        return "it has a lone surrogate, which UTF-8 cannot encode"
    return "white space is not allowed"


def check_queue(queue: str) -> None:
    """Raise BadQueueError for a queue group name with white space."""
    if not isinstance(queue, str):
        raise BadQueueError(queue, _NOT_A_TEXT)
    if _BREAKS_PROTOCOL.search(queue):
        raise BadQueueError(queue, _problem_of(queue))


def plain_text(text: str) -> str:
    """A plain str with the text's value: formatting a member of a str Enum gives its name."""
    return text if type(text) is str else str.__str__(text)


def is_like(pattern: re.Pattern[str], text: str) -> bool:
    """Whether the whole text matches; False for what is not a text."""
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def check_name(kind: str, name: str) -> str:
    """The name as a plain str. Raises BadNameError by the rules of ADR-6, with `kind`."""
    if not name:
        raise BadNameError(kind, name, "it is empty")
    if not isinstance(name, str):
        raise BadNameError(kind, name, _NOT_A_TEXT)
    if NO_TEXT.search(name):
        raise BadNameError(kind, name, _problem_of(name))
    if _NAME_FORBIDDEN.search(name):
        raise BadNameError(kind, name, "white space and the characters . * > / \\ are not allowed")
    return plain_text(name)


def subject_matches(pattern: str, subject: str) -> bool:
    """Whether a subject without wildcards falls under a pattern with `*` and `>`."""
    pattern_tokens = pattern.split(".")
    tokens = subject.split(".")
    for index, token in enumerate(pattern_tokens):
        if token == ">":
            return len(tokens) > index
        if index >= len(tokens) or token not in ("*", tokens[index]):
            return False
    return len(pattern_tokens) == len(tokens)


def subjects_overlap(pattern: str, other_pattern: str) -> bool:
    """Whether some subject falls under both patterns."""
    first, second = pattern.split("."), other_pattern.split(".")
    for a, b in zip(first, second, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(first) == len(second)


def subject_within(subject: str, pattern: str) -> bool:
    """Whether all subjects that fall under `subject`, which may have wildcards, match a pattern."""
    # For `subject_matches` a ">" is one token, which "*" matches.
    endless = subject.split(".")[-1] == ">" and pattern.split(".")[-1] != ">"
    return not endless and subject_matches(pattern, subject)


def check_disjoint(label: str, filters: Sequence[str]) -> None:
    """Raise ConfigError if one message can match two of the filters. `label`: their name."""
    for first, second in combinations(filters, 2):
        if subjects_overlap(first, second):
            raise ConfigError(
                f"{label}: {first!r} and {second!r} overlap; no message may match two of them."
            )


def new_nuid() -> str:
    """A new id in the form that NATS clients use."""
    return "".join(secrets.choice(string.digits + string.ascii_letters) for _ in range(22))
