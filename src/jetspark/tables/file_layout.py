"""The layout of a table's new data files: columns, partitions, folders and sort order.

It is decided by the driver, from the table's metadata, and sent to the executors that write the
files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError, named, safe_repr

_MAX_NAME_BYTES = 255
"""Bytes of a file's name on most file systems."""
_PATH_CHARACTERS = re.compile(r"[/=#?]")
"""Characters that have a meaning in a path or a URI. The rest of a column's name stays as it is,
since Polars compares it with the folder's undecoded; a value it decodes."""
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def partition_value(value: Any) -> str | None:
    """A partition value as text, as Delta's log and the names of folders have it (Delta protocol,
    "Partition Value Serialization"); None for null, and for an empty text, which counts as null."""
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            instant = value.astimezone(UTC) if value.tzinfo is not None else value
            # Not strftime, which does not pad years before 1000 on Linux.
            return instant.replace(tzinfo=None).isoformat(" ", "microseconds")
        case date():
            return value.isoformat()
        case float():
            return repr(value)
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)


@dataclass(frozen=True)
class Partition:
    """A column by whose values the rows of a table are divided into files; subclasses divide by a
    transform of the values."""

    name: str
    """Name of the partition in folders."""
    column: str

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """The partition's value of each row."""
        return rows.column(self.column)

    def text(self, value: Any) -> str | None:
        """A value of `of` in a folder's name; None for null."""
        return partition_value(value)

    def may_reject(self, column: pa.Array) -> bool:
        """Whether some value of the column may be unfit for a partition. This is a quick look at
        the whole column, so that `rejection_reason` need not look at each value."""
        kind = column.type
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            return False
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        # The folder is named `name=value`; percent-encoded, a byte takes three characters there.
        return bool(3 * longest + 3 * len(self.name) >= _MAX_NAME_BYTES)

    def rejection_reason(self, value: pa.Scalar) -> str | None:
        """Why no row may have this value in the partition's column, as the end of a sentence: it is
        too long for a folder's name. None if rows may have it."""
        text = self.text(value.as_py())
        if text is None or len(_partition_folder(self.name, text).encode()) <= _MAX_NAME_BYTES:
            return None
        return f"has a value of {len(text)} characters, too long for the name of a folder"

    def value(self, scalar: pa.Scalar) -> Any:
        """Convert a partition value, which `of` computed with Arrow, to Python. Raises ConfigError
        for a date outside the years 1 to 9999, which Python does not have."""
        try:
            return scalar.as_py()
        except (OverflowError, ValueError):
            raise year_out_of_range(self.column) from None


def year_out_of_range(column: str) -> ConfigError:
    """The error for a value outside the years 1 to 9999, which Python does not have, in a column by
    which the table is partitioned."""
    return ConfigError(
        f"{named('partition_by')}: {column!r} has a value outside the years 1 to 9999: partition "
        "by another column, or leave such rows out."
    )


def partition_path(partition_by: Sequence[Partition], values: tuple[Any, ...]) -> str:
    """The folders of a partition's files in Hive's naming, such as `region=eu/day=2026-01-31/`,
    from which some readers take the values; "" without partitions.

    Raises ConfigError for a value that is too long for a folder's name.
    """
    path = ""
    for partition, value in zip(partition_by, values, strict=True):
        text = partition.text(value)
        folder = _partition_folder(partition.name, text)
        if len(folder.encode()) > _MAX_NAME_BYTES:
            raise ConfigError(
                f"{named('partition_by')}: {partition.name!r} has a value of {len(text or '')} "
                f"characters, too long for the name of a folder ({safe_repr(text)}): partition by "
                f"less of it, such as {partition.name}_begin=left({partition.name}, 20)."
            )
        path += f"{folder}/"
    return path


def _partition_folder(name: str, text: str | None) -> str:
    """The folder of a partition, `name=text`, with what has a meaning in a path or a URI encoded.
    `text`: None for null."""
    name = _PATH_CHARACTERS.sub(lambda match: quote(match[0], safe=""), name)
    # deltalake's compaction looks for a ~ as %7E.
    value = NULL_FOLDER if text is None else quote(text, safe="").replace("~", "%7E")
    return f"{name}={value}"


class DerivedColumn(Protocol):
    """Column whose values are computed from others: a generated column of Delta, or a derived one
    of a query."""

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Compute the values of these rows."""


@dataclass(frozen=True)
class SortKey:
    """A column, or a transform of it, by which an Iceberg table wants the rows of a file sorted."""

    by: Partition
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Layout:
    """How new data files of a table are divided, sorted and written. The driver decides it, and the
    tasks that write files get it."""

    schema: pa.Schema
    """The table's columns, with the metadata that the format adds."""
    partition_by: tuple[Partition, ...] = ()
    checked: tuple[Partition, ...] = ()
    """Partitions into which the driver divides the rows later, when it merges staged files."""
    keeps_partition_columns: bool = True
    folder: str = ""
    """Folder of data files below the table's location; ends with a slash unless it is empty."""
    derived: Mapping[str, DerivedColumn] = field(default_factory=dict)
    """Columns that are computed, by name, if the rows do not have them."""
    target_bytes: int = 128 * 1024 * 1024
    compression: str = "zstd"
    sort_by: tuple[SortKey, ...] = ()
    """Sort order of the rows in a file, which has one row group if this is not empty."""
    spec_id: int = 0
    """The id of the partition spec `partition_by` in an Iceberg table; 0 in a Delta table."""
    sort_order_id: int = 0
    """The id of the sort order `sort_by` in an Iceberg table; 0 if rows are not sorted."""
