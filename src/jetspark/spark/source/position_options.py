"""The options for where reading begins and ends: one position for all streams, or one for each.

The names are the Kafka connector's: startingOffsets, startingTimestamp, startingOffsetsByTimestamp,
and the same three for the end. Only one of each three may be given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from jetspark.errors import ConfigError, DocumentError
from jetspark.options.parsers import Parsers
from jetspark.options.scopes import ENDINGS, STARTS
from jetspark.ranges.fixed_range import NS_PER_MS, AtTime, Position, PositionOrTime
from jetspark.timestamps import parse_isotime
from jetspark.wire.documents import decode_document

_MAX_SEQUENCE = 2**64 - 1  # the server's type
_MAX_DIGITS = len(str(_MAX_SEQUENCE))  # Python refuses to read thousands of them
_MIN_MILLISECONDS = 10**11  # in March 1973; seconds are below it until the year 5138
_MAX_MILLISECONDS = (
    253_402_300_799_999  # the end of the year 9999, after which times have no text form
)


@dataclass(frozen=True, slots=True)
class Positions:
    """Where reading begins or ends: the parsed value of one option, such as startingOffsets.

    It has a position for all streams (`everywhere`), or one for each.
    """

    option: str
    everywhere: PositionOrTime | None = None
    by_stream: Mapping[str, PositionOrTime] = field(default_factory=dict)

    def check(self, streams: Iterable[str]) -> None:
        """Raise ConfigError unless each stream that is read has a position, and no other stream."""
        streams = list(streams)
        if self.everywhere is None and set(streams) != set(self.by_stream):
            raise ConfigError(
                f"names {', '.join(self.by_stream)}, but what is read is "
                f"{', '.join(streams)}: give a position for each of these.",
                option=self.option,
            )

    def of(self, stream: str) -> PositionOrTime:
        """The position for one stream; `check` must have been called."""
        return self.by_stream[stream] if self.everywhere is None else self.everywhere

    def all(self) -> list[PositionOrTime]:
        """All positions that the option has, whatever their streams."""
        return list(self.by_stream.values()) if self.everywhere is None else [self.everywhere]


def _parse_offsets(name: str, value: str) -> Positions:
    """Parse an option for a position: earliest, latest, a sequence, or a JSON object of these by
    stream. `name`: the option's."""
    words = "latest" if name.startswith("ending") else "earliest, latest"
    return _parse(name, value, _parse_sequence, f"{words} or a sequence number of at least 1")


def _parse_times(name: str, value: str) -> Positions:
    """Parse an option for a time, or a JSON object of times by stream. `name`: the option's."""
    expected = "a time (2026-01-31T12:00:00Z) or milliseconds since 1970"
    return _parse(name, value, partial(_parse_time, name), expected)


def _parse(
    name: str, value: str, parse_position: Callable[[Any], PositionOrTime | None], expected: str
) -> Positions:
    """Parse the text of an option for positions: one for all streams, or a JSON object with one for
    each stream.

    `parse_position`: parses one; None if it is not what `expected` describes to the user. Raises
    ConfigError.
    """
    text = value.strip()
    if not text.startswith("{"):
        if (position := parse_position(text)) is not None:
            return Positions(name, position)
        raise ConfigError(
            f"must be {expected}, or JSON of these by stream", option=name, value=value
        )
    try:
        document = decode_document(text, name)
    except DocumentError as error:
        raise ConfigError(
            f'must be JSON such as {{"ORDERS": …}}: {error.reason}.', option=name
        ) from None
    if not document:
        raise ConfigError("names no stream.", option=name)
    by_stream: dict[str, PositionOrTime] = {}
    for stream, json_value in document.items():
        if (position := parse_position(json_value)) is None:
            text = msgspec.json.encode(json_value).decode()
            raise ConfigError(f"must be {expected} for {stream!r}, not {text}.", option=name)
        by_stream[stream] = position
    return Positions(name, None, by_stream)


def _parse_sequence(value: Any) -> Position | None:
    """Parse a text or number that is "earliest", "latest" or a sequence; None for another value."""
    folded = str(value).strip().casefold()
    if folded == "earliest":
        return "earliest"
    if folded == "latest":
        return "latest"
    if not folded.isdecimal() or len(folded) > _MAX_DIGITS:
        return None
    return int(folded) if 1 <= int(folded) <= _MAX_SEQUENCE else None


def _parse_time(name: str, value: Any) -> AtTime | None:
    """Parse a time in ISO 8601, or milliseconds since 1970; None for another value.

    Raises ConfigError for a number that must be in seconds, since it would be before any stream.
    """
    text = str(value).strip()
    if text.isdecimal() and len(text) <= _MAX_DIGITS:
        if 0 < int(text) < _MIN_MILLISECONDS:  # 0 is written for "from the beginning"
            raise ConfigError(
                f"is in milliseconds since 1970, and {text} of them end before "
                "any stream began: multiply seconds by 1000.",
                option=name,
            )
        return AtTime(int(text) * NS_PER_MS) if int(text) <= _MAX_MILLISECONDS else None
    try:
        return AtTime(parse_isotime(text))
    except ValueError:
        return None


POSITION_PARSERS: Parsers = {
    name: _parse_times if "timestamp" in name else _parse_offsets for name in (*STARTS, *ENDINGS)
}
