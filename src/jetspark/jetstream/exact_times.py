"""Durations and times that keep the wire's nanoseconds.

JetStream's durations are integers of nanoseconds, its times RFC 3339 text with up to nine digits;
`timedelta` and `datetime` hold microseconds. The two classes here are a `timedelta` and an aware
`datetime`, and keep the exact number, which `exact_ns(value)` returns. Results of arithmetic have
microseconds again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from jetspark.errors import shown
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


class _Exact:
    """What both classes share: the number, equality by it, and pickling it.

    Values without a number of their own, such as results of arithmetic, have whole microseconds.
    """

    __slots__ = ()
    _ns: int

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        raise NotImplementedError

    @property
    def ns(self) -> int:
        """Nanoseconds, exact; of a time since the epoch."""
        try:
            return self._ns
        except AttributeError:
            return _whole_microseconds(self)  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return self.ns == other.ns if isinstance(other, type(self)) else super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other  # the bases have a __ne__ of their own

    def __hash__(self) -> int:
        return super().__hash__()  # equal values are equal in microseconds too

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return type(self).from_ns, (self.ns,)


class Duration(_Exact, timedelta):
    """A timedelta that keeps its nanoseconds."""

    __slots__ = ("_ns",)

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        near = ns_to_timedelta(ns)
        self = cls(near.days, near.seconds, near.microseconds)
        self._ns = ns
        return self


class Timestamp(_Exact, datetime):
    """An aware datetime, UTC, that keeps its nanoseconds."""

    __slots__ = ("_ns",)

    @classmethod
    def from_ns(cls, ns: int) -> Self:
        near = ns_to_datetime(ns)
        self = cls.combine(near.date(), near.timetz())
        self._ns = ns
        return self


def exact_ns(value: timedelta | datetime) -> int:
    """Nanoseconds of a duration, or since the epoch of a time.

    Exact for what came from the server, microseconds for what did not. Raises ValueError for a
    datetime without a zone.
    """
    if isinstance(value, Duration | Timestamp):
        return value.ns
    return _whole_microseconds(value)


def _whole_microseconds(value: timedelta | datetime) -> int:
    return datetime_to_ns(value) if isinstance(value, datetime) else duration_to_ns(value)


def to_duration(value: timedelta) -> Duration:
    """The same duration, remembering nanoseconds. Raises TypeError for a bare number."""
    if isinstance(value, Duration):
        return value
    if not isinstance(value, timedelta):
        # Seconds to one reader, nanoseconds to the next: no bare numbers.
        raise TypeError(
            f"{shown(value)} is not a timedelta; write for example timedelta(seconds=5)"
        )
    return Duration.from_ns(duration_to_ns(value))


def to_timestamp(value: datetime) -> Timestamp:
    """The same time. Raises ValueError for a datetime without a zone, TypeError for no datetime."""
    if isinstance(value, Timestamp):
        return value
    if not isinstance(value, datetime):
        raise TypeError(f"{shown(value)} is not a datetime")
    return Timestamp.from_ns(datetime_to_ns(value))


def timestamp_of_text(text: str) -> Timestamp:
    """Raises ValueError for text that is not an RFC 3339 time with a zone."""
    return Timestamp.from_ns(parse_isotime(text))


def text_of_time(value: datetime) -> str:
    """RFC 3339 with nine digits, or none when the second is whole."""
    return format_isotime(exact_ns(value))
