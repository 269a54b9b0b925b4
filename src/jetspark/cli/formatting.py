"""Numbers, sizes, times and durations as people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta


def format_count(count: int, thing: str) -> str:
    """A number of things, such as "1 row" and "1,000 rows"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def describe_left_out(messages: int) -> str:
    """A sentence about the number of messages that become no rows, as their format has it.

    Debezium's heartbeats, for example, are not changes of rows.
    """
    reason = "as Debezium's that are no changes (tombstones, heartbeats and others)"
    return f"{format_count(messages, 'message')} left out, {reason}."


def format_size(count: int) -> str:
    """Format a number of bytes in a suitable unit, such as 1.5 MiB."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def format_limit(value: int | None, show: Callable[[int], str] = "{:,}".format) -> str:
    """Format a limit of a stream or consumer; -1, 0 and None are "unlimited"."""
    return "unlimited" if value is None or value <= 0 else show(value)


def format_time(time: datetime | None) -> str:
    """Format a time (UTC) to the second; None is "never"."""
    return "never" if time is None else f"{time.replace(tzinfo=None).isoformat(' ', 'seconds')}Z"


def format_duration(duration: timedelta | None) -> str:
    """A duration; None and zero are "unlimited"."""
    return str(duration) if duration else "unlimited"


def format_metadata(metadata: Mapping[str, str] | None) -> str:
    """Format metadata as name=value, separated by commas."""
    return ", ".join(f"{name}={value}" for name, value in (metadata or {}).items())
