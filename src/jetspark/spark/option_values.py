"""What an option's text means: converters of (name, text), which raise ConfigError."""

from __future__ import annotations

import re
from itertools import combinations

from jetspark.errors import ConfigError
from jetspark.subjects import check_name, check_subscribe_subject, subjects_overlap

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def text(name: str, value: str) -> str:
    """As it is."""
    return value


def whole(name: str, value: str) -> int:
    """A whole number of at least 1."""
    try:
        number = int(value.strip())
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"Option {name!r} must be a whole number of at least 1, not {value!r}.")
    return number


def seconds(name: str, value: str) -> float:
    """A number of seconds above 0."""
    try:
        number = float(value.strip())
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"Option {name!r} must be a number of seconds above 0, not {value!r}.")
    return number


def duration(name: str, value: str) -> float:
    """Seconds of "15m", "90s", "1h", or of a bare number of seconds."""
    match = _DURATION.fullmatch(value.strip().casefold())
    if match is None:
        raise ConfigError(f"Option {name!r} must be a time such as 15m or 90s, not {value!r}.")
    return float(match[1]) * _UNITS[match[2] or "s"]


def truth(name: str, value: str) -> bool:
    """true or false."""
    folded = value.strip().casefold()
    if folded not in ("true", "false"):
        raise ConfigError(f"Option {name!r} must be true or false, not {value!r}.")
    return folded == "true"


def _listed(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def streams(name: str, value: str) -> tuple[str, ...]:
    """Names of streams, each once."""
    names = _listed(value)
    if not names:
        raise ConfigError(f"Option {name!r} is empty: name the streams to read.")
    for one in names:
        check_name("stream", one)
    if len(set(names)) < len(names):
        raise ConfigError(f"Option {name!r} names a stream twice.")
    return names


def pattern(name: str, value: str) -> str:
    """A regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigError(
            f"Option {name!r} is no regular expression ({error}): {value!r}."
        ) from None
    return value


def subjects(name: str, value: str) -> tuple[str, ...]:
    """Subjects to subscribe to that do not overlap."""
    found = _listed(value)
    if not found:
        raise ConfigError(f"Option {name!r} is empty; leave it out to read every subject.")
    for subject in found:
        check_subscribe_subject(subject)
    for one, other in combinations(found, 2):
        if subjects_overlap(one, other):
            raise ConfigError(
                f"Option {name!r}: {one!r} and {other!r} overlap; the server takes only subjects "
                "that do not."
            )
    return found


def columns(name: str, value: str) -> tuple[str, ...]:
    """Names of columns, in the order given, each once; whether they are there is asked later."""
    found = _listed(value)
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"Option {name!r} must name columns once each, with commas.")
    return found
