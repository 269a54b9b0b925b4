"""Checks of values that would otherwise be misread in silence or destroy something. Pure.

Type checkers find other mistakes before a program runs, and Python refuses them while it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import index
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar

from jetspark.errors import ConfigError, safe_repr
from jetspark.nearest import did_you_mean

MAX_INT64: Final = 2**63 - 1
"""The greatest number that the server can hold, where it is not a sequence."""

MAX_SEQUENCE: Final = 2**64 - 1
"""The greatest sequence of a stream."""

T = TypeVar("T")

_LONGEST_NAME: Final = 255
_LONGEST_PATH: Final = 4096


def check_whole(name: str, value: int, minimum: int = 1, maximum: int = MAX_INT64) -> int:
    """The number as a plain int. Raises ConfigError for a bool, a fraction, or one out of range."""
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ConfigError(f"{name} is a whole number, not {safe_repr(value)}.")
    if number < minimum:
        problem = "cannot be negative" if minimum == 0 else f"must be at least {safe_repr(minimum)}"
        raise ConfigError(f"{name} {problem}.")
    if number > maximum:
        raise ConfigError(f"{name} must be at most {safe_repr(maximum)}, not {safe_repr(number)}.")
    return number


def check_sequence(name: str, value: int) -> int:
    """The sequence of a message, or the revision of a value. Raises ConfigError.

    The server takes 0 for "not given": every message, or any revision.
    """
    return check_whole(name, value, 1, MAX_SEQUENCE)


def check_text(name: str, value: str) -> str:
    """A text. Raises ConfigError for anything else."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} is a text, not {safe_repr(value)}.")
    return value


def list_of(name: str, value: Any) -> list[Any]:
    """One text, or the items of any iterable, as a list.

    Raises ConfigError for what has no items, for bytes, whose items are numbers, and for a mapping,
    which would lose its values. (Type checkers accept a str as a sequence of texts.)
    """
    if isinstance(value, str):
        return [value]
    is_list = isinstance(value, Iterable)
    if not is_list or isinstance(value, bytes | bytearray | memoryview | Mapping):
        raise ConfigError(f"{name} is one text or a list, not {safe_repr(value)}.")
    return list(value)


def texts_of(name: str, value: str | Iterable[str]) -> list[str]:
    """One text or several, as a list. Raises ConfigError for what is no text."""
    return [check_text(f"Each of {name}", text) for text in list_of(name, value)]


def texts_by_name(name: str, value: Mapping[str, T] | None) -> dict[str, T]:
    """A copy of a mapping of texts, empty for None. Raises ConfigError for what is no mapping."""
    if not isinstance(value, Mapping | None):
        raise ConfigError(f"{name} is a mapping of names to texts, not {safe_repr(value)}.")
    return {check_text(f"A name in {name}", key): item for key, item in (value or {}).items()}


def check_kind(name: str, value: T, kind: type | UnionType, expectation: str) -> T:
    """The object. Raises ConfigError if it is none of this class, or lacks what it asks for."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {expectation}, not {safe_repr(value)}.")
    return value


def check_word(name: str, value: str, words: Sequence[str]) -> str:
    """One of a few words. Raises ConfigError, which suggests the nearest one."""
    if value in words:
        return value
    hint = did_you_mean(value, words) if isinstance(value, str) else "."
    *earlier, last = map(repr, words)
    raise ConfigError(f"{name} is {', '.join(earlier)} or {last}, not {safe_repr(value)}{hint}")


def check_moment(name: str, value: datetime) -> datetime:
    """A time with a zone. Raises ConfigError for anything else, such as None or a number."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ConfigError(
            f"{name} is a datetime with a time zone, such as datetime.now(UTC), not "
            f"{safe_repr(value)}."
        )
    return value


def path_of(name: str, value: str | os.PathLike[str]) -> Path:
    """The path. Raises ConfigError for a text that cannot be a file's name."""
    try:
        raw = os.fsencode(value)
    except UnicodeEncodeError:
        raw = b"\0"
    if b"\0" in raw:
        raise ConfigError(f"{name} is not a valid file path: {safe_repr(value)}.")
    if len(raw) >= _LONGEST_PATH or max(map(len, raw.split(b"/"))) > _LONGEST_NAME:
        raise ConfigError(
            f"{name} is too long: {safe_repr(value)} (at most {_LONGEST_NAME} bytes)."
        )
    return Path(value)
