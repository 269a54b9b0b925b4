"""Compares the columns of rows with those of a table: names, types and values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError

WIDENINGS = frozenset({("int32", "int64"), ("float", "double")})
"""Types of columns, and wider ones that they may be given: what Iceberg allows and PyIceberg does.
(A date does not become a timestamp there.)"""


@dataclass(frozen=True)
class SchemaDifferences:
    """Differences between the columns of rows and those of the table that is to have the rows."""

    added: Sequence[pa.Field]
    """Columns that the table lacks."""
    changed: Sequence[tuple[str, str, str]]
    """(name, type in the table, type in the rows)."""
    required: Sequence[str]
    """Columns that the table requires and the rows lack."""


def compare_schemas(table: pa.Schema, rows: pa.Schema) -> SchemaDifferences:
    """Compare the columns of rows with those of the table that is to have them. A nullable column
    that the rows lack is no difference, since it is filled with nulls."""
    table_types = {column.name: column.type for column in table}
    return SchemaDifferences(
        added=[column for column in rows if column.name not in table_types],
        changed=[
            (name, str(normalized_type(table_types[name])), str(normalized_type(kind)))
            for name, kind in zip(rows.names, rows.types, strict=True)
            if name in table_types and not accepts_type(table_types[name], kind)
        ],
        required=[
            column.name for column in table if not column.nullable and column.name not in rows.names
        ],
    )


def accepts_type(table: pa.DataType, rows: pa.DataType) -> bool:
    """Whether a table's column can hold values of the rows' type: the types are the same, or the
    rows have TINYINT or SMALLINT where the table has INT, since Iceberg lacks those."""
    row_type = normalized_type(rows)
    return normalized_type(table) in (row_type, with_32_bit_integers(row_type))


def with_32_bit_integers(kind: pa.DataType) -> pa.DataType:
    """The type with INT in place of TINYINT and SMALLINT, which Iceberg lacks, at any depth."""
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    return map_inner_fields(kind, lambda inner: inner.with_type(with_32_bit_integers(inner.type)))


def check_names(schema: pa.Schema) -> None:
    """Raise ConfigError for columns that differ only in case, which readers cannot tell apart."""
    folded: dict[str, str] = {}
    for name in schema.names:
        earlier = folded.setdefault(name.casefold(), name)
        if earlier != name or schema.names.count(name) > 1:
            raise ConfigError(
                f"The columns {earlier!r} and {name!r} have the same name for most readers: rename "
                "one of them."
            )


def as_nullable(field: pa.Field) -> pa.Field:
    """The column as new tables have it: nullable at every depth, but for the keys of maps, which
    cannot be."""
    kind = field.type
    if pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, as_nullable(kind.item_field))
    else:
        kind = map_inner_fields(kind, as_nullable)
    return pa.field(field.name, kind, nullable=True)


def with_32_bit_offsets(field: pa.Field) -> pa.Field:
    """The column with 32-bit offsets in texts, binary values and lists, as Spark's rows have, so
    that nothing needs a cast. Its metadata, such as field ids, stays."""
    if pa.types.is_large_string(field.type):
        return field.with_type(pa.string())
    if pa.types.is_large_binary(field.type):
        return field.with_type(pa.binary())
    return field.with_type(map_inner_fields(field.type, with_32_bit_offsets))


def is_list(kind: pa.DataType) -> bool:
    """Whether values of this type are lists, with small or large offsets."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def map_inner_fields(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Apply a function to the fields directly in a nested type (of a struct, a map or a list), and
    return the changed type, with 32-bit offsets; other types are returned unchanged."""
    if pa.types.is_struct(kind):
        return pa.struct([change(inner) for inner in kind])
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_field), change(kind.item_field))
    if is_list(kind):
        return pa.list_(change(kind.value_field))
    return kind


def normalized_type(kind: pa.DataType) -> pa.DataType:
    """The type without details that make no difference to values, so that types can be compared:
    width of offsets, names of elements, field ids, unit and zone of timestamps."""
    if pa.types.is_struct(kind):
        return pa.struct([(inner.name, normalized_type(inner.type)) for inner in kind])
    if pa.types.is_map(kind):
        return pa.map_(normalized_type(kind.key_type), normalized_type(kind.item_type))
    if is_list(kind):
        return pa.list_(normalized_type(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    return kind


def values_differ(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare two arrays value by value: a boolean mask, without nulls, of the values that differ.
    Two nulls are equal, but NaN differs from NaN."""
    either_null = pc.xor(pc.is_null(left), pc.is_null(right))
    return pc.fill_null(pc.not_equal(left, right), either_null)
