"""Times as NATS writes them, with no nanosecond lost.

On the wire a time is RFC 3339 text with up to nine fractional digits, and a duration is an
integer of nanoseconds. Inside jetspark both are `int` nanoseconds (since the epoch, UTC); people
see aware `datetime` and `timedelta`, which hold microseconds.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import TypeAlias, overload

from jetspark.errors import BadTimeoutError, ConfigError, safe_repr

NANOSECONDS = 1_000_000_000
"""Nanoseconds in one second."""

Seconds: TypeAlias = float | timedelta
"""A duration as callers give it: seconds, or a timedelta."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)
_FIRST_NS = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1) * NANOSECONDS
_END_NS = 253_402_300_800 * NANOSECONDS  # the year 10000
_MAX_NS = 2**63 - 1  # nanoseconds since the epoch
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt ](?!24)\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?"
    r"(?:[Zz]|([+-])(\d\d):?(\d\d))"
)


def parse_isotime(text: str) -> int:
    """Nanoseconds since the epoch of an RFC 3339 time, without digits past the ninth.

    Raises ValueError for text that is not a time with a zone.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError(f"not an RFC 3339 time with a zone: {text!r}")
    whole, fraction, sign, off_h, off_m = match.groups()
    since_epoch = datetime.fromisoformat(whole) - _NAIVE_EPOCH
    seconds = since_epoch.days * 86_400 + since_epoch.seconds
    if sign is not None:
        offset = int(off_h) * 3600 + int(off_m) * 60
        seconds += offset if sign == "-" else -offset
    ns = seconds * NANOSECONDS + int((fraction or "0").ljust(9, "0"))
    if not _FIRST_NS <= ns < _END_NS:
        raise ValueError(f"not in the years 1 to 9999, in UTC: {text!r}")
    return ns


def format_isotime(ns: int) -> str:
    """RFC 3339 text in UTC with nine fractional digits (none when the second is whole)."""
    seconds, fraction = divmod(ns, NANOSECONDS)
    moment = _EPOCH + timedelta(seconds=seconds)
    # Not strftime, which does not pad years before 1000 on Linux; Go's zero time is year 1.
    head = moment.replace(tzinfo=None).isoformat(timespec="seconds")
    return f"{head}.{fraction:09d}Z" if fraction else f"{head}Z"


def ns_to_datetime(ns: int) -> datetime:
    """An aware UTC datetime, truncated to microseconds."""
    return _EPOCH + timedelta(microseconds=ns // 1000)


MAX_SECONDS = 1e9
"""31 years in seconds: practically for ever, but a number that locks, timers and the server accept.
"""


def datetime_to_ns(value: datetime) -> int:
    """Nanoseconds since the epoch. Raises ValueError for what is no datetime with a zone, and
    ConfigError for one outside the years 1 to 9999 in UTC."""
    if not isinstance(value, datetime):
        raise ValueError(f"{safe_repr(value)} is not a datetime; use one with a time zone")
    if value.tzinfo is None:
        raise ValueError(f"{safe_repr(value)} has no time zone; use an aware datetime")
    ns = (value - _EPOCH) // timedelta(microseconds=1) * 1000
    if not _FIRST_NS <= ns < _END_NS:
        raise ConfigError(f"{safe_repr(value)} is, in UTC, not in the years 1 to 9999.")
    return ns


@overload
def in_seconds(value: Seconds) -> float: ...
@overload
def in_seconds(value: Seconds | None) -> float | None: ...
def in_seconds(value: Seconds | None) -> float | None:
    """The number of seconds, from -MAX_SECONDS to MAX_SECONDS; None stays None.

    Raises BadTimeoutError for NaN and ConfigError for what is no duration.
    """
    if value is None:
        return None
    if (type(value) is float or type(value) is int) and -MAX_SECONDS <= value <= MAX_SECONDS:
        return value
    seconds = _number_of(value)
    if seconds != seconds:  # NaN
        raise BadTimeoutError(seconds)
    return max(-MAX_SECONDS, min(seconds, MAX_SECONDS))


def _number_of(value: Seconds, label: str = "A duration") -> float:
    """Any number of seconds. Raises ConfigError, also for a bool, which would count as 0 or 1."""
    if isinstance(value, bool) or not isinstance(value, Real | timedelta):
        raise ConfigError(f"{label} is seconds or a timedelta, not {safe_repr(value)}.")
    return value.total_seconds() if isinstance(value, timedelta) else value


def duration_to_ns(value: Seconds, label: str = "A duration") -> int:
    """The duration in nanoseconds. Raises ConfigError for a bool and a number beyond 64 bits."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1) * 1000
    if not -_MAX_NS < _number_of(value, label) * NANOSECONDS < _MAX_NS:  # or NaN
        raise ConfigError(f"{label} has too many seconds, or is no number: {safe_repr(value)}.")
    return round(float(value) * NANOSECONDS)


def ns_from_now(name: str, value: Seconds) -> int:
    """Nanoseconds from now; the server adds them to its clock, which counts in 64 bits.

    Raises ConfigError for a time that would overflow, and so be long past for the server.
    """
    seconds = _number_of(value, name)
    if not time.time() + min(seconds, _MAX_NS) < _MAX_NS / NANOSECONDS:
        raise ConfigError(f"{name} ends after the year 2262, as far as the server can count.")
    return duration_to_ns(value, name)


def ns_to_timedelta(ns: int) -> timedelta:
    """A timedelta, truncated to microseconds."""
    return timedelta(microseconds=ns // 1000)


def uptime() -> float:
    """Seconds that also pass while the machine sleeps, where the system counts them."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
