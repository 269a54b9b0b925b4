"""Writes rows into new Parquet files, divided by table and partition; runs on an executor.

The files are not part of a table until the driver commits them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jetspark.errors import ConfigError
from jetspark.payloads.exact import cast_exactly
from jetspark.tables.file_layout import Layout, Partition, SortKey, partition_path
from jetspark.tables.new_files import NewFile, Storage
from jetspark.tables.schemas import map_inner_fields, values_differ
from jetspark.tables.statistics import bounds_of_long_texts, leaf_columns

MAX_ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Arrow memory of a row group at most, in bytes."""
MAX_ROW_GROUP_ROWS = 1024 * 1024
MAX_BUFFERED_BYTES = 256 * 1024 * 1024
"""Arrow memory of all partitions in one task at most, in bytes."""
_SAMPLE_ROWS = 1000
"""Number of rows of a file's first row group that are looked at to choose its encodings."""
_MAX_DISTINCT_RATIO = 0.99
"""Share of different values in a sample up to which a dictionary is used."""
MAX_OPEN_FILES = 64
"""Files that one task has open at a time at most, however many partitions its rows have."""


def write_files(
    layout: Layout, storage: Storage, name: str, batches: Iterable[pa.RecordBatch]
) -> list[NewFile]:
    """Write record batches into new files of one table, which are returned to be committed; after
    an error no file is left. `name`: the beginning of the files' names. Raises as
    `FileWriter.write`."""
    writer = FileWriter(layout, storage, name)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.discard()
        raise


class FileWriter:
    """Writes record batches into new Parquet files, of which each has rows of one table and one
    partition. The files are part of no table until they are committed. Not thread-safe.

    Rows are buffered by file, and a file is opened when its first row group is written: thousands
    of tables or partitions take at most twice the memory of `MAX_BUFFERED_BYTES`, and few open
    files.
    """

    def __init__(self, layout: Layout | None, storage: Storage | None, name: str) -> None:
        """Create a writer of files for one table, or, if `layout` and `storage` are None, for the
        tables that `add_table` adds. `name`: the beginning of the files' names."""
        self._name = f"{name}-{secrets.token_hex(8)}"
        self._tables: dict[str, _WritableTable] = {}
        if layout is not None and storage is not None:
            self.add_table("", layout, storage)
        self._files: dict[tuple[Any, ...], _OpenFile] = {}
        """Unfinished files by their table and their partition's values."""
        self._finished: list[NewFile] = []
        self._count = 0
        self._buffered_bytes = 0
        self._retained_bytes = 0
        """Bytes of the batches that buffered rows may keep in memory, since they are slices of
        them."""

    def add_table(self, table: str, layout: Layout, storage: Storage) -> None:
        """Let `write` take rows for a further table, which it gets by this name."""
        self._tables[table] = _WritableTable(layout, storage)

    def layout_of(self, table: str) -> Layout:
        """The layout of a table that was added."""
        return self._tables[table].layout

    def write(self, batch: pa.RecordBatch, table: str = "") -> None:
        """Add rows to the files of a table's partitions; they are buffered, and written when there
        are enough. `table`: "" for the only one. Raises ConfigError for a null in a required
        column, and for values of a derived column that differ from what is computed."""
        writable = self._tables[table]
        layout = writable.layout
        fitting = fit_to_layout(layout, batch)
        for values, rows in _split_by_partition(fitting, layout.partition_by):
            key = (table, *values)
            if key not in self._files:
                path = f"{layout.folder}{partition_path(layout.partition_by, values)}"
                path += f"{self._name}-{self._count}.parquet"
                self._count += 1
                self._files[key] = _OpenFile(writable, path)
            self._buffered_bytes += self._files[key].add(rows.select(writable.file_schema.names))
            if self._files[key].has_row_group:
                self._flush(key)
        # Free memory: first by writing the files that take most of it, then by copying the rows
        # that keep whole batches in memory, since they are slices of them.
        while self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._flush(max(self._files, key=lambda key: self._files[key].buffered_bytes))
        self._retained_bytes += batch.nbytes
        if self._retained_bytes > MAX_BUFFERED_BYTES:
            for file in self._files.values():
                file.copy_buffered_rows()
            self._retained_bytes = self._buffered_bytes

    def _flush(self, key: tuple[Any, ...]) -> None:
        """Write a file's buffered rows as a row group; finish the file if it is full, or if too
        many files are open. `key`: the file's table and the values of its partition."""
        file = self._files[key]
        self._buffered_bytes -= file.buffered_bytes
        file.flush()
        if file.is_full or sum(each.is_open for each in self._files.values()) > MAX_OPEN_FILES:
            self._finish(key)

    def _finish(self, key: tuple[Any, ...]) -> None:
        """Close a file, and keep its description for `close`; later rows of its partition go into
        another one. `key`: the file's table and the values of its partition."""
        table, *values = key
        file = self._files.pop(key)
        self._buffered_bytes -= file.buffered_bytes
        self._finished.append(file.close(table, tuple(values)))

    def close(self) -> list[NewFile]:
        """Finish all files, and return the descriptions of all that were written."""
        for key in list(self._files):
            self._finish(key)
        return self._finished

    def discard(self) -> None:
        """Remove the written files, since they will not be committed; what cannot be removed is
        left to a vacuum."""
        for file in self._files.values():
            with suppress(Exception):
                file.abandon()
        for written in self._finished:
            with suppress(Exception):
                self._tables[written.table].storage.remove(written.path)


