"""Descriptions of new Parquet files that are not part of a table yet.

Executors write them (`file_writer`), and the driver adds them to the table in one commit. Files
that are never committed, because a task failed or ran twice, are ignored by readers and removed by
`vacuum`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from jetspark.errors import TableError, safe_repr
from jetspark.tables.schemas import normalized_type

_WRITTEN_NAME = re.compile(r"(?:.*/)?(?:part-\d+|merged|compacted)-[0-9a-f]{16}-\d+\.parquet")


def has_written_name(path: str) -> bool:
    """Whether a file has a name that jetspark gives to the data files that it writes."""
    return _WRITTEN_NAME.fullmatch(path) is not None


def check_written_path(path: str) -> None:
    """Raise TableError for a new file's path, as a task reports it to the driver, that jetspark
    does not give to one: it has to be relative to the table's location, without a step out of it,
    and end with a name of ours."""
    plain = all(part not in ("", ".", "..") for part in path.split("/"))
    if not (plain and has_written_name(path)):
        raise TableError(f"{safe_repr(path)} is no new file of this table: it was not committed.")


class Storage(Protocol):
    """Storage of a table's files; it is sent to executors, so it must be picklable."""

    def create(self, path: str) -> Any:
        """A new file below the table's location, as a binary stream."""

    def open(self, path: str) -> Any:
        """A file below the table's location, as a binary stream that can be positioned."""

    def remove(self, path: str) -> None:
        """Remove a file that is no longer needed."""


@dataclass(frozen=True)
class NewFile:
    """A Parquet file that a task has written and the driver will add to a table: what the commit
    has to know about it."""

    path: str
    """The path relative to the table's location."""
    size: int
    """The size in bytes."""
    rows: int
    """The number of rows."""
    partition: tuple[Any, ...]
    """Values of the layout's partitions."""
    partition_by: tuple[str, ...]
    """The columns by which the layout is partitioned."""
    spec_id: int
    sort_order_id: int
    with_nan: frozenset[str]
    """Columns with NaN, which Parquet's statistics leave out."""
    long_texts: dict[str, tuple[tuple[str, str | None], ...]] = field(repr=False)
    """`statistics.LongTexts`: bounds of the texts that are too long for Parquet's statistics."""
    footer: bytes = field(repr=False)
    """Parquet's metadata, with the statistics."""
    table: str = ""
    """The table's name, if a writer has several tables."""

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer, parsed."""
        return pq.read_metadata(pa.BufferReader(self.footer))


def check_unchanged(name: object, schema: pa.Schema, file: NewFile) -> None:
    """Raise TableError if another program has changed the table's columns since a new file was
    written. Columns may have been added, but none of the file's removed or changed. `name`,
    `schema`: the table's."""
    for column in file.metadata.schema.to_arrow_schema():
        at = schema.get_field_index(column.name)
        if at < 0 or _storage_type(schema.field(at).type) != _storage_type(column.type):
            raise table_changed(name, f"the column {column.name}")


def _storage_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values as a file stores them, without details that do not matter, for
    a comparison."""
    return normalized_type(kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)


def table_changed(name: object, part: str) -> TableError:
    """The error for a table that another program has changed while a batch was written. `part`:
    what it changed, as part of a sentence."""
    return TableError(
        f"{name}: another program changed {part} while this batch was written. Run it again."
    )


def files_by_table(files: Iterable[NewFile]) -> dict[str, list[NewFile]]:
    """Group new files by the name of the table for which they were written, in their order."""
    groups: dict[str, list[NewFile]] = {}
    for file in files:
        groups.setdefault(file.table, []).append(file)
    return groups


# -------------------------------------------------------------------------------------------------
# Descriptions of new files as data (MessagePack), which has no types for some partition values.


_ENCODED_TYPES: Mapping[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "decimal": (Decimal, str, Decimal),
    "uuid": (UUID, str, UUID),
}
"""Types of partition values that become text, by name: (class, to text, from text). A value has the
first one that matches: a datetime is a date, too."""


def encode_new_file(file: NewFile) -> NewFile:
    """The description of a new file, with partition values that MessagePack can hold, to be sent to
    the driver."""
    return replace(file, partition=tuple(map(_encode_value, file.partition)))


def decode_new_file(file: NewFile) -> NewFile:
    """The description of a new file before `encode_new_file` changed it. Raises TableError for a
    path that jetspark does not give to a new file."""
    check_written_path(file.path)
    return replace(file, partition=tuple(map(_decode_value, file.partition)))


def _encode_value(value: Any) -> Any:
    """A partition value in a form that MessagePack can hold: [name of its type, text] for dates,
    times, decimals and UUIDs; other values unchanged."""
    for name, (kind, to_text, _) in _ENCODED_TYPES.items():
        if isinstance(value, kind):
            return [name, to_text(value)]
    return value


def _decode_value(value: Any) -> Any:
    """The partition value that `_encode_value` encoded; a list can only be of its making, since no
    partition has lists as values."""
    if isinstance(value, list):
        name, text = value
        return _ENCODED_TYPES[name][2](text)
    return value
