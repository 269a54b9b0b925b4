"""Durations and times that keep the wire's nanoseconds.

JetStream's durations are integers of nanoseconds, its times RFC 3339 text with up to nine digits;
`timedelta` and `datetime` hold microseconds. The two classes here are a `timedelta` and an aware
`datetime`, and keep the exact number, which `exact_ns(value)` returns. Results of arithmetic have
microseconds again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from jetspark.timestamps import (
    datetime_to_ns,
    duration_to_ns,
    format_isotime,
    ns_to_datetime,
    ns_to_timedelta,
    parse_isotime,
)

if TYPE_CHECKING:
    from typing import Self

ZERO_TIME = "0001-01-01T00:00:00Z"
"""How the server writes "never"."""


class Duration(timedelta):
    """A timedelta that remembers its nanoseconds."""

    __slots__ = ("_ns",)
    _ns: int

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        short = ns_to_timedelta(ns)
        self = cls(short.days, short.seconds, short.microseconds)
        self._ns = ns
        return self

    @property
    def ns(self) -> int:
        """Nanoseconds, exact."""
        try:
            return self._ns
        except AttributeError:
            return duration_to_ns(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Duration):
            return self.ns == other.ns
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other  # the base has a __ne__ of its own

    # Equal values are equal as timedeltas, so its hash serves.
    __hash__ = timedelta.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return Duration.from_ns, (self.ns,)


class Timestamp(datetime):
    """An aware datetime, UTC, that remembers its nanoseconds."""

    __slots__ = ("_ns",)
    _ns: int

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        near = ns_to_datetime(ns)
        self = cls(
            near.year,
            near.month,
            near.day,
            near.hour,
            near.minute,
            near.second,
            near.microsecond,
            tzinfo=UTC,
        )
        self._ns = ns
        return self

    @property
    def ns(self) -> int:
        """Nanoseconds since the epoch, exact."""
        try:
            return self._ns
        except AttributeError:
            return datetime_to_ns(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Timestamp):
            return self.ns == other.ns
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other  # the base has a __ne__ of its own

    __hash__ = datetime.__hash__

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return Timestamp.from_ns, (self.ns,)


def exact_ns(value: timedelta | datetime) -> int:
    """Nanoseconds of a duration, or since the epoch of a time.

    Exact for what came from the server, microseconds for what did not. Raises ValueError for a
    datetime without a zone.
    """
    if isinstance(value, Duration | Timestamp):
        return value.ns
    return datetime_to_ns(value) if isinstance(value, datetime) else duration_to_ns(value)


def to_duration(value: timedelta) -> Duration:
    """The same duration, remembering nanoseconds. Raises TypeError for a bare number."""
    if isinstance(value, Duration):
        return value
    if not isinstance(value, timedelta):
        # Seconds to one reader, nanoseconds to the next: no bare numbers.
        raise TypeError(f"{value!r} is not a timedelta; write for example timedelta(seconds=5)")
    return Duration.from_ns(duration_to_ns(value))


def to_timestamp(value: datetime) -> Timestamp:
    """The same time. Raises ValueError for a datetime without a zone, TypeError for no datetime."""
    if isinstance(value, Timestamp):
        return value
    if not isinstance(value, datetime):
        raise TypeError(f"{value!r} is not a datetime")
    return Timestamp.from_ns(datetime_to_ns(value))


def timestamp_of_text(text: str) -> Timestamp:
    """Raises ValueError for text that is not an RFC 3339 time with a zone."""
    return Timestamp.from_ns(parse_isotime(text))


def text_of_time(value: datetime) -> str:
    """RFC 3339 with nine digits, or none when the second is whole."""
    return format_isotime(exact_ns(value))