class _WritableTable:
    """A table that a FileWriter writes files for: its layout, its storage, and the columns that its
    files have, which may lack those that the table is partitioned by."""

    def __init__(self, layout: Layout, storage: Storage) -> None:
        """Work out the columns of the files; Delta leaves out partition columns, which its log
        has."""
        self.layout, self.storage = layout, storage
        omitted = [] if layout.keeps_partition_columns else layout.partition_by
        names = {partition.column for partition in omitted}
        self.file_schema = pa.schema(
            [column for column in layout.schema if column.name not in names]
        )


def fit_to_layout(layout: Layout, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the columns and types of the table. A column that they lack is computed if it
    is derived (from other columns), and null otherwise. Raises ConfigError for a null in a required
    column, and for values of a derived column that differ from what is computed."""
    columns = [_fit_column(batch, field) for field in layout.schema]
    rows = pa.RecordBatch.from_arrays(columns, layout.schema.names) if layout.derived else batch
    for name, derived in layout.derived.items():
        index = layout.schema.get_field_index(name)
        values = derived.of(rows).cast(layout.schema.field(index).type)
        if name in batch.schema.names:  # the rows came with values of their own
            _check_derived_values(name, columns[index], values)
        columns[index] = values
    for field, column in zip(layout.schema, columns, strict=True):
        if not field.nullable and column.null_count:
            raise ConfigError(f"The column {field.name} of the table must not be null.")
    return pa.RecordBatch.from_arrays(columns, schema=layout.schema)


def _fit_column(batch: pa.RecordBatch, target: pa.Field) -> pa.Array:
    """The column of a batch that becomes this column of the table, in its type and in valid UTF-8;
    nulls if the batch lacks it."""
    index = batch.schema.get_field_index(target.name)
    if index < 0:
        return pa.nulls(batch.num_rows, target.type)
    column = batch.column(index)
    return _replace_invalid_utf8(cast_exactly(column, target.type))


def _check_derived_values(name: str, values: pa.Array, expected: pa.Array) -> None:
    """Raise ConfigError if the rows came with values of a derived column that differ from those
    that are computed from other columns. `name`: the column's."""
    differs = values_differ(values, expected)
    if pc.any(differs).as_py():
        at = pc.index(differs, True).as_py()
        raise ConfigError(
            f"The column {name} of the table is made of others: it must be {expected[at]}, not "
            f"{values[at]}. Leave it out of the rows."
        )


class _OpenFile:
    """A file that a FileWriter has not finished, with the rows that are buffered for its next row
    group. It is created in the storage when the first row group is written."""

    def __init__(self, writable: _WritableTable, path: str) -> None:
        """Plan a file of this table; nothing is created before its first row group."""
        self.path = path
        self.buffered_bytes = 0
        self._table = writable
        self._rows = 0
        self._batches: list[pa.RecordBatch] = []
        # What Parquet's statistics lack: columns with NaN, and bounds of long texts.
        self._with_nan: set[str] = set()
        self._long_texts: dict[str, list[tuple[str, str | None]]] = {}
        self._stream: Any = None
        self._writer: Any = None

    @property
    def is_open(self) -> bool:
        """Whether the file has its first row group, and so an open stream."""
        return self._stream is not None

    @property
    def is_full(self) -> bool:
        """Whether the file takes no more rows: it has the target size, or it has its only row group
        since its rows are sorted."""
        layout = self._table.layout
        return bool(layout.sort_by or self._stream.tell() >= layout.target_bytes)

    @property
    def has_row_group(self) -> bool:
        """Whether the buffered rows are enough for a row group."""
        return self._rows >= MAX_ROW_GROUP_ROWS or self.buffered_bytes >= MAX_ROW_GROUP_BYTES

    def add(self, rows: pa.RecordBatch) -> int:
        """Buffer rows; returns their bytes."""
        self._batches.append(rows)
        self._rows += rows.num_rows
        self.buffered_bytes += rows.nbytes
        return int(rows.nbytes)

    def copy_buffered_rows(self) -> None:
        """Give the buffered rows memory of their own: as slices, they keep the whole batches that
        they were cut from in memory."""
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            columns = [pa.concat_arrays(column.chunks) for column in table.columns]
            self._batches = [pa.RecordBatch.from_arrays(columns, schema=table.schema)]

    def flush(self) -> None:
        """Write the buffered rows as a row group; opens the file if it is the first one."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        if self._writer is None:
            self._stream = self._table.storage.create(self.path)
            self._writer = pq.ParquetWriter(
                self._stream,
                self._table.file_schema,
                store_decimal_as_integer=True,
                **_choose_encodings(table, self._table.layout.compression),
            )
        table = _sort_rows(table, self._table.layout.sort_by)
        self._with_nan.update(
            column.name
            for column in table.schema
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(table[column.name])).as_py()
        )
        for name, bounds in bounds_of_long_texts(table):
            self._long_texts.setdefault(name, []).append(bounds)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._batches, self._rows, self.buffered_bytes = [], 0, 0

    def close(self, table: str, partition: tuple[Any, ...]) -> NewFile:
        """Write the buffered rows and the footer, and return the description of the file. `table`:
        the table's name; `partition`: the values of the file's partition."""
        self.flush()
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        metadata: pq.FileMetaData = self._writer.writer.metadata
        footer = pa.BufferOutputStream()
        metadata.write_metadata_file(footer)
        layout = self._table.layout
        return NewFile(
            path=self.path,
            size=size,
            rows=metadata.num_rows,
            partition=partition,
            partition_by=tuple(by.column for by in layout.partition_by),
            spec_id=layout.spec_id,
            sort_order_id=layout.sort_order_id,
            footer=footer.getvalue().to_pybytes(),
            with_nan=frozenset(self._with_nan),
            long_texts={name: tuple(bounds) for name, bounds in self._long_texts.items()},
            table=table,
        )

    def abandon(self) -> None:
        """Remove the unfinished file from the storage, and forget its buffered rows."""
        self._batches = []
        if self.is_open:
            with suppress(Exception):
                self._writer.close()
            self._stream.close()
            self._table.storage.remove(self.path)


# -- rows of a row group --------------------------------------------------------------------------


def _sort_rows(rows: pa.Table, sort_by: Sequence[SortKey]) -> pa.Table:
    """Sort the rows of a file as its table demands, or leave them if it demands nothing: NaN is
    greater than every number, and both zeros are the same."""
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


def _choose_encodings(rows: pa.Table, compression: str) -> dict[str, Any]:
    """Choose options of a Parquet writer (dictionaries and compression of each column) by a sample
    of the file's first rows.

    A dictionary of values that hardly repeat, and compression of payloads that are random,
    encrypted or compressed, take most of the time of a file and save nothing.
    """
    if rows.num_rows < 10 * _SAMPLE_ROWS:  # taking a sample costs more time than it saves
        return {"compression": compression}
    step = rows.num_rows // _SAMPLE_ROWS
    # Not from the table: it would copy whole columns, to have each in one piece.
    sample = pa.Table.from_batches(
        [batch.take(pa.array(range(0, batch.num_rows, step))) for batch in rows.to_batches()]
    )
    without_dictionary: set[str] = set()
    without_compression: set[str] = set()
    for field in rows.schema:
        column = sample[field.name]
        if (
            pa.types.is_nested(field.type)
            or pc.count_distinct(column).as_py() <= _MAX_DISTINCT_RATIO * sample.num_rows
        ):
            continue
        without_dictionary.add(field.name)
        if pa.types.is_binary(field.type):
            values = b"".join(column.drop_null().to_pylist())
            if len(pa.compress(values, "lz4", asbytes=True)) >= 0.9 * len(values):
                without_compression.add(field.name)  # it saves less than a tenth
    paths = _parquet_column_paths(rows.schema)
    return {
        "use_dictionary": [path for path in paths if path not in without_dictionary],
        "compression": {
            path: "none" if path in without_compression else compression for path in paths
        },
    }


def _parquet_column_paths(schema: pa.Schema) -> list[str]:
    """The paths of Parquet's columns, such as `address.street`, in which nested columns end."""
    footer = pa.BufferOutputStream()
    pq.write_metadata(schema, footer)
    return list(leaf_columns(pq.read_metadata(pa.BufferReader(footer.getvalue()))))


# -- rows of a batch ------------------------------------------------------------------------------


def _split_by_partition(
    batch: pa.RecordBatch, partition_by: Sequence[Partition]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Divide a batch by partition: yields (values of the partition, its rows) for each."""
    if batch.num_rows == 0:
        return
    if not partition_by:
        yield (), batch
        return
    names = [str(index) for index in range(len(partition_by))]
    keys = pa.Table.from_arrays([by.of(batch) for by in partition_by], names)
    order = pc.sort_indices(keys, [(name, "ascending") for name in names])
    rows = batch.take(order)
    columns = [column.combine_chunks() for column in keys.take(order).columns]
    starts_partition = reduce(
        pc.or_, (values_differ(column[1:], column[:-1]) for column in columns)
    )
    starts = [0, *(index + 1 for index in pc.indices_nonzero(starts_partition).to_pylist())]
    for start, end in pairwise([*starts, rows.num_rows]):
        values = tuple(
            by.value(column[start]) for by, column in zip(partition_by, columns, strict=True)
        )
        yield values, rows.slice(start, end - start)


def _replace_invalid_utf8(column: pa.Array) -> pa.Array:
    """The column, with U+FFFD in place of bytes in its texts that are not UTF-8: Spark lets such
    texts pass, but those of Parquet have to be UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.cast(_binary_type(column.type))
        return pa.array(
            [_decode_text(value, column.type) for value in raw.to_pylist()], column.type
        )
    return column


def _binary_type(kind: pa.DataType) -> pa.DataType:
    """The type with BINARY in place of STRING, at any depth: so texts that are not valid UTF-8 can
    be read as bytes."""
    if pa.types.is_string(kind):
        return pa.binary()
    return map_inner_fields(kind, lambda inner: inner.with_type(_binary_type(inner.type)))


def _decode_text(value: Any, kind: pa.DataType) -> Any:
    """Decode a value whose texts, at any depth, were read as bytes, with U+FFFD for what is not
    UTF-8. `kind`: the type with the texts."""
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
