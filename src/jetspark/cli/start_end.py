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
    """--start as an option of Spark's format. Raises ConfigError."""
    position = _position("--start", text, "earliest, latest, ")
    if isinstance(position, str):
        return {"startingOffsets": position}
    start = {"startingTimestamp": format_isotime(position)}
    if position <= time.time_ns():
        # If no message is that new, only later ones are: begin at the end. Messages may still come
        # before a future time.
        start["startingOffsetsByTimestampStrategy"] = "latest"
    return start


def parse_end(text: str) -> dict[str, str]:
    """--end as an option of Spark's format. Raises ConfigError."""
    position = _position("--end", text, "")
    if isinstance(position, str):
        return {"endingOffsets": position}
    return {"endingTimestamp": format_isotime(position)}


def _position(flag: str, text: str, words: str) -> str | int:
    """A word, a sequence or positions by stream as text; a time in nanoseconds."""
    bare = text.strip()
    if bare.casefold() in ("earliest", "latest") or bare.isdecimal() or bare.startswith("{"):
        return bare
    if age := _AGE.fullmatch(bare.casefold()):
        return time.time_ns() - int(float(age[1]) * _AGE_SECONDS[age[2]] * NANOSECONDS)
    with suppress(ValueError):
        return parse_isotime(bare)
    try:
        return datetime_to_ns(datetime.fromisoformat(bare).astimezone())  # a local time
    except ValueError:
        raise ConfigError(
            f"{flag} {text!r}: write {words}a sequence, a time such as 2026-01-31T12:00:00Z, or "
            "how long ago, such as -90m or -2d."
        ) from None
