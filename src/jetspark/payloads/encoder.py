"""Columns as payloads: what the encoders of all formats share.

The C kernel writes something for every value, also for one that does not fit, such as a zero for a
null in a list. So all values are checked before, and one that does not fit stops the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError, safe_repr
from jetspark.payloads.ddl import spark_type_name
from jetspark.payloads.exact import cast_exactly

if TYPE_CHECKING:
    from jetspark.wire.kernel import ColumnTree, Memory

Pairs: TypeAlias = Sequence[tuple[str, str]]
"""Headers."""


class Encoder(Protocol):
    """Encodes rows in one schema."""

    fields: pa.Schema | None
    """The fields that rows may have; None: any."""

    def encode_rows(self, rows: pa.RecordBatch) -> list[bytes]:
        """Return a payload for each row; the columns have the types of the fields. Raises
        ConfigError, which names the field, and Undecodable."""


def check_names(names: Iterable[str], fields: Sequence[str], path: str = "") -> None:
    """Raise ConfigError for a name that is not among the fields of a schema. `path`: of the struct
    that has the names, with a point at its end; "": they are columns."""
    for name in names:
        if name not in fields:
            raise ConfigError(
                f"Field {path}{name} is not in the schema, which has {', '.join(fields)}: drop it."
            )


def fit_column(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Cast a column to the type of its field, without changing a value.

    Fields of structs are matched by name, and null if missing. Raises ConfigError for a value that
    the type does not have, and for another family of types: a text is not parsed, a number not
    printed. `name`: the field's, for errors.
    """
    if values.type == kind or pa.types.is_null(values.type):
        return values.cast(kind)
    # A DOUBLE is no FLOAT, even if this value would fit.
    is_narrower = pa.types.is_floating(kind) and kind.bit_width < values.type.bit_width
    if is_narrower or _type_family(values.type) != _type_family(kind):
        types = f"{spark_type_name(values.type)}, and the schema has {spark_type_name(kind)}"
        raise ConfigError(f"Field {name} is {types}: cast it.")
    if pa.types.is_struct(kind):
        check_names(values.type.names, kind.names, f"{name}.")
        columns = dict(zip(values.type.names, values.flatten(), strict=True))
        missing = pa.nulls(len(values))
        children = [
            fit_column(columns.get(field.name, missing), field.type, f"{name}.{field.name}")
            for field in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())
    if not pa.types.is_nested(kind):
        return cast(values, kind, name)
    offsets, items = offsets_and_items(values)
    if pa.types.is_list(kind):
        items = fit_column(items, kind.value_type, f"{name}.element")
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=values.is_null())
    keys, items = items.flatten()
    keys = cast(keys, kind.key_type, name)
    items = fit_column(items, kind.item_type, f"{name}.value")
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=values.is_null())


def _type_family(kind: pa.DataType) -> object:
    """Return what a type and each wider one have in common: "integer", or a type's id and whether
    it has a time zone."""
    for family in ("integer", "floating", "string", "large_string", "binary", "large_binary"):
        if getattr(pa.types, f"is_{family}")(kind):
            return family.removeprefix("large_")
    return kind.id, getattr(kind, "tz", None) is None


def cast(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Cast values that are not nested, without changing any. Raises ConfigError, which names the
    first value that does not fit. `name`: the field's."""
    try:
        return cast_exactly(values, kind)
    except pa.ArrowInvalid:
        for at in range(len(values) if len(values) > 1 else 0):  # the first bad one raises
            cast(values.slice(at, 1), kind, name)
        raise misfit_error(name, values[0].as_py(), spark_type_name(kind)) from None


def misfit_error(name: str, value: Any, expected: str) -> ConfigError:
    """Return the error for a value that does not fit its field. `name`: the field's; `expected`: a
    type, or in some words what the value has to be."""
    article = "" if " " in expected else "an " if expected[0] in "aeiou" else "a "
    subject = f"Field {name}" if name else "The value"
    return ConfigError(f"{subject}: {safe_repr(value)} is not {article}{expected}.")


def offsets_and_items(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return where each list begins (and the last one ends), and the items of all lists.

    A map is a list of its entries. Unlike Arrow's own offsets, these skip what is in null lists.
    """
    if pa.types.is_map(values.type):
        entry = pa.struct([values.type.key_field, values.type.item_field])
        values = values.cast(pa.list_(pa.field("entries", entry, nullable=False)))
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(values), 0))
    return pa.concat_arrays([pa.array([0], ends.type), ends]), values.flatten()


def check_no_nulls(values: pa.Array, name: str, expected: str) -> None:
    """Raise ConfigError if a column has a null. `name`: the field's; `expected`: what the schema
    has instead of nulls."""
    if values.null_count:
        raise ConfigError(f"Field {name} is null, and the schema has {expected}.")


def symbol_indexes(values: pa.Array, symbols: Sequence[str], name: str) -> pa.Array:
    """Return for each value its index in the symbols of an enum, null for null. Raises ConfigError
    for a value that is no symbol. `name`: the field's."""
    indexes = pc.index_in(values, pa.array(symbols, pa.string()))
    if indexes.null_count > values.null_count:
        unknown = values.filter(pc.and_(values.is_valid(), indexes.is_null()))[0]
        raise misfit_error(name, unknown.as_py(), f"one of {', '.join(symbols)}")
    return indexes


def scatter(mask: pa.Array, values: pa.Array) -> pa.Array:
    """Return values spread over more rows: one after the other in the rows where `mask` is true,
    and null in the others."""
    positions = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return values.take(pc.if_else(mask, positions, None))


# -- columns for the C kernel --------------------------------------------------------------------


def column_tree(
    kind: int,
    first: pa.Buffer | None = None,
    second: pa.Buffer | None = None,
    begin: int = 0,
    *,
    valid: pa.Buffer | None = None,
    flag: bool = False,
    number: int = 0,
    children: Sequence[ColumnTree] = (),
) -> ColumnTree:
    """Return a column, with the columns in it, in the form that the C kernel encodes; see
    `ColumnTree`. `kind`, `flag` and `number` have the meaning that the format gives them."""
    return kind, flag, number, begin, valid, first, second, tuple(children)


def leaf_tree(kind: int, values: pa.Array, *, flag: bool = False, number: int = 0) -> ColumnTree:
    """Return a column that is not nested in the form that the C kernel encodes."""
    valid, first, *more = values.buffers()
    second = more[0] if more else None
    return column_tree(kind, first, second, values.offset, valid=valid, flag=flag, number=number)


def write_records(
    kernel: Callable[[int, ColumnTree], tuple[Memory, Memory]], rows: int, root: ColumnTree
) -> list[bytes]:
    """Return the payload of each row. `kernel`: a function of the C kernel, which encodes them;
    `rows`: how many there are; `root`: their columns."""
    data, ends = kernel(rows, root)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    payloads: list[bytes] = pa.Array.from_buffers(pa.large_binary(), rows, buffers).to_pylist()
    return payloads
