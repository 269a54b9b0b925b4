"""Writes rows into Parquet files that are not part of the table yet; runs on an executor.

The driver adds them to the table in one commit. Files that are never committed, because a task
failed or ran twice, are ignored by readers and removed by `vacuum`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Protocol
from urllib.parse import quote
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jetspark.codecs.exact import cast_exactly
from jetspark.errors import ConfigError, TableError, shown
from jetspark.lakehouse.schemas import map_inner_fields, normalized_type
from jetspark.lakehouse.statistics import bounds_of_long_texts

# -------------------------------------------------------------------------------------------------
# Text columns in UTF-8, as Parquet demands: other readers would refuse the file.


def replace_invalid_utf8(column: pa.Array) -> pa.Array:
    """The column, with U+FFFD in place of bytes that are not UTF-8 (Spark lets them pass)."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.cast(_binary_type(column.type))
        return pa.array(
            [_decode_text(value, column.type) for value in raw.to_pylist()], column.type
        )
    return column


def _binary_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.binary()
    return map_inner_fields(kind, lambda inner: inner.with_type(_binary_type(inner.type)))


def _decode_text(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value.decode(errors="replace")
    if pa.types.is_struct(kind):
        return {inner.name: _decode_text(value[inner.name], inner.type) for inner in kind}
    if pa.types.is_map(kind):
        return [(_decode_text(a, kind.key_type), _decode_text(b, kind.item_type)) for a, b in value]
    if pa.types.is_list(kind):
        return [_decode_text(inner, kind.value_type) for inner in value]
    return value


# -------------------------------------------------------------------------------------------------
# Values of partition columns as strings and as folder names.


_MAX_NAME_BYTES = 255
"""Bytes of a file's name on most file systems."""
_PATH_CHARACTERS = re.compile(r"[/=#?]")
"""What has a meaning in a path or a URI. The rest of a column's name stays as it is, since Polars
compares it with the folder's undecoded; a value it decodes."""
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def partition_value(value: Any) -> str | None:
    """A value in the form of Delta's log (Delta protocol, "Partition Value Serialization")."""
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
    """What rows are divided by: the values of a column, and of what else a format makes of it."""

    name: str
    """In folders' names."""
    column: str

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """The value of each row."""
        return rows.column(self.column)

    def text(self, value: Any) -> str | None:
        """A value of `of` in a folder's name; None: that for null."""
        return partition_value(value)

    def may_refuse(self, column: pa.Array) -> bool:
        """Whether `refusal` has to look at the different values of the column."""
        kind = column.type
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            return False
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        return bool(3 * longest + 3 * len(self.name) >= _MAX_NAME_BYTES)

    def refusal(self, value: pa.Scalar) -> str | None:
        """Why no row may have this value, as the end of a sentence; None if rows may have it."""
        text = self.text(value.as_py())
        if text is None or len(_partition_folder(self.name, text).encode()) <= _MAX_NAME_BYTES:
            return None
        return f"has a value of {len(text)} characters, too long for the name of a folder"

    def value(self, scalar: pa.Scalar) -> Any:
        """In Python. Raises ConfigError for a date that Python does not have."""
        try:
            return scalar.as_py()
        except (OverflowError, ValueError):
            raise year_out_of_range(self.column) from None


def year_out_of_range(column: str) -> ConfigError:
    """The error for a date that Python does not have."""
    return ConfigError(
        f"partitionBy: {column!r} has a value outside the years 1 to 9999: partition by another "
        "column, or leave such rows out."
    )


def partition_path(partition_by: Sequence[Partition], values: tuple[Any, ...]) -> str:
    """The folders of a partition in Hive's naming, since some readers take the values from it.

    Raises ConfigError for a value that is too long for a folder's name, or has none.
    """
    path = ""
    for partition, value in zip(partition_by, values, strict=True):
        text = partition.text(value)
        folder = _partition_folder(partition.name, text)
        if len(folder.encode()) > _MAX_NAME_BYTES:
            raise ConfigError(
                f"partitionBy: {partition.name!r} has a value of {len(text or '')} characters, too "
                f"long for the name of a folder ({shown(text)}): partition by less of it, such as "
                f"{partition.name}_begin=left({partition.name}, 20)."
            )
        path += f"{folder}/"
    return path


def _partition_folder(name: str, text: str | None) -> str:
    """The name of a partition's folder."""
    name = _PATH_CHARACTERS.sub(lambda match: quote(match[0], safe=""), name)
    # deltalake's compaction looks for a ~ as %7E.
    value = NULL_FOLDER if text is None else quote(text, safe="").replace("~", "%7E")
    return f"{name}={value}"


MAX_ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Most bytes of Arrow memory for a row group."""
MAX_ROW_GROUP_ROWS = 1024 * 1024
MAX_BUFFERED_BYTES = 256 * 1024 * 1024
"""Arrow memory of all partitions in one task, in bytes."""
_SAMPLE_ROWS = 1000
"""Rows of a file's first row group that choose its encodings."""
_MAX_DISTINCT_RATIO = 0.99
"""Different values in a sample of one: at most so many where a dictionary helps."""
MAX_OPEN_FILES = 64
"""Most files that one task has open at a time, however many partitions its rows have."""


_WRITTEN_NAME = re.compile(r"(?:.*/)?(?:part-\d+|merged|compacted)-[0-9a-f]{16}-\d+\.parquet")


def has_written_name(path: str) -> bool:
    """Whether a FileWriter gave a file this name."""
    return _WRITTEN_NAME.fullmatch(path) is not None


def check_written_path(path: str) -> None:
    """Raise TableError unless a FileWriter can have given a new file this path: relative to the
    table's location, without a step out of it, and with a name of ours."""
    plain = all(part not in ("", ".", "..") for part in path.split("/"))
    if not (plain and has_written_name(path)):
        raise TableError(f"{shown(path)} is no new file of this table: it was not committed.")


class Storage(Protocol):
    """Where a table's files are; it is sent to executors, so it must be picklable."""

    def create(self, path: str) -> Any:
        """A new file below the table's location, as a binary stream."""

    def open(self, path: str) -> Any:
        """A file below the table's location, as a binary stream that can be positioned."""

    def remove(self, path: str) -> None:
        """Remove a file that is no longer needed."""


class DerivedColumn(Protocol):
    """A column that is made of others."""

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Its values for these rows."""


@dataclass(frozen=True)
class SortKey:
    """What the rows of a file are sorted by."""

    by: Partition
    """The value of each row."""
    descending: bool
    nulls_first: bool


def _sort_rows(rows: pa.Table, sort_by: Sequence[SortKey]) -> pa.Table:
    """NaN is greater than every number, and both zeros are the same."""
    if not sort_by:
        return rows
    (batch,) = rows.combine_chunks().to_batches()
    keys: list[tuple[pa.Array, str]] = []
    for key in sort_by:
        values = key.by.of(batch)
        order = "descending" if key.descending else "ascending"
        # Arrow puts NaN beside the nulls, and those of all keys at the same end.
        keys.append((pc.is_null(values), "descending" if key.nulls_first else "ascending"))
        if pa.types.is_floating(values.type):
            keys.append((pc.is_nan(values), order))
        keys.append((values, order))
    names = [str(at) for at in range(len(keys))]
    table = pa.Table.from_arrays([values for values, _ in keys], names)
    orders = [(name, order) for name, (_, order) in zip(names, keys, strict=True)]
    return pa.Table.from_batches([batch.take(pc.sort_indices(table, orders))])


@dataclass(frozen=True)
class Layout:
    """The layout of a table's data files; it is sent to executors."""

    schema: pa.Schema
    """The table's columns, with the metadata that the format adds."""
    partition_by: tuple[Partition, ...] = ()
    checked: tuple[Partition, ...] = ()
    """Partitions into which the driver divides the rows of files that are not divided."""
    keeps_partition_columns: bool = True
    folder: str = ""
    """Folder of data files below the table's location; ends with a slash unless it is empty."""
    derived: Mapping[str, DerivedColumn] = field(default_factory=dict)
    """Columns that rows may lack, and what they are made of."""
    target_bytes: int = 128 * 1024 * 1024
    compression: str = "zstd"
    sort_by: tuple[SortKey, ...] = ()
    """How the rows of a file are sorted. Such a file has one row group."""
    spec_id: int = 0
    """The id of the partition spec `partition_by` in an Iceberg table; 0 in a Delta table."""
    sort_order_id: int = 0
    """The id of the sort order `sort_by` in an Iceberg table; 0 if rows are not sorted."""


@dataclass(frozen=True)
class NewFile:
    """A written file that will be committed."""

    path: str
    """The path relative to the table's location."""
    size: int
    """The size in bytes."""
    rows: int
    partition: tuple[Any, ...]
    """Values of the layout's partitions."""
    partition_by: tuple[str, ...]
    """The columns by which the layout is partitioned."""
    spec_id: int
    sort_order_id: int
    """The layout's spec and order."""
    with_nan: frozenset[str]
    """Columns with NaN, which Parquet's statistics leave out."""
    long_texts: dict[str, tuple[tuple[str, str | None], ...]] = field(repr=False)
    footer: bytes = field(repr=False)
    """Parquet's metadata, with the statistics."""
    table: str = ""
    """The table's name, if a writer has several tables."""

    @property
    def metadata(self) -> pq.FileMetaData:
        """The file's footer."""
        return pq.read_metadata(pa.BufferReader(self.footer))


def check_unchanged(name: object, schema: pa.Schema, file: NewFile) -> None:
    """Raise TableError if the table's columns are no longer those that this file was written for:
    columns may have been added, but none removed, and none changed."""
    for column in file.metadata.schema.to_arrow_schema():
        at = schema.get_field_index(column.name)
        if at < 0 or _stored(schema.field(at).type) != _stored(column.type):
            raise table_changed(name, f"the column {column.name}")


def _stored(kind: pa.DataType) -> pa.DataType:
    return normalized_type(kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)


def table_changed(name: object, part: str) -> TableError:
    """The error for a table that another program has changed."""
    return TableError(
        f"{name}: another program changed {part} while this batch was written. Run it again."
    )


def files_by_table(files: Iterable[NewFile]) -> dict[str, list[NewFile]]:
    """The files of each table."""
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
"""By their names: the class, and how it becomes text and is read again. The first match counts."""


def encode_new_file(file: NewFile) -> NewFile:
    """The same file, with partition values that msgspec encodes."""
    return replace(file, partition=tuple(map(_encode_value, file.partition)))


def decode_new_file(file: NewFile) -> NewFile:
    """The file that `portable` was given. Raises TableError as `check_path_written_here`."""
    check_written_path(file.path)
    return replace(file, partition=tuple(map(_decode_value, file.partition)))


def _encode_value(value: Any) -> Any:
    for name, (kind, to_text, _) in _ENCODED_TYPES.items():
        if isinstance(value, kind):
            return [name, to_text(value)]
    return value


def _decode_value(value: Any) -> Any:
    if isinstance(value, list):
        name, text = value
        return _ENCODED_TYPES[name][2](text)
    return value


def write_files(
    layout: Layout, storage: Storage, name: str, batches: Iterable[pa.RecordBatch]
) -> list[NewFile]:
    """Write the batches into new files; an error leaves none. Raises as `FileWriter.write`."""
    writer = FileWriter(layout, storage, name)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.discard()
        raise


class FileWriter:
    """Writes record batches into new files, sorted by table and partition. Not thread-safe.

    Rows are buffered by file, and a file is opened when its first row group is written: thousands
    of tables or partitions take at most twice the memory of `BUFFERED_BYTES`, and few open files.
    """

    def __init__(self, layout: Layout | None, storage: Storage | None, name: str) -> None:
        """`layout`, `storage`: the only table's; None if there are several (`add_table`)."""
        self._name = f"{name}-{secrets.token_hex(8)}"
        self._tables: dict[str, _TableWriter] = {}
        if layout is not None and storage is not None:
            self.add_table("", layout, storage)
        self._files: dict[tuple[Any, ...], _OpenFile] = {}
        self._done: list[NewFile] = []
        self._count = 0
        self._buffered = 0
        self._held = 0
        """Bytes of the batches whose memory the buffered rows may share."""

    def add_table(self, table: str, layout: Layout, storage: Storage) -> None:
        """Add another table for `write`."""
        self._tables[table] = _TableWriter(layout, storage)

    def layout_of(self, table: str) -> Layout:
        """The layout of a table's files."""
        return self._tables[table].layout

    def write(self, batch: pa.RecordBatch, table: str = "") -> None:
        """Raises ConfigError for a null in a required column."""
        writable = self._tables[table]
        for key, rows in _split_by_partition(
            _fit_to_layout(writable.layout, batch), writable.layout.partition_by
        ):
            file = self._of(table, key)
            self._buffered += file.add(rows.select(writable.file_schema.names))
            if file.has_row_group:
                self._flush((table, *key))
        files = self._files
        while self._buffered > MAX_BUFFERED_BYTES:
            self._flush(max(files, key=lambda file: files[file].buffered))
        self._held += batch.nbytes
        if self._held > MAX_BUFFERED_BYTES:
            for other in files.values():
                other.copy()
            self._held = self._buffered

    def _flush(self, name: tuple[Any, ...]) -> None:
        file = self._files[name]
        self._buffered -= file.buffered
        file.flush()
        if (
            file.is_full
            or sum(open_file.is_open for open_file in self._files.values()) > MAX_OPEN_FILES
        ):
            self._finish(name)

    def close(self) -> list[NewFile]:
        """Finish all files and return them."""
        for name in list(self._files):
            self._finish(name)
        return self._done

    def discard(self) -> None:
        """Remove the written files, as far as possible."""
        for file in self._files.values():
            with suppress(Exception):
                file.abandon()
        for written in self._done:
            with suppress(Exception):
                self._tables[written.table].storage.remove(written.path)

    def _of(self, table: str, key: tuple[Any, ...]) -> _OpenFile:
        name = (table, *key)
        if name not in self._files:
            writable = self._tables[table]
            folder = f"{writable.layout.folder}{partition_path(writable.layout.partition_by, key)}"
            path = f"{folder}{self._name}-{self._count}.parquet"
            self._count += 1
            self._files[name] = _OpenFile(writable, path)
        return self._files[name]

    def _finish(self, name: tuple[Any, ...]) -> None:
        table, *key = name
        file = self._files.pop(name)
        self._buffered -= file.buffered
        self._done.append(file.close(table, tuple(key)))


class _TableWriter:
    """A table for which files are written."""

    def __init__(self, layout: Layout, storage: Storage) -> None:
        self.layout, self.storage = layout, storage
        omitted = [] if layout.keeps_partition_columns else layout.partition_by
        names = [column.column for column in omitted]
        self.file_schema = pa.schema(
            [column for column in layout.schema if column.name not in names]
        )


def _fit_to_layout(layout: Layout, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the table's columns and types; a column that they lack is made, or null."""
    columns = [_fit_column(batch, column_field) for column_field in layout.schema]
    rows = pa.RecordBatch.from_arrays(columns, layout.schema.names) if layout.derived else batch
    for name, generated in layout.derived.items():
        at = layout.schema.get_field_index(name)
        column = generated.of(rows).cast(layout.schema.field(at).type)
        if name in batch.schema.names:
            _check_derived_values(name, columns[at], column)
        columns[at] = column
    for column_field, column in zip(layout.schema, columns, strict=True):
        if not column_field.nullable and column.null_count:
            raise ConfigError(f"The column {column_field.name} of the table must not be null.")
    return pa.RecordBatch.from_arrays(columns, schema=layout.schema)


def _fit_column(batch: pa.RecordBatch, target: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(target.name)
    if index < 0:
        return pa.nulls(batch.num_rows, target.type)
    column = batch.column(index)
    return replace_invalid_utf8(cast_exactly(column, target.type))


def _check_derived_values(name: str, values: pa.Array, expected: pa.Array) -> None:
    """Raises ConfigError for a value that differs from the one that it is made of."""
    differs = pc.fill_null(
        pc.not_equal(values, expected), pc.xor(pc.is_null(values), pc.is_null(expected))
    )
    if pc.any(differs).as_py():
        at = pc.index(differs, True).as_py()
        raise ConfigError(
            f"The column {name} of the table is made of others: it must be {expected[at]}, not "
            f"{values[at]}. Leave it out of the rows."
        )


class _OpenFile:
    """One file, with the rows buffered for its next row group."""

    def __init__(self, writable: _TableWriter, path: str) -> None:
        self.path = path
        self.buffered = 0
        self._place = writable
        self._rows = 0
        self._batches: list[pa.RecordBatch] = []
        self._with_nan: set[str] = set()
        self._long_texts: dict[str, list[tuple[str, str | None]]] = {}
        self._stream: Any = None
        self._writer: Any = None

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    @property
    def is_full(self) -> bool:
        """Whether the file has the size that the table's are to have, or takes no more rows since
        those that it has are sorted."""
        layout = self._place.layout
        return bool(layout.sort_by or self._stream.tell() >= layout.target_bytes)

    @property
    def has_row_group(self) -> bool:
        """Whether the buffered rows are enough for one."""
        return self._rows >= MAX_ROW_GROUP_ROWS or self.buffered >= MAX_ROW_GROUP_BYTES

    def add(self, rows: pa.RecordBatch) -> int:
        """Buffer rows; returns their bytes."""
        self._batches.append(rows)
        self._rows += rows.num_rows
        self.buffered += rows.nbytes
        return int(rows.nbytes)

    def copy(self) -> None:
        """Give the buffered rows memory of their own: one row keeps the whole batch that it was
        cut from."""
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            columns = [pa.concat_arrays(column.chunks) for column in table.columns]
            self._batches = [pa.RecordBatch.from_arrays(columns, schema=table.schema)]

    def flush(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        if self._writer is None:
            self._stream = self._place.storage.create(self.path)
            self._writer = pq.ParquetWriter(
                self._stream,
                self._place.file_schema,
                store_decimal_as_integer=True,
                **_choose_encodings(table, self._place.layout.compression),
            )
        table = _sort_rows(table, self._place.layout.sort_by)
        self._with_nan.update(_columns_with_nan(table))
        for name, ends in bounds_of_long_texts(table):
            self._long_texts.setdefault(name, []).append(ends)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._batches, self._rows, self.buffered = [], 0, 0

    def close(self, table: str, key: tuple[Any, ...]) -> NewFile:
        self.flush()
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        metadata: pq.FileMetaData = self._writer.writer.metadata
        sink = pa.BufferOutputStream()
        metadata.write_metadata_file(sink)
        return NewFile(
            self.path,
            size,
            metadata.num_rows,
            key,
            tuple(partition.column for partition in self._place.layout.partition_by),
            self._place.layout.spec_id,
            self._place.layout.sort_order_id,
            footer=sink.getvalue().to_pybytes(),
            with_nan=frozenset(self._with_nan),
            long_texts={name: tuple(ends) for name, ends in self._long_texts.items()},
            table=table,
        )

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._batches = []
        if self.is_open:
            with suppress(Exception):
                self._writer.close()
            self._stream.close()
            self._place.storage.remove(self.path)


def _choose_encodings(rows: pa.Table, compression: str) -> dict[str, Any]:
    """Options of a Parquet writer whose first rows these are.

    A dictionary of values that hardly repeat, and compression of payloads that are random,
    encrypted or compressed, take most of the time of a file and save nothing.
    """
    if rows.num_rows < 10 * _SAMPLE_ROWS:  # the look takes longer than it saves
        return {"compression": compression}
    step = rows.num_rows // _SAMPLE_ROWS
    # Not from the table: it would copy whole columns, to have each in one piece.
    sample = pa.Table.from_batches(
        [leaf.take(pa.array(range(0, leaf.num_rows, step))) for leaf in rows.to_batches()]
    )
    plain: set[str] = set()
    stored: set[str] = set()
    for field_ in rows.schema:
        column = sample[field_.name]
        if (
            pa.types.is_nested(field_.type)
            or pc.count_distinct(column).as_py() <= _MAX_DISTINCT_RATIO * sample.num_rows
        ):
            continue
        plain.add(field_.name)
        if pa.types.is_binary(field_.type):
            values = b"".join(column.drop_null().to_pylist())
            if len(pa.compress(values, "lz4", asbytes=True)) >= 0.9 * len(values):
                stored.add(field_.name)  # compression saves less than a tenth
    leaves = _leaf_paths(rows.schema)
    return {
        "use_dictionary": [leaf for leaf in leaves if leaf not in plain],
        "compression": {leaf: "none" if leaf in stored else compression for leaf in leaves},
    }


def _leaf_paths(schema: pa.Schema) -> list[str]:
    """The paths of Parquet's columns."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(schema, sink)
    columns = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [columns.column(index).path for index in range(len(columns))]


def _columns_with_nan(rows: pa.Table) -> Iterator[str]:
    for column in rows.schema:
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(rows[column.name])).as_py():
            yield column.name


def _split_by_partition(
    batch: pa.RecordBatch, partition_by: Sequence[Partition]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """(values, rows) for each partition in the batch."""
    if batch.num_rows == 0:
        return
    if not partition_by:
        yield (), batch
        return
    names = [str(at) for at in range(len(partition_by))]
    table = pa.Table.from_arrays([changed.of(batch) for changed in partition_by], names)
    order = pc.sort_indices(table, [(name, "ascending") for name in names])
    rows = batch.take(order)
    changes = [0]
    keys = [changed.combine_chunks() for changed in table.take(order).columns]
    if rows.num_rows > 1:
        differs = None
        for column in keys:
            values, previous = column.slice(1), column.slice(0, len(column) - 1)
            # Null differs from every value, but equals another null.
            changed = pc.fill_null(
                pc.not_equal(values, previous), pc.xor(pc.is_null(values), pc.is_null(previous))
            )
            differs = changed if differs is None else pc.or_(differs, changed)
        changes += [index + 1 for index in pc.indices_nonzero(differs).to_pylist()]
    for start, end in zip(changes, [*changes[1:], rows.num_rows], strict=True):
        named = zip(partition_by, keys, strict=True)
        yield tuple(by.value(column[start]) for by, column in named), rows.slice(start, end - start)
