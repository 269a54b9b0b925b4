"""The position of a change: its place in the database's log, then in the stream, as one text.

A position is `LOG.SEQUENCE.DIGEST`, and positions of one table sort as texts in the order of its
changes:

- `LOG`: the place that the event's `source` block names, as numbers of a fixed width. It is empty
  for an event without a place, as of an incremental snapshot, or of any snapshot of PostgreSQL.
- `SEQUENCE`: the message's sequence in the stream. It orders the changes of one place in the log,
  such as those of a compressed transaction of MySQL, and events without a place.
- `DIGEST`: of what changed. Debezium repeats events after a restart, and a repeated event has the
  place and the digest of the first one.

An event without a place takes that of the change of its key which precedes it in the stream
(`place_after`): it replaces what was there, and every later change in the log replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

COLUMN: Final = "__position"
"""The column of positions in the rows of Debezium's events."""
_DIGEST_BYTES = 6
_MAX_NUMBER = 2**64
_DIGITS = re.compile(r"[0-9]{1,20}")
_LSN = re.compile(r"[0-9A-Fa-f]{1,16}(?::[0-9A-Fa-f]{1,16}){0,15}")
_FILE_NUMBER = re.compile(r"[0-9]{1,18}$")


def make_position(log: str, seq: int, change: bytes) -> str:
    """Return the position of a change, by which the changes of a table sort. `log`: its place in
    the database's log, from `log_place`; `seq`: its message's sequence; `change`: what changed, as
    bytes that are the same when the event is repeated."""
    return f"{log}.{seq:016x}.{blake2b(change, digest_size=_DIGEST_BYTES).hexdigest()}"


def log_place(source: Mapping[str, Any], op: str) -> str:
    """Return the place in the database's log that an event names, as a text; "" if it names none.

    `source`: the event's block of that name; `op`: what happened to the row; "r": it was read by a
    snapshot. Raises ValueError, with a sentence, for a place that no database writes.
    """
    for field, read_place in _PLACE_BY_FIELD.items():
        if source.get(field) not in (None, ""):
            log = read_place(source)
            # PostgreSQL's places are in the order in which transactions write, not commit: one that
            # is open during a snapshot has places before the snapshot's, and its changes are not in
            # the snapshot. So rows of a snapshot count as without a place.
            return "" if read_place is _postgresql_place and op == "r" else log
    return ""


# -- of each connector ---------------------------------------------------------------------------


def _postgresql_place(source: Mapping[str, Any]) -> str:
    """Return PostgreSQL's LSN."""
    return _read_hex(source, "lsn")


def _mysql_place(source: Mapping[str, Any]) -> str:
    """Return the place in MySQL's or MariaDB's log: the number of the binlog file, and the position
    in it."""
    # Not the row: a compressed transaction has one position, and each of its statements begins
    # with row 0.
    file = source["file"]
    number = _FILE_NUMBER.search(file) if isinstance(file, str) else None
    if number is None:
        raise _place_error(source, "file")
    return f"{int(number[0]):016x}{_read_hex(source, 'pos')}"


def _sql_server_place(source: Mapping[str, Any]) -> str:
    """Return the place in the log of SQL Server or Db2: of the commit, then of the change. Rows of
    a snapshot have no change_lsn: they come before the changes of the commit up to which they were
    read, so that these are not lost."""
    parts = [_read_lsn(source, "commit_lsn")]
    if source.get("change_lsn") not in (None, ""):
        parts.append(_read_lsn(source, "change_lsn"))
    return "/".join(parts)


def _oracle_place(source: Mapping[str, Any]) -> str:
    """Return the place in Oracle's log: the SCN (its change number) of the commit, then of the
    change."""
    # Rows of a snapshot have no commit_scn.
    at = "scn" if source.get("commit_scn") in (None, "") else "commit_scn"
    return _read_hex(source, at) + _read_hex(source, "scn")


def _mongodb_place(source: Mapping[str, Any]) -> str:
    """Return MongoDB's time of the change, and its number among those of the same time."""
    return _read_hex(source, "ts_ms") + _read_hex(source, "ord")


_PLACE_BY_FIELD: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "lsn": _postgresql_place,
    "file": _mysql_place,
    "commit_lsn": _sql_server_place,
    "scn": _oracle_place,
    "ord": _mongodb_place,
}
FIELDS: Final = (*_PLACE_BY_FIELD, "pos", "change_lsn", "commit_scn")
"""Fields of `source` that make up a place, beside `ts_ms`."""


def _whole_number(value: Any) -> int | None:
    """Return a number from 0 to 2⁶⁴ - 1, which Debezium also writes as a text; None for anything
    else."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_NUMBER:
        return None
    return value


def _read_hex(source: Mapping[str, Any], name: str) -> str:
    """Return a number of an event's `source` block in 16 hexadecimal digits, which sort as texts.
    Raises ValueError."""
    if (number := _whole_number(source.get(name))) is None:
        raise _place_error(source, name)
    return f"{number:016x}"


def _read_lsn(source: Mapping[str, Any], name: str) -> str:
    """Return an LSN such as 2c:5a0:1 of an event's `source` block, each number with 16 digits, so
    that LSNs sort as texts. Raises ValueError."""
    value = source[name]
    if not isinstance(value, str) or not _LSN.fullmatch(value):
        raise _place_error(source, name)
    return ":".join(part.lower().zfill(16) for part in value.split(":"))


def _place_error(source: Mapping[str, Any], name: str) -> ValueError:
    """Return the error for a field of `source` that is missing or has no valid value."""
    if source.get(name) is None:
        return ValueError(f"source has a place in the log, but no {name}")
    return ValueError(f"source.{name} is no place in a log")


# -- columns of positions ------------------------------------------------------------------------


def without_log(positions: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a mask of the positions without a place in the log."""
    return pc.starts_with(positions, ".")


def change_ids(positions: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return what the positions of an event and of its repeats share."""
    return pc.replace_substring_regex(positions, r"\.[0-9a-f]*\.", ".")


def log_places(positions: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the places in the log."""
    return pc.replace_substring_regex(positions, r"\..*", "")


def place_after(position: str, earlier: Iterable[str]) -> str:
    """Return the position of an event that names no place in the database's log: with the highest
    place of the events that come before it in the stream. `earlier`: the positions of events of its
    key."""
    seq = _sequence(position)  # texts of the same width, which sort as numbers
    logs = (event.partition(".")[0] for event in earlier if _sequence(event) < seq)
    return max(logs, default="") + position


def _sequence(position: str) -> str:
    """Return what follows the log's place in a position: sequence and digest."""
    return position.partition(".")[2]
