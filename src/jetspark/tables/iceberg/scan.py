"""Reads the data files of Iceberg tables, with every null and every value as it was written.

PyIceberg's own scan builds lists and maps anew when structs are in them, and loses their nulls: a
rewritten file would have other rows than the one that it replaces. Columns are found by their field
ids (specification, "Column Projection"), and types that were promoted are cast.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyiceberg.expressions as ex
import pyiceberg.io.pyarrow as arrow_io
from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from jetspark.payloads.exact import cast_exactly
from jetspark.tables.iceberg.storage import confined_files
from jetspark.tables.inside import check_files
from jetspark.tables.schemas import with_32_bit_offsets
from jetspark.tables.table import ScanTask

if TYPE_CHECKING:
    from jetspark.tables.conditions import Condition

_FORMATS = {FileFormat.PARQUET: ds.ParquetFileFormat, FileFormat.ORC: ds.OrcFileFormat}


def arrow_schema(columns: Schema) -> pa.Schema:
    """The Arrow columns of an Iceberg schema, with field ids, and with 32-bit offsets, as the rows
    to write have."""
    return pa.schema(
        [
            with_32_bit_offsets(column)
            for column in arrow_io.schema_to_pyarrow(columns, include_field_ids=True)
        ]
    )


def read_table(
    metadata: TableMetadata, io: FileIO, columns: Schema, task: FileScanTask
) -> pa.Table:
    """Read the rows of one data file of an Iceberg table, without deleted ones, into memory.
    `columns`: the ones to read; `task`: names the file, and those with its deleted rows."""
    return pa.Table.from_batches(
        list(read_files(metadata, io, columns, [task])), arrow_schema(columns)
    )


def read_files(
    metadata: TableMetadata, io: FileIO, columns: Schema, tasks: Sequence[FileScanTask]
) -> Iterator[pa.RecordBatch]:
    """Read the rows of data files of an Iceberg table, without deleted ones, in the order of the
    files. `columns`: the ones to read; `tasks`: name the files, and those with deleted rows."""
    deleted = _deleted_positions(io, tasks)
    for task in tasks:
        yield from _read_file(metadata, io, columns, task, deleted.get(task.file.file_path))


def _deleted_positions(io: FileIO, tasks: Sequence[FileScanTask]) -> dict[str, pa.ChunkedArray]:
    """Read which rows are deleted from data files: positions, from 0, by the data file's path. They
    are in deletion vectors, or in files of their own (specification, "Position Delete Files")."""
    positions: dict[str, list[pa.Array]] = defaultdict(list)
    files = {file.file_path: file.file_format for task in tasks for file in task.delete_files}
    for path, file_format in files.items():
        with io.new_input(path).open() as stream:
            if file_format is FileFormat.PUFFIN:
                for vector in deletion_vectors_from_puffin_file(PuffinFile(stream.read())):
                    positions[vector.referenced_data_file].extend(vector.to_vector().chunks)
                continue
            fragment = _FORMATS[file_format]().make_fragment(stream)
            rows = fragment.to_table(columns=["file_path", "pos"])
        for data_file in pc.unique(rows["file_path"]):
            of_file = rows.filter(pc.equal(rows["file_path"], data_file))
            positions[data_file.as_py()].extend(of_file["pos"].chunks)
    return {
        path: pa.chunked_array([part.cast(pa.int64()) for part in parts], pa.int64())
        for path, parts in positions.items()
    }


def _read_file(
    metadata: TableMetadata,
    io: FileIO,
    columns: Schema,
    task: FileScanTask,
    deleted: pa.ChunkedArray | None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of one data file, but for those at the deleted positions, with these columns of
    the table, which may have been renamed, added or widened since the file was written."""
    schema = arrow_schema(columns)
    with io.new_input(task.file.file_path).open() as stream:
        fragment = _FORMATS[task.file.file_format]().make_fragment(stream)
        written = arrow_io.pyarrow_to_schema(
            fragment.physical_schema,
            metadata.name_mapping(),
            downcast_ns_timestamp_to_us=metadata.format_version <= 2,
            format_version=metadata.format_version,
        )
        constants = _partition_constants(metadata, task, written.field_ids)
        # Only the ids of columns stay the same when they are renamed.
        ids = {column.field_id for column in columns.fields}
        read = [column for column in written.fields if column.field_id in ids]
        scanner = ds.Scanner.from_fragment(
            fragment, schema=fragment.physical_schema, columns=[column.name for column in read]
        )
        start = 0
        for batch in scanner.to_batches():
            rows = batch
            if deleted is not None:
                # Deletions name rows by their position in the file, from 0.
                positions = pa.array(range(start, start + batch.num_rows), pa.int64())
                rows = batch.filter(pc.invert(pc.is_in(positions, value_set=deleted)))
            start += batch.num_rows
            if rows.num_rows:
                arrays = _convert_fields(
                    rows.columns, rows.num_rows, read, columns.fields, schema, constants
                )
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _partition_constants(
    metadata: TableMetadata, task: FileScanTask, written: Container[int]
) -> dict[int, Any]:
    """Values of columns that a data file leaves out, since all of its rows have the same value, by
    field id: they are in the entry of the file, as its partition. `written`: the ids of the columns
    that the file has."""
    return {
        partition_field.source_id: task.file.partition[index]
        for index, partition_field in enumerate(metadata.specs()[task.file.spec_id].fields)
        if isinstance(partition_field.transform, IdentityTransform)
        and partition_field.source_id not in written
    }


