"""Where reading begins or ends, as the user says it: one position for all streams, or one each.

The names are the Kafka connector's: startingOffsets, startingTimestamp, startingOffsetsByTimestamp
and the ending… twins, of which one of each three may be given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from jetspark.errors import ConfigError
from jetspark.timestamps import format_isotime, parse_isotime

Position: TypeAlias = Literal["earliest", "latest"] | int
"""The earliest stored message, behind the latest, or a sequence."""

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at or after a time, nanoseconds since the epoch."""

    ns: int


Wanted: TypeAlias = Position | AtTime


@dataclass(frozen=True, slots=True)
class Positions:
    """`everywhere` for all streams, or `each` by the stream's name. `option` said so."""

    option: str
    everywhere: Wanted | None = None
    each: Mapping[str, Wanted] = field(default_factory=dict)

    def of(self, stream: str) -> Wanted:
        """The position for one stream. Raises ConfigError for one that is not named."""
        if self.everywhere is not None:
            return self.everywhere
        if stream not in self.each:
            raise ConfigError(
                f"Option {self.option!r} names {', '.join(self.each)}, but not {stream!r}: "
                "give a position for each stream."
            )
        return self.each[stream]

    def all(self) -> list[Wanted]:
        """Every position that is named."""
        return list(self.each.values()) if self.everywhere is None else [self.everywhere]


def offsets(name: str, value: str) -> Positions:
    """earliest, latest, a sequence, or a JSON object of these by stream."""
    return _parse(name, value, _position, "earliest, latest or a sequence number of at least 1")


def times(name: str, value: str) -> Positions:
    """A time, or a JSON object of times by stream."""
    return _parse(name, value, _time, "a time (2026-01-31T12:00:00Z) or milliseconds since 1970")


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
        document = msgspec.json.decode(bare, type=dict[str, str | int])
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f'Option {name!r} must be JSON such as {{"ORDERS": …}}: {error}.'
        ) from None
    each = {stream: one(given) for stream, given in document.items()}
    for stream, wanted in each.items():
        if wanted is None:
            raise ConfigError(
                f"Option {name!r} must be {expected} for {stream!r}, not {document[stream]!r}."
            )
    if not each:
        raise ConfigError(f"Option {name!r} names no stream.")
    return Positions(name, None, {k: v for k, v in each.items() if v is not None})


def _position(value: str | int) -> Position | None:
    folded = str(value).strip().casefold()
    if folded == "earliest":
        return "earliest"
    if folded == "latest":
        return "latest"
    return int(folded) if folded.isdecimal() and int(folded) >= 1 else None


def _time(value: str | int) -> AtTime | None:
    bare = str(value).strip()
    if bare.isdecimal():
        return AtTime(int(bare) * _NS_PER_MS)
    try:
        return AtTime(parse_isotime(bare))
    except ValueError:
        return None


def one_of(given: Mapping[str, Positions], default: Position) -> Positions:
    """The one that was given, or the default. Raises ConfigError for several."""
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
