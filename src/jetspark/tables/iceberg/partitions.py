"""Partitions and sort orders of Iceberg tables, as files are divided and sorted by them.

A transform is PyIceberg's own, applied to each different value once: what readers compute to leave
files out is what is recorded here. Before that Arrow cuts times to hours and texts to the width, so
that there are few different values. A hash has no such short cut: of values that are all different
each one takes some microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import transforms
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.types import IcebergType

from jetspark.errors import ConfigError
from jetspark.tables.file_layout import Partition, SortKey, year_out_of_range
from jetspark.tables.partitions import PartitionBy

_EXACT = Context(prec=80)
_USE_ICEBERG_CONNECTOR = "write it with Iceberg's own connector for Spark."


@dataclass(frozen=True)
class TransformedPartition(Partition):
    """Partition of an Iceberg table by a transform of a column, such as its day or its bucket."""

    transform: transforms.Transform[Any, Any]
    source: IcebergType
    """The column's type."""

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """The partition's value of each row: PyIceberg's transform, applied to each different value
        of the column once. Raises ConfigError for a time outside the years 1 to 9999."""
        column = rows.column(self.column)
        distinct = self._reduce_values(column).dictionary_encode()
        transform = self.transform.transform(self.source)
        try:
            values = [transform(value) for value in distinct.dictionary.to_pylist()]
        except (OverflowError, ValueError):
            raise year_out_of_range(self.column) from None
        # The results of all transforms but `truncate` are integers.
        kind = column.type if self._truncate is not None else pa.int32()
        return pa.array(values, kind).take(distinct.indices)

    @property
    def _truncate(self) -> transforms.TruncateTransform[Any] | None:
        """The transform, if it is `truncate`, which cuts texts and rounds down numbers; otherwise
        None."""
        if isinstance(self.transform, transforms.TruncateTransform):
            return self.transform
        return None

    def may_reject(self, column: pa.Array) -> bool:
        """Whether some value of the column may be unfit for the transform, by a quick look: numbers
        near the smallest of their type cannot be rounded down."""
        kind = column.type
        if self._truncate is not None and pa.types.is_integer(kind):
            smallest = pc.min(column).as_py()
            return smallest is not None and smallest - self._truncate.width < _min_value(kind)
        if self._truncate is not None and pa.types.is_decimal(kind):
            return True
        return super().may_reject(column)

    def rejection_reason(self, value: pa.Scalar) -> str | None:
        """Why no row may have this value, as the end of a sentence: it cannot be rounded down in
        its type, or is too long for a folder's name. None if rows may have it."""
        if self._truncate is None or not value.is_valid:
            return None
        kind = value.type
        result: Any = self.transform.transform(self.source)(value.as_py())
        if (pa.types.is_integer(kind) and result < _min_value(kind)) or (
            pa.types.is_decimal(kind)
            and abs(result.scaleb(kind.scale, _EXACT)) >= 10**kind.precision
        ):
            return f"has {value}, which cannot be rounded down in its type"
        # Only a truncated text or binary value can be too long.
        if not isinstance(result, (str, bytes)):
            return None
        # The length of the folder's name counts.
        return Partition(self.name, self.column).rejection_reason(pa.scalar(self.text(result)))

    def _reduce_values(self, column: pa.Array) -> pa.Array:
        """Replace the values by others for which the transform has the same results, but of which
        fewer are distinct: times cut to hours, texts to the width. Times become integers, since
        Python does not have all times."""
        kind = column.type
        if isinstance(self.transform, transforms.TimeTransform) and pa.types.is_timestamp(kind):
            column = pc.floor_temporal(column, unit="hour")
        elif self._truncate is not None and pa.types.is_string(kind):
            return pc.utf8_slice_codeunits(column, 0, self._truncate.width)
        if pa.types.is_temporal(kind):
            return column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        return column

    def text(self, value: Any) -> str | None:
        """A value of the partition in a folder's name, as Iceberg writes it; None for null."""
        if value is None:
            return None
        try:
            kind = self.transform.result_type(self.source)
            return str(self.transform.to_human_string(kind, value))
        except (OverflowError, ValueError):
            raise year_out_of_range(self.column) from None


