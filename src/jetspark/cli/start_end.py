"""--start and --end: a position in a stream, a time, or an age."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from datetime import datetime

from jetspark.errors import ConfigError
from jetspark.timestamps import NANOSECONDS, datetime_to_ns, format_isotime, parse_isotime

_AGE = re.compile(r"-(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_AGE_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_start(text: str) -> dict[str, str]:
    """Turn the text of --start, where to begin in a stream, into options of Spark's format.

    Raises ConfigError.
    """
    position = _parse_position("--start", text, "earliest, latest, ")
    if isinstance(position, str):
        return {"startingOffsets": position}
    options = {"startingTimestamp": format_isotime(position)}
    if position <= time.time_ns():
        # If no message is that new yet, the next one will be: begin at the stream's end. Before a
        # future time, though, messages may still come that are too old.
        options["startingOffsetsByTimestampStrategy"] = "latest"
    return options


def parse_end(text: str) -> dict[str, str]:
    """Turn the text of --end, where to stop in a stream, into an option of Spark's format.

    Raises ConfigError.
    """
    position = _parse_position("--end", text, "")
    if isinstance(position, str):
        return {"endingOffsets": position}
    return {"endingTimestamp": format_isotime(position)}


def _parse_position(flag: str, text: str, words: str) -> str | int:
    """Parse a place in a stream: returns a position as it is (str), or a time (int).

    A position is earliest, latest, a sequence, or JSON of these by stream. A time, also one that is
    written as an age such as -90m, is in nanoseconds since 1970. `words`: the words that the flag
    takes, for the error.
    """
    text_folded = text.strip().casefold()
    if text_folded in ("earliest", "latest") or text_folded.isdecimal() or text_folded[:1] == "{":
        return text.strip()
    if age := _AGE.fullmatch(text_folded):
        seconds = float(age[1]) * _AGE_SECONDS[age[2]]
        if seconds < time.time():  # before 1970 there was no message
            return time.time_ns() - int(seconds * NANOSECONDS)
    if (moment := parse_time(text)) is not None:
        return moment
    raise ConfigError(
        f"{flag} {text!r}: write {words}a sequence, a time such as 2026-01-31T12:00:00Z, or "
        "how long ago, such as -90m or -2d."
    )


def parse_time(text: str) -> int | None:
    """Parse a time such as 2026-01-31T12:00:00Z; returns its nanoseconds since 1970.

    A time without a zone is one of this machine's zone. None: it is no time.
    """
    with suppress(ValueError):
        return parse_isotime(text.strip())
    try:
        return datetime_to_ns(datetime.fromisoformat(text.strip()).astimezone())
    except ValueError:
        return None
