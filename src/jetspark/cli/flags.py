"""Types of the flags that several commands share, and checks of their values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter, Token

from jetspark.cli import console
from jetspark.errors import ConfigError
from jetspark.options.parsers import parse_duration
from jetspark.validation import check_whole

Switch: TypeAlias = Annotated[bool, Parameter(negative=())]
Repeated: TypeAlias = Annotated[list[str] | None, Parameter(negative="")]
JsonFlag: TypeAlias = Annotated[bool, Parameter(name=("--json",), negative=())]
"""--json of a command whose docstring says what is printed."""
JsonOption: TypeAlias = Annotated[
    JsonFlag, Parameter(help="Print the result as one JSON document.")
]
JsonLines: TypeAlias = Annotated[JsonFlag, Parameter(help="Print JSON, one line for each item.")]
RawOption: TypeAlias = Annotated[bool, Parameter(name=("--raw",), negative=())]
ForceOption: TypeAlias = Annotated[
    bool, Parameter(name=("--force", "-f"), negative=(), help="Do not ask for confirmation.")
]


def convert_duration(_kind: Any, tokens: Sequence[Token]) -> float:
    """Convert the text of a flag such as 15m, or a number of seconds, to seconds."""
    try:
        return parse_duration("", tokens[-1].value)
    except ConfigError as error:
        raise ValueError(error.problem) from None


Duration: TypeAlias = Annotated[float | None, Parameter(converter=convert_duration)]
MetricsOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Serve a page with live figures, Prometheus metrics (/metrics) and the probes "
        "/healthz and /readyz on HOST:PORT, or on :PORT of all addresses of this machine."
    ),
]


def parse_pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Parse the texts name=value of a flag that may be repeated into a dict; empty for None.

    `option`: the flag, for the ConfigError about a text without a name or an equals sign.
    """
    values = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {text!r}: write name=value.")
        values[name.strip()] = value
    return values


def check_replicas(replicas: int | None) -> None:
    """Raise ConfigError for a number of replicas below 1, since servers take 0 for 1."""
    if replicas is not None:
        check_whole("--replicas", replicas)


def confirm(question: str, force: bool) -> None:
    """Ask a yes-or-no question on the terminal, unless --force is given.

    Raises ConfigError for any answer but yes, and without a terminal.
    """
    if force:
        return
    if not (sys.stdin and sys.stdin.isatty()):  # None, if the parent process closed it
        raise ConfigError(f"{question} There is no terminal to ask on: confirm with --force.")
    console.err.print(f"{question} [y/N] ", end="", markup=False, soft_wrap=True)
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise ConfigError("Nothing was changed.")


def check_json_or_raw(*, as_json: bool, raw: bool) -> None:
    """Raise ConfigError if a command is given both --json and --raw."""
    if as_json and raw:
        raise ConfigError("Give --json or --raw, not both.")
