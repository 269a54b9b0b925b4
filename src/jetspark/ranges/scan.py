"""The arguments of `jetspark.read`, checked: what to read, and from where to where."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions
from jetspark.kv_rules import check_bucket, check_filter
from jetspark.nearest import check_column
from jetspark.payloads.decoding import Decoding
from jetspark.ranges import arrow
from jetspark.ranges.fixed_range import AtTime
from jetspark.ranges.sequence_range import ReadLimits
from jetspark.subjects import check_disjoint, check_name, check_subscribe_subject
from jetspark.timestamps import NANOSECONDS, datetime_to_ns, parse_isotime
from jetspark.validation import check_moment, check_sequence

Bound: TypeAlias = int | datetime | timedelta | str | None
"""Start or end of a range, as the user gives it: a sequence, a time, or how long ago."""
Backfill: TypeAlias = Literal["consumer", "snapshot"]

_AGO = re.compile(
    r"-?(\d+(?:\.\d+)?)\s*(s|m|h|d|w|sec|min|second|minute|hour|day|week)s?(?:\s+ago)?"
)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_bound(name: str, value: Bound) -> AtTime | int | None:
    """Convert the start or end of a range as the user gives it: a sequence, or a time in some form.

    Returns the sequence, or the time; None stays None. `name`: of the argument, for the ConfigError
    about a wrong value.
    """
    if value is None:
        return None
    if isinstance(value, datetime):
        return AtTime(datetime_to_ns(check_moment(name, value)))
    if isinstance(value, timedelta):
        return _time_ago(value.total_seconds())
    if isinstance(value, str):
        text = value.strip()
        if ago := _AGO.fullmatch(text.casefold()):
            return _time_ago(float(ago[1]) * _SECONDS[ago[2][0]])  # the unit, by its first letter
        try:
            return AtTime(parse_isotime(text))
        except ValueError:
            raise errors.ConfigError(
                f"{name} is a sequence (a whole number), a time such as '2026-01-31T12:00:00Z', or "
                f"how long ago, such as '2 hours', not {value!r}."
            ) from None
    return check_sequence(name, value)


def _time_ago(seconds: float) -> AtTime:
    """The time so many seconds ago; the sign does not matter."""
    return AtTime(time.time_ns() - int(abs(seconds) * NANOSECONDS))


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The arguments of `jetspark.read`, checked. Raises ConfigError."""

    connection: ConnectOptions | None = field(repr=False)
    stream: str | None = None
    bucket: str | None = None
    backup: str | None = None
    subjects: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    history: bool = False
    columns: tuple[str, ...] = ()
    json_schema: str | bool = False
    decoding: Decoding | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    start: AtTime | int | None = None
    end: AtTime | int | None = None
    fail_on_data_loss: bool = True
    read_timeout: float = ReadLimits.timeout
    backfill: Backfill | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for arguments that are invalid, or do not go together."""
        if self.stream is not None:
            check_name("stream", self.stream)
        if self.bucket is not None:
            check_bucket(self.bucket)
        for subject in self.subjects:
            check_subscribe_subject(subject)
        check_disjoint("subjects", self.subjects)
        for key in self.keys:
            check_filter(key)
        check_disjoint("keys", self.keys)
        self._check_columns()
        if self.bucket is not None:
            self._check_bucket()
        elif self.keys or self.history:
            raise errors.ConfigError(
                "keys and history are for buckets: give bucket='NAME' with them."
            )
        self.limits()  # raises ConfigError for a wrong `read_timeout`

    def _check_columns(self) -> None:
        """Check `columns`, and that decoding of payloads has the columns that it needs."""
        for name in self.columns:
            check_column("columns", name, self._stored_columns)
        if len(set(self.columns)) < len(self.columns):
            raise errors.ConfigError(f"columns names one twice: {', '.join(self.columns)}.")
        if self.json_schema and self.decoding:
            raise errors.ConfigError("Give json_schema or decode: both say what the payloads are.")
        if not self.json_schema and not self.decoding:
            return
        argument = "decode" if self.decoding else "json_schema"
        if self.bucket is not None:
            raise errors.ConfigError(
                f"{argument} is for streams and backups: a bucket's values stay as they are."
            )
        for needed in ("data", *(self.decoding.needs if self.decoding else ())):
            if needed not in self.all_columns:
                raise errors.ConfigError(
                    f"{argument} needs the column {needed}, which columns leaves out."
                )

    def _check_bucket(self) -> None:
        """Raise ConfigError for arguments that do not go with a bucket."""
        if self.subjects:
            raise errors.ConfigError("subjects are for streams: a bucket has keys.")
        if self.backfill is not None and not self.history:
            raise errors.ConfigError("backfill is for streams, and for a bucket with history=True.")
        if not self.history and (self.start is not None or self.end is not None):
            raise errors.ConfigError(
                "A bucket's present values have neither start nor end: history=True reads a range "
                "of its revisions."
            )

    @property
    def _stored_columns(self) -> tuple[str, ...]:
        """All columns of a message or of a bucket's entry, without fields of decoded payloads."""
        return arrow.COLUMNS if self.bucket is None else arrow.BUCKET_COLUMNS

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The columns to read, without those of decoded payloads."""
        return self.columns or self._stored_columns

    def limits(self) -> ReadLimits:
        """The limits for reading everything."""
        return ReadLimits(timeout=self.read_timeout)