def _convert_fields(
    arrays: Sequence[pa.Array],
    row_count: int,
    written: Sequence[NestedField],
    targets: Sequence[NestedField],
    target_schema: pa.Schema | pa.StructType,
    constants: Mapping[int, Any],
) -> list[pa.Array]:
    """Convert columns, or fields of a struct, from those that a file has to those that the table
    has, which correspond by their ids. A field that was not written has its constant, its default,
    or is null. `arrays`: of the `written` fields; `target_schema`: Arrow types of the `targets`;
    `constants`: values by field id."""
    positions = {field.field_id: index for index, field in enumerate(written)}
    converted = []
    for target, arrow_field in zip(targets, target_schema, strict=True):
        kind = arrow_field.type
        if (index := positions.get(target.field_id)) is not None:
            source_type = written[index].field_type
            array = _convert(arrays[index], source_type, target.field_type, kind, constants)
        elif (value := constants.get(target.field_id, target.initial_default)) is not None:
            array = pa.repeat(pa.scalar(value, kind), row_count)
        else:
            array = pa.nulls(row_count, kind)
        converted.append(array)
    return converted


def _convert(
    array: pa.Array,
    written: IcebergType,
    target: IcebergType,
    kind: pa.DataType,
    constants: Mapping[int, Any],
) -> pa.Array:
    """Convert an array from the type that a file has to that of the table, at every depth; it stays
    null where it was null. `kind`: the target type in Arrow; `constants`: values by field id."""
    if isinstance(target, StructType) and isinstance(written, StructType):
        fields = [array.field(index) for index in range(len(written.fields))]
        fields = _convert_fields(fields, len(array), written.fields, target.fields, kind, constants)
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if isinstance(target, ListType) and isinstance(written, ListType):
        offsets, (elements,) = _flatten(array, array.values)
        elements = _convert(
            elements, written.element_type, target.element_type, kind.value_type, constants
        )
        return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=array.is_null())
    if isinstance(target, MapType) and isinstance(written, MapType):
        offsets, (keys, items) = _flatten(array, array.keys, array.items)
        keys = _convert(keys, written.key_type, target.key_type, kind.key_type, constants)
        items = _convert(items, written.value_type, target.value_type, kind.item_type, constants)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=array.is_null())
    return cast_exactly(array, kind)


def _flatten(array: pa.Array, *inner: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """Take apart an array of lists or maps, which may be a slice of a longer one: returns (offsets
    from 0, the values between them). `inner`: the arrays with the values of the longer one."""
    offsets = array.offsets.cast(pa.int32())
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, first), [values.slice(first, last - first) for values in inner]


_COMPARISONS: dict[str, Any] = {
    "=": ex.EqualTo, "!=": ex.NotEqualTo, "<": ex.LessThan, "<=": ex.LessThanOrEqual,
    ">": ex.GreaterThan, ">=": ex.GreaterThanOrEqual,
}  # fmt: skip


def to_iceberg(condition: Condition) -> ex.BooleanExpression:
    """The condition, by which files are skipped, as an expression for a scan of PyIceberg."""
    from jetspark.tables.conditions import And, Comparison, IsNull, Or

    match condition:
        case Comparison():
            expression: ex.BooleanExpression = _COMPARISONS[condition.operator](
                ex.Reference(condition.column), condition.value
            )
            # NaN is greater than every number in Spark, but a file's maximum leaves it out.
            if pa.types.is_floating(condition.type) and condition.operator in (">", ">=", "!="):
                return ex.Or(expression, ex.IsNaN(term=ex.Reference(condition.column)))
            return expression
        case IsNull():
            column = ex.Reference(condition.column)
            return ex.NotNull(term=column) if condition.negated else ex.IsNull(term=column)
        case And() | Or():
            first, *others = map(to_iceberg, condition.operands)
            combine = ex.And if isinstance(condition, And) else ex.Or
            # Built from all operands at once, the tree is not deep; its readers are recursive.
            return combine(first, *others) if others else first


@dataclass(frozen=True)
class IcebergScanTask(ScanTask):
    """A part of a scan that one task reads: files of one version of an Iceberg table, and the
    columns to read from them."""

    tasks: Sequence[FileScanTask]
    metadata: TableMetadata
    columns: Schema
    properties: Mapping[str, str] = field(repr=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        io = confined_files(self.properties, self.metadata.location)
        return read_files(self.metadata, io, self.columns, self.tasks)


def plan_files(scan: DataScan, condition: ex.BooleanExpression | None = None) -> list[FileScanTask]:
    """List the table's files that may have a row which meets the condition, as tasks that each read
    all rows of a file. Raises ConfigError for files that are not below the table's location."""
    condition = ex.AlwaysTrue() if condition is None else condition
    try:
        tasks = list(scan.filter(condition).plan_files())
    except TypeError:  # PyIceberg 0.12 compares a null partition value by < and >
        tasks = list(scan.plan_files())
    files = [file for task in tasks for file in (task.file, *task.delete_files)]
    check_files(scan.table_metadata.location, (file.file_path for file in files))
    # PyIceberg's own tasks would filter the rows of the files by the condition.
    return [FileScanTask(task.file, task.delete_files, ex.AlwaysTrue()) for task in tasks]