def _min_value(kind: pa.DataType) -> int:
    """The smallest value of a type of integers."""
    return -(1 << (int(kind.bit_width) - 1))


def partitions_of(name: object, metadata: TableMetadata) -> tuple[Partition, ...]:
    """Partition fields of an Iceberg table's current spec, by which new data files are divided.
    `name`: the table's, for the error. Raises ConfigError for transforms that cannot be computed
    here."""
    schema = metadata.schema()
    return tuple(
        _partition(f"{name} is partitioned by", partition_field, partition_field.name, schema)
        for partition_field in metadata.spec().fields
    )


def sort_keys_of(name: object, metadata: TableMetadata) -> tuple[SortKey, ...]:
    """The sort order that an Iceberg table demands of the rows in new data files; () if none.
    `name`: the table's, for the error. Raises ConfigError as `partitions_of`."""
    schema = metadata.schema()
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    return tuple(
        SortKey(
            _partition(f"{name} is sorted by", sort_field, "", schema),
            descending=sort_field.direction is SortDirection.DESC,
            nulls_first=sort_field.null_order is NullOrder.NULLS_FIRST,
        )
        for sort_field in (order.fields if order is not None else ())
    )


def _partition(
    subject: str, field: PartitionField | SortField, name: str, schema: Schema
) -> Partition:
    """How the values of a partition field, or sort field, of an Iceberg table are computed.
    `subject`: the beginning of the error's sentence; `name`: the partition's name in folders.
    Raises ConfigError for a part of a column, and for an unknown transform."""
    column = schema.find_column_name(field.source_id)
    if column is None or column not in {each.name for each in schema.fields}:
        raise ConfigError(
            f"{subject} {column or 'a column that is gone'}, a part of a column, which "
            f"is not supported here: {_USE_ICEBERG_CONNECTOR}"
        )
    transform = field.transform
    if isinstance(transform, transforms.IdentityTransform):
        return Partition(name, column)
    width = getattr(transform, "num_buckets", getattr(transform, "width", 1))
    unknown = isinstance(transform, (transforms.UnknownTransform, transforms.VoidTransform))
    if unknown or width < 1:
        raise ConfigError(
            f"{subject} {transform} of {column}, which is not supported here: "
            f"{_USE_ICEBERG_CONNECTOR}"
        )
    return TransformedPartition(
        name, column, transform, source=schema.find_field(field.source_id).field_type
    )


def partition_texts(metadata: TableMetadata) -> tuple[str, ...]:
    """The table's partition fields as users write them (`PartitionBy`): `bucket(16, id)`."""
    schema = metadata.schema()
    return tuple(
        _partition_text(
            schema.find_column_name(partition_field.source_id) or "", partition_field.transform
        )
        for partition_field in metadata.spec().fields
    )


def _partition_text(column: str, transform: transforms.Transform[Any, Any]) -> str:
    """A transform of a column as users write it (`PartitionBy`), such as `bucket(16, id)`."""
    match transform:
        case transforms.IdentityTransform():
            return column
        case transforms.BucketTransform():
            return str(PartitionBy(column, "bucket", width=transform.num_buckets))
        case transforms.TruncateTransform():
            return str(PartitionBy(column, "truncate", width=transform.width))
    return str(PartitionBy(column, str(transform)))


def add_partitions(spec: UpdateSpec, partition_by: Iterable[PartitionBy]) -> None:
    """Add partition fields to the spec of a new Iceberg table, named such as `id_bucket`. Raises
    ValueError for two that Iceberg does not allow together."""
    for partition in partition_by:
        width = f"[{partition.width}]" if partition.width else ""
        transform = transforms.parse_transform(f"{partition.transform or 'identity'}{width}")
        suffix = f"_{partition.transform}" if partition.transform else ""
        spec.add_field(partition.column, transform, _avro_name(f"{partition.column}{suffix}"))


def _avro_name(column: str) -> str:
    """A partition field's name with `_x` and the code in place of each character that is not ASCII.
    It becomes a name in Avro, and DuckDB aborts at others; PyIceberg itself replaces only what is
    no letter in Unicode."""
    return "".join(
        character if character.isascii() else f"_x{ord(character):X}" for character in column
    )
