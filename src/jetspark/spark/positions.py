"""The options for where reading begins and ends: one position for all streams, or one for each.

The names are the Kafka connector's: startingOffsets, startingTimestamp, startingOffsetsByTimestamp,
and the same three for the end. Only one of each three may be given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from jetspark.errors import ConfigError, DocumentError
from jetspark.subjects import nearest_name
from jetspark.timestamps import NANOSECONDS, format_isotime, parse_isotime
from jetspark.wire.documents import decode_document

Position: TypeAlias = Literal["earliest", "latest"] | int
"""The earliest stored message, after the latest, or a sequence."""

_NS_PER_MS = 1_000_000
_FIRST_MS = 10**11  # in March 1973; seconds are below it until the year 5138
_LIKELY_NS = (10**18, 4 * 10**18)  # 2001 to 2096
_LAST_MS = 253_402_300_799_999  # the end of the year 9999, after which times have no text form


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at or after a time, nanoseconds since the epoch."""

    ns: int


Wanted: TypeAlias = Position | AtTime


@dataclass(frozen=True, slots=True)
class Positions:
    """`everywhere` for all streams, or `each` by the stream's name; from the option `option`."""

    option: str
    everywhere: Wanted | None = None
    each: Mapping[str, Wanted] = field(default_factory=dict)

    def check(self, streams: Iterable[str]) -> None:
        """Raise ConfigError if positions are given by stream, but not for exactly these streams."""
        if self.everywhere is not None:
            return
        streams = list(streams)
        for stream in streams:
            if stream not in self.each:
                raise ConfigError(
                    f"Option {self.option!r} names {', '.join(self.each)}, but not {stream!r}: "
                    "give a position for each stream."
                )
        for stream in self.each:
            if stream not in streams:
                near = nearest_name(stream, streams)
                hint = f"did you mean {near!r}?" if near else f"read is {', '.join(streams)}."
                raise ConfigError(
                    f"Option {self.option!r} names the stream {stream!r}, which is not read; {hint}"
                )

    def of(self, stream: str) -> Wanted:
        """The position for one stream, after `check`."""
        return self.each[stream] if self.everywhere is None else self.everywhere

    def all(self) -> list[Wanted]:
        """All given positions."""
        return list(self.each.values()) if self.everywhere is None else [self.everywhere]


def offsets(name: str, value: str) -> Positions:
    """earliest, latest, a sequence, or a JSON object of these by stream."""
    return _parse(name, value, _position, "earliest, latest or a sequence number of at least 1")


def times(name: str, value: str) -> Positions:
    """A time, or a JSON object of times by stream."""
    expected = "a time (2026-01-31T12:00:00Z) or milliseconds since 1970"
    return _parse(name, value, partial(_time, name), expected)


def _parse(name: str, value: str, one: Callable[[Any], Wanted | None], expected: str) -> Positions:
    bare = value.strip()
    if not bare.startswith("{"):
        wanted = one(bare)
        if wanted is None:
            raise ConfigError(
                f"Option {name!r} must be {expected}, or JSON of these by stream, not {value!r}."
            )
        return Positions(name, wanted)
    try:
        document = decode_document(bare, name)
    except DocumentError as error:
        raise ConfigError(
            f'Option {name!r} must be JSON such as {{"ORDERS": …}}: {error.why}.'
        ) from None
    each = {stream: one(given) for stream, given in document.items()}
    for stream, wanted in each.items():
        if wanted is None:
            raise ConfigError(
                f"Option {name!r} must be {expected} for {stream!r}, "
                f"not {msgspec.json.encode(document[stream]).decode()}."
            )
    if not each:
        raise ConfigError(f"Option {name!r} names no stream.")
    return Positions(name, None, {k: v for k, v in each.items() if v is not None})


def _position(value: Any) -> Position | None:
    folded = str(value).strip().casefold()
    if folded == "earliest":
        return "earliest"
    if folded == "latest":
        return "latest"
    return int(folded) if folded.isdecimal() and int(folded) >= 1 else None


def _time(name: str, value: Any) -> AtTime | None:
    bare = str(value).strip()
    if bare.isdecimal():
        if 0 < int(bare) < _FIRST_MS:  # 0 is written for "from the beginning"
            raise ConfigError(
                f"Option {name!r} is in milliseconds since 1970, and {bare} of them end before "
                "any stream began: multiply seconds by 1000."
            )
        return AtTime(int(bare) * _NS_PER_MS) if int(bare) <= _LAST_MS else None
    try:
        return AtTime(parse_isotime(bare))
    except ValueError:
        return None


def if_time(option: str, number: int) -> str:
    """The end of a sentence about a sequence that is too high, if it looks like a time."""
    for unit in (NANOSECONDS, _NS_PER_MS):
        if _LIKELY_NS[0] <= number * unit < _LIKELY_NS[1]:
            name, text = option.replace("Offsets", "Timestamp"), format_isotime(number * unit)
            return f"; if you mean a time, give option {name!r} {text}"
    return ""


def one_of(given: Mapping[str, Positions], default: Position) -> Positions:
    """The option that was given, or the default. Raises ConfigError for several."""
    if len(given) > 1:
        raise ConfigError(f"Give only one of the options {', '.join(map(repr, given))}.")
    return next(iter(given.values()), Positions("", default))


def resolve(
    wanted: Wanted,
    stream: str,
    sequence_at: Callable[[str, int], int | None],
    *,
    none_is_latest: bool,
) -> Position:
    """A position without times; `sequence_at(stream, ns)` is None when all messages are older.

    Raises ConfigError for that, unless it means the end of the stream.
    """
    if not isinstance(wanted, AtTime):
        return wanted
    found = sequence_at(stream, wanted.ns)
    if found is not None:
        return found
    if none_is_latest:
        return "latest"
    raise ConfigError(
        f"Stream {stream!r} has no message at or after {format_isotime(wanted.ns)}; set "
        "startingOffsetsByTimestampStrategy to latest to begin behind its last one."
    )
