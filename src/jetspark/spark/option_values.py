"""Converters of option texts: functions of (name, text), which raise ConfigError."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from jetspark.bulk.arrow import TYPES
from jetspark.errors import ConfigError
from jetspark.kv_rules import check_filter
from jetspark.spark.ddl import check_fields
from jetspark.subjects import (
    check_disjoint,
    check_name,
    check_publish_subject,
    check_subscribe_subject,
)

T = TypeVar("T")

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_JSON_TYPES = ", ".join(TYPES).upper() + "_LTZ"
_MOST = 2**63 - 1  # numbers go to Spark, which keeps them in a long
_MOST_SECONDS = 1e9  # 31 years: sockets refuse to wait for longer than some hundred


def read(convert: Callable[[str, str], T], name: str, value: str) -> T:
    """The result of `convert` for an option. Raises ConfigError that names the option."""
    try:
        return convert(name, value)
    except ConfigError as error:
        if f"Option {name!r}" in str(error):
            raise
        raise ConfigError(f"Option {name!r}: {error}") from None


def text(name: str, value: str) -> str:
    """As it is."""
    return value


def name(name: str, value: str) -> str:
    """A text that is not empty."""
    if not value.strip():
        raise ConfigError(f"Option {name!r} is empty.")
    return value


def whole(name: str, value: str) -> int:
    """A whole number of at least 1."""
    try:
        number = int(value.strip())
    except ValueError:
        number = 0
    if number > _MOST:
        raise ConfigError(f"Option {name!r} must be {_MOST} at most, not {value!r}.")
    if number < 1:
        raise ConfigError(f"Option {name!r} must be a whole number of at least 1, not {value!r}.")
    return number


def seconds(name: str, value: str) -> float:
    """A number of seconds above 0."""
    try:
        number = float(value.strip())
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST_SECONDS:
        raise ConfigError(
            f"Option {name!r} must be a number of seconds above 0 and {_MOST_SECONDS:.0f} at most, "
            f"not {value!r}."
        )
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


def json_fields(name: str, value: str) -> tuple[tuple[str, str], ...]:
    """The fields of a schema in DDL, all of types that the source parses: names and types."""
    fields = check_fields(value, f"Option {name!r}:")
    for field, kind in fields.items():
        if kind not in TYPES:
            raise ConfigError(
                f"Option {name!r}: the source parses {_JSON_TYPES} only; {field} is something "
                "else: use from_json on data, and for TIMESTAMP write TIMESTAMP_LTZ."
            )
    return tuple(fields.items())


def pattern(name: str, value: str) -> str:
    """A regular expression."""
    if not value.strip():
        raise ConfigError(f"Option {name!r} is empty; '.*' means every stream.")
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigError(
            f"Option {name!r} is no regular expression ({error}): {value!r}."
        ) from None
    return value


def subject(name: str, value: str) -> str:
    """A subject to publish to."""
    check_publish_subject(value)
    return value


def api_prefix(name: str, value: str) -> str:
    """The prefix of an API's subjects, with or without a dot at its end."""
    check_publish_subject(value.removesuffix("."))
    return value


def subjects(name: str, value: str) -> tuple[str, ...]:
    """Subjects to subscribe to that do not overlap."""
    return _filters(name, value, "subject", check_subscribe_subject)


def keys(name: str, value: str) -> tuple[str, ...]:
    """Keys of a bucket, or wildcards for them, that do not overlap."""
    return _filters(name, value, "key", check_filter)


def _filters(name: str, value: str, what: str, check: Callable[[str], object]) -> tuple[str, ...]:
    found = _listed(value)
    if not found:
        raise ConfigError(f"Option {name!r} is empty; leave it out to read every {what}.")
    for one in found:
        check(one)
    check_disjoint(f"Option {name!r}", found)
    return found


def columns(name: str, value: str) -> tuple[str, ...]:
    """Names of columns, in the order given, each once; whether they exist is checked later."""
    found = _listed(value)
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"Option {name!r} must name columns once each, with commas.")
    return found
