"""Compares the columns of rows with those of a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from jetspark.errors import ConfigError

WIDER = frozenset({("int32", "int64"), ("float", "double")})
"""Types of columns, and wider ones that they may be given: what Iceberg allows and PyIceberg does.
(A date does not become a timestamp there.)"""


@dataclass(frozen=True)
class Differences:
    """How the columns of rows differ from those of a table."""

    added: Sequence[pa.Field]
    """Columns that the table lacks."""
    changed: Sequence[tuple[str, str, str]]
    """(name, type in the table, type in the rows)."""
    required: Sequence[str]
    """Columns that the table requires and the rows lack."""


def differences(table: pa.Schema, rows: pa.Schema) -> Differences:
    """Compare rows with a table; a nullable column that the rows lack is filled with nulls."""
    there = {one.name: one for one in table}
    here = set(rows.names)
    return Differences(
        added=[one for one in rows if one.name not in there],
        changed=[
            (one.name, str(plain(there[one.name].type)), str(plain(one.type)))
            for one in rows
            if one.name in there and not takes(there[one.name].type, one.type)
        ],
        required=[one.name for one in table if not one.nullable and one.name not in here],
    )


def takes(table: pa.DataType, rows: pa.DataType) -> bool:
    """Whether a column of one type takes values of another: of the same, or of smaller integers at
    any depth, which Iceberg does not have."""
    there, here = plain(table), plain(rows)
    return bool(there in (here, with_wide_integers(here)))


def with_wide_integers(kind: pa.DataType) -> pa.DataType:
    """The type with INT in place of TINYINT and SMALLINT, at any depth."""
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    return with_inner(kind, lambda one: one.with_type(with_wide_integers(one.type)))


def check_names(schema: pa.Schema) -> None:
    """Raise ConfigError for columns that differ only in case, which readers cannot tell apart."""
    folded: dict[str, str] = {}
    for name in schema.names:
        other = folded.setdefault(name.casefold(), name)
        if other != name or schema.names.count(name) > 1:
            raise ConfigError(
                f"The columns {other!r} and {name!r} have the same name for most readers: rename "
                "one of them."
            )


def nullable(field: pa.Field) -> pa.Field:
    """The same column, nullable at every depth, but for the keys of maps."""
    kind = field.type
    if pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, nullable(kind.item_field))
    else:
        kind = with_inner(kind, nullable)
    return pa.field(field.name, kind, nullable=True)


def small(field: pa.Field) -> pa.Field:
    """The column with its field ids and 32-bit offsets, like Spark's, so that nothing is cast."""
    if pa.types.is_large_string(field.type):
        return field.with_type(pa.string())
    if pa.types.is_large_binary(field.type):
        return field.with_type(pa.binary())
    return field.with_type(with_inner(field.type, small))


def is_list(kind: pa.DataType) -> bool:
    """Whether values of this type are lists, with small or large offsets."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def with_inner(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """A type with other fields in it, if it has any; its lists have 32-bit offsets."""
    if pa.types.is_struct(kind):
        return pa.struct([change(one) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_field), change(kind.item_field))
    if is_list(kind):
        return pa.list_(change(kind.value_field))
    return kind


def plain(kind: pa.DataType) -> pa.DataType:
    """The type without irrelevant details: width of offsets, names of elements, field ids."""
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, plain(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if is_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    return kind
