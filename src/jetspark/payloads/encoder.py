"""Columns as payloads, the counterpart of `decoder`: a library encodes many rows at once.

The libraries write something for every value, also for one that does not fit, such as a zero for a
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
    from jetspark.wire.kernel import Memory, Part

Pairs: TypeAlias = Sequence[tuple[str, str]]
"""Headers."""


class Encoder(Protocol):
    """Encodes rows in one schema."""

    fields: pa.Schema | None
    """None: any."""

    def encode_rows(self, rows: pa.RecordBatch) -> list[bytes]:
        """A payload for each row; the columns have the types of the fields. Raises ConfigError,
        which names the field, and Undecodable."""


def _sort(kind: pa.DataType) -> object:
    """Return what a type and each wider one have in common."""
    for sort in ("integer", "floating", "string", "large_string", "binary", "large_binary"):
        if getattr(pa.types, f"is_{sort}")(kind):
            return sort.removeprefix("large_")
    return kind.id, getattr(kind, "tz", None) is None


def check_names(names: Iterable[str], fields: Sequence[str], path: str = "") -> None:
    """Raise ConfigError for a name that is no field."""
    for name in names:
        if name not in fields:
            raise ConfigError(
                f"Field {path}{name} is not in the schema, which has {', '.join(fields)}: drop it."
            )


def fit_column(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Values in a type that has all of them; fields of structs by their names, and null if missing.

    Raises ConfigError, also for another sort of values: a text is not parsed, a number not printed.
    """
    if values.type == kind or pa.types.is_null(values.type):
        return values.cast(kind)
    narrow = pa.types.is_floating(kind) and kind.bit_width < values.type.bit_width
    if narrow or _sort(values.type) != _sort(kind):
        types = f"{spark_type_name(values.type)}, and the schema has {spark_type_name(kind)}"
        raise ConfigError(f"Field {name} is {types}: cast it.")
    if pa.types.is_struct(kind):
        check_names(values.type.names, kind.names, f"{name}.")
        members = dict(zip(values.type.names, values.flatten(), strict=True))
        none = pa.nulls(len(values))
        parts = [fit_column(members.get(f.name, none), f.type, f"{name}.{f.name}") for f in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if not pa.types.is_nested(kind):
        return cast(values, kind, name)
    offsets, items = offsets_and_items(values)
    if pa.types.is_list(kind):
        items = fit_column(items, kind.value_type, f"{name}.element")
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=values.is_null())
    keys, items = items.flatten()
    keys, items = (
        cast(keys, kind.key_type, name),
        fit_column(items, kind.item_type, f"{name}.value"),
    )
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=values.is_null())


def cast(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Plain values in another type. Raises ConfigError."""
    try:
        return cast_exactly(values, kind)
    except pa.ArrowInvalid:
        for at in range(len(values) if len(values) > 1 else 0):
            cast(values.slice(at, 1), kind, name)
        raise misfit(name, values[0].as_py(), spark_type_name(kind)) from None


def misfit(name: str, value: Any, expected: str) -> ConfigError:
    """The error for a value of a field; `expected`: a type, or what it has to be in some words."""
    article = "" if " " in expected else "an " if expected[0] in "aeiou" else "a "
    subject = f"Field {name}" if name else "The value"
    return ConfigError(f"{subject}: {safe_repr(value)} is not {article}{expected}.")


def offsets_and_items(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return where each list begins, and their elements; of maps their entries."""
    if pa.types.is_map(values.type):
        entry = pa.struct([values.type.key_field, values.type.item_field])
        values = values.cast(pa.list_(pa.field("entries", entry, nullable=False)))
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(values), 0))
    return pa.concat_arrays([pa.array([0], ends.type), ends]), values.flatten()


def check_no_nulls(values: pa.Array, name: str, takes: str) -> None:
    """Raise ConfigError for a null."""
    if values.null_count:
        raise ConfigError(f"Field {name} is null, and the schema has {takes}.")


def symbol_indexes(values: pa.Array, symbols: Sequence[str], name: str) -> pa.Array:
    """The place of each symbol. Raises ConfigError for one that is not there."""
    symbol_numbers = pc.index_in(values, pa.array(symbols, pa.string()))
    if symbol_numbers.null_count > values.null_count:
        bad = values.filter(pc.and_(values.is_valid(), symbol_numbers.is_null()))[0]
        raise misfit(name, bad.as_py(), f"one of {', '.join(symbols)}")
    return symbol_numbers


def scatter(mask: pa.Array, values: pa.Array) -> pa.Array:
    """The values in the rows where `mask` is true, and null in the others."""
    positions = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return values.take(pc.if_else(mask, positions, None))


# -- records of the C kernel ---------------------------------------------------------------------


def part(
    kind: int,
    first: pa.Buffer | None = None,
    second: pa.Buffer | None = None,
    begin: int = 0,
    *,
    valid: pa.Buffer | None = None,
    flag: bool = False,
    number: int = 0,
    parts: Sequence[Part] = (),
) -> Part:
    """A part of each record. `kind`, `flag`, `number`: of the format."""
    return kind, flag, number, begin, valid, first, second, tuple(parts)


def leaf(kind: int, values: pa.Array, *, flag: bool = False, number: int = 0) -> Part:
    """Values that have nothing below them."""
    valid, first, *more = values.buffers()
    second = more[0] if more else None
    return part(kind, first, second, values.offset, valid=valid, flag=flag, number=number)


def write_records(
    write: Callable[[int, Part], tuple[Memory, Memory]], rows: int, root: Part
) -> list[bytes]:
    """The records that the kernel writes."""
    data, ends = write(rows, root)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    records: list[bytes] = pa.Array.from_buffers(pa.large_binary(), rows, buffers).to_pylist()
    return records
