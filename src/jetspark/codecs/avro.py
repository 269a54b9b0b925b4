"""Avro: schemas as Spark has them, and datums into Arrow by Arrow's own reader, of its Rust crate.

A batch of datums is what a block of an Avro file contains, so they are read as a file with one
block, and with one field more: a random mark behind each datum. A datum that is shorter or longer
than its schema says would shift the following ones, and their marks show it.

The types are those of Spark's `from_avro`; docs/guide-payloads.md has the differences.
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, partial, reduce
from itertools import count
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.codecs.decoder import Undecodable, check_times
from jetspark.codecs.encoder import cast, elements, in_places, numbers_of, refuse_nulls
from jetspark.codecs.exact import cast_exactly
from jetspark.codecs.framing import varint
from jetspark.codecs.schema import PayloadSchema, UnusableSchema
from jetspark.errors import ConfigError

_US: Final = pa.timestamp("us", tz="UTC")
_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _US,
    ("long", "timestamp-micros"): _US,
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
"""The logical types that Spark knows, beside decimal."""
_PROMOTIONS: Final = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"),
    ("float", "double"), ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
_WIDER: Final = (
    ({"int", "long"}, pa.int64()),
    ({"float", "double"}, pa.float64()),
)
"""Unions that are a single type in Spark."""
_MOST_DIGITS: Final = 38
MAX_NODES: Final = 10_000
"""Types in a schema where each use of a named type counts as a whole, so that a few lines cannot
become any number of columns."""
MAX_DEPTH: Final = 100
"""Types within each other."""
MAX_FIXED_BYTES: Final = (1 << 31) - 1
_CHARS_OF_NODE: Final = 16
"""Characters of a default or symbol that count as one type."""
_VALUE: Final = "value"
"""The one field of a schema that is no record."""
_MARK_FIELD: Final = "jetspark_mark"
_MARK: Final = secrets.token_bytes(8)
_SYNC: Final = bytes(16)


# -- schemas -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Type:
    kind: str
    name: str = ""
    aliases: frozenset[str] = frozenset()
    logical: str = ""
    """One that Spark knows."""
    size: int = 0
    digits: tuple[int, int] = (0, 0)
    """Precision and scale of a decimal."""
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """The symbol of an enum."""
    fields: tuple[_Field, ...] = ()
    parts: tuple[_Type, ...] = ()
    """The elements of an array, the values of a map, or the branches of a union."""

    @cached_property
    def nodes(self) -> int:
        """Types in it, with itself."""
        symbols = sum(1 + len(symbol) // _CHARS_OF_NODE for symbol in self.symbols)
        fields = sum(
            one.type.nodes + len(str(one.default)) // _CHARS_OF_NODE for one in self.fields
        )
        return 1 + symbols + fields + sum(one.nodes for one in self.parts)

    @cached_property
    def depth(self) -> int:
        """Types within each other, with itself."""
        inner = (*self.parts, *(one.type for one in self.fields))
        return 1 + max((one.depth for one in inner), default=0)

    @cached_property
    def arrow(self) -> pa.DataType:
        """As Spark has it. Raises Undecodable for a record without fields."""
        match self.kind:
            case "record" if not self.fields:
                raise Undecodable(f"{self.name} is a record without fields.")
            case "record":
                return pa.struct([pa.field(one.name, one.type.arrow) for one in self.fields])
            case "array":
                return pa.list_(pa.field("element", self.parts[0].arrow))
            case "map":
                return pa.map_(pa.string(), self.parts[0].arrow)
            case "union":
                return _of_union(self.branches)
            case "enum":
                return pa.string()
        if self.logical == "decimal":
            return pa.decimal128(*self.digits)
        if self.kind == "fixed":
            return pa.binary()
        return _LOGICAL.get((self.kind, self.logical), _PRIMITIVES[self.kind])

    @property
    def branches(self) -> tuple[_Type, ...]:
        """Of a union, without null; of another type, itself."""
        parts = self.parts if self.kind == "union" else (self,)
        return tuple(one for one in parts if one.kind != "null")

    @property
    def may_be_null(self) -> bool:
        parts = self.parts if self.kind == "union" else (self,)
        return any(one.kind == "null" for one in parts)

    @property
    def has_members(self) -> bool:
        """Whether it is a union that is a struct of its branches in Spark."""
        return self.kind == "union" and _wide(self.branches) is None and len(self.branches) > 1

    @cached_property
    def may_be_empty(self) -> bool:
        """Whether a value may have no bytes."""
        if self.kind == "record":
            return all(one.type.may_be_empty for one in self.fields)
        return self.kind == "null" or (self.kind == "fixed" and not self.size)


@dataclass(frozen=True)
class _Field:
    name: str
    type: _Type
    aliases: frozenset[str]
    default: Any
    has_default: bool


def _of_union(branches: Sequence[_Type]) -> pa.DataType:
    if len(branches) < 2:
        return branches[0].arrow if branches else pa.null()
    members = [pa.field(f"member{at}", one.arrow) for at, one in enumerate(branches)]
    return _wide(branches) or pa.struct(members)


def _wide(branches: Sequence[_Type]) -> pa.DataType | None:
    """The type of a union of numbers."""
    kinds = {one.kind for one in branches}
    return next((wide for numbers, wide in _WIDER if kinds == numbers), None)


class _Parser:
    """Reads a schema: Avro's specification, "Schema Declaration" and "Names"."""

    def __init__(self) -> None:
        self._known: dict[str, _Type | None] = {}
        """None: its definition is not read to its end, so that it would contain itself."""

    def parse(self, text: str) -> _Type:
        try:
            text.encode()
            found = json.loads(text)
        except ValueError as error:
            raise Undecodable(f"it is not JSON: {error}") from None
        return self._type(found, "")

    def _type(self, given: Any, space: str) -> _Type:
        found = self._declared(given, space)
        if found.nodes > MAX_NODES:
            raise Undecodable(f"it has more than {MAX_NODES:,} fields")
        if found.depth > MAX_DEPTH:
            raise Undecodable("it is nested too deeply")
        return found

    def _declared(self, given: Any, space: str) -> _Type:
        match given:
            case str() if given in _PRIMITIVES:
                return _Type(given)
            case str():
                return self._named(given, space)
            case list():
                parts = tuple(self._type(one, space) for one in given)
                if any(one.kind == "union" for one in parts) or not parts:
                    raise Undecodable("a union has no union in it, and at least one type")
                if _wide([one for one in parts if one.kind != "null"]) is not None:
                    parts = tuple(replace(one, logical="") for one in parts)  # to Spark a number
                return _Type("union", parts=parts)
            case {"type": "array", "items": items}:
                element = self._type(items, space)
                if element.may_be_empty:
                    # A few bytes would be as many elements as one likes.
                    raise Undecodable("it has an array of elements without bytes")
                return _Type("array", parts=(element,))
            case {"type": "map", "values": values}:
                return _Type("map", parts=(self._type(values, space),))
            case {"type": "record" | "error" | "enum" | "fixed", "name": str()}:
                return self._definition(given, space)
            case {"type": str(kind)} if kind in _PRIMITIVES:
                return _with_logical(_Type(kind), given)
            case {"type": str() | dict() | list() as inner}:
                return self._type(inner, space)
        raise Undecodable(f"it has {json.dumps(given)[:80]}, which is no type of Avro")

    def _named(self, name: str, space: str) -> _Type:
        for full in (_full(name, space), name):
            if full in self._known:
                found = self._known[full]
                if found is None:
                    raise Undecodable(f"{name} contains itself, which a column cannot")
                return found
        raise Undecodable(f"it does not define {name}")

    def _definition(self, given: Mapping[str, Any], space: str) -> _Type:
        full = _full(given["name"], given.get("namespace", space))
        inside = full.rpartition(".")[0]
        found = _Type(
            "record" if given["type"] == "error" else given["type"],
            full.rpartition(".")[2],
            frozenset(str(one).rpartition(".")[2] for one in given.get("aliases") or ()),
        )
        self._known[full] = None
        try:
            if found.kind == "record":
                fields = [self._field(one, inside) for one in given["fields"]]
                found = replace(found, fields=tuple(fields))
            elif found.kind == "enum":
                default = given.get("default")
                found = replace(
                    found,
                    symbols=_texts(given["symbols"]),
                    default=None if default is None else _text(default),
                )
            else:
                found = _with_logical(replace(found, size=_size(given["size"])), given)
        except (KeyError, TypeError, ValueError) as error:
            raise Undecodable(f"its {given['type']} {full} is incomplete ({error})") from None
        self._known[full] = found
        return found

    def _field(self, given: Mapping[str, Any], space: str) -> _Field:
        return _Field(
            _text(given["name"]),
            self._type(given["type"], space),
            frozenset(_texts(given.get("aliases") or [])),
            given.get("default"),
            "default" in given,
        )


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{json.dumps(given)[:80]} is no text")
    return given


def _texts(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise TypeError(f"{json.dumps(given)[:80]} is no list")
    return tuple(_text(one) for one in given)


def _size(given: Any) -> int:
    if type(given) is not int or not 0 <= given <= MAX_FIXED_BYTES:
        raise TypeError(f"{json.dumps(given)[:80]} is no size")
    return given


def _full(name: str, space: str) -> str:
    return f"{space}.{name}" if space and "." not in name else name


def _with_logical(type_: _Type, given: Mapping[str, Any]) -> _Type:
    logical = str(given.get("logicalType"))
    if (type_.kind, logical) in _LOGICAL:
        return replace(type_, logical=logical)
    if logical == "decimal" and type_.kind in ("bytes", "fixed"):
        precision, scale = given.get("precision"), given.get("scale", 0)
        if (
            type(precision) is type(scale) is int
            and 0 < precision <= _MOST_DIGITS
            and 0 <= scale <= precision
        ):
            return replace(type_, logical=logical, digits=(precision, scale))
    return type_


def _parsed(schema: PayloadSchema) -> _Type:
    """As a record. Raises Undecodable."""
    parser = _Parser()
    try:
        for one in schema.references:
            parser.parse(one.text)
        found = parser.parse(schema.text)
    except Undecodable as error:
        name = f" {schema.name}" if schema.name else ""
        raise Undecodable(f"The Avro schema{name} cannot be used: {error}.") from None
    except RecursionError:
        raise Undecodable("The Avro schema is nested too deeply.") from None
    if found.kind == "record":
        return found
    return _Type("record", fields=(_Field(_VALUE, found, frozenset(), None, False),))


def _of_reader(schema: PayloadSchema) -> _Type:
    """As a record, with the fields that its former versions had beside. Raises Undecodable."""
    found = _parsed(schema)
    for one in schema.former:
        with suppress(Undecodable):  # nobody can have written with it
            united = _with_dropped(found, _parsed(one))
            if united.nodes <= MAX_NODES:
                found = united
    return found


def _with_dropped(now: _Type, former: _Type) -> _Type:
    """The type with the fields that only the former one has, at any depth, which may be null."""
    if len(now.branches) != 1 or len(former.branches) != 1:
        return now
    if now.kind == "union":  # of null and a type
        parts = (one if one.kind == "null" else _with_dropped(one, former) for one in now.parts)
        return replace(now, parts=tuple(parts))
    (former,) = former.branches
    if now.kind != former.kind:
        return now
    match now.kind:
        case "record":
            before = {one.name: one for one in former.fields}
            kept = [_same_field(one, before) for one in now.fields]
            known = {name for one in now.fields for name in (one.name, *one.aliases)}
            return replace(
                now,
                fields=(*kept, *(_dropped(one) for one in former.fields if one.name not in known)),
            )
        case "array" | "map":
            return replace(now, parts=(_with_dropped(now.parts[0], former.parts[0]),))
    return now


def _same_field(field: _Field, before: Mapping[str, _Field]) -> _Field:
    earlier = next((before[one] for one in (field.name, *field.aliases) if one in before), None)
    if earlier is None:
        return field
    return replace(field, type=_with_dropped(field.type, earlier.type))


def _dropped(field: _Field) -> _Field:
    """The field of a former version, null where it is missing."""
    type_ = field.type
    if not type_.may_be_null:
        parts = type_.parts if type_.kind == "union" else (type_,)
        type_ = _Type("union", parts=(_Type("null"), *parts))
    return replace(field, type=type_, default=None, has_default=True)


# -- a schema for the library --------------------------------------------------------------------


def _plain(type_: _Type, names: Iterator[int]) -> Any:
    """The schema with nothing but what says how bytes are read."""
    match type_.kind:
        case "record":
            fields = [
                {"name": f"f{at}", "type": _plain(one.type, names)}
                for at, one in enumerate(type_.fields)
            ]
            return {"type": "record", "name": f"t{next(names)}", "fields": fields}
        case "array":
            return {"type": "array", "items": _plain(type_.parts[0], names)}
        case "map":
            return {"type": "map", "values": _plain(type_.parts[0], names)}
        case "union":
            return [_plain(one, names) for one in type_.parts]
    found: dict[str, Any] = {"type": type_.kind}
    if type_.kind in ("enum", "fixed"):
        found["name"] = f"t{next(names)}"
    if type_.kind == "enum":
        found["symbols"] = list(type_.symbols)
    elif type_.kind == "fixed":
        found["size"] = type_.size
    if type_.logical:
        found["logicalType"] = type_.logical
    if type_.logical == "decimal":
        found["precision"], found["scale"] = type_.digits
    return found if len(found) > 1 else type_.kind


# -- from a writer's schema to a reader's ----------------------------------------------------------
#
# Avro's specification, "Schema Resolution", for whole columns. What is of no use in a schema is
# found when both are compared; what is wrong with some values, when they are decoded.

_Convert: TypeAlias = Callable[[pa.Array], pa.Array]


def _converter(writer: _Type, reader: _Type, name: str) -> _Convert:
    """Raises Undecodable; so does the result, for values that the reader does not take."""
    if writer.kind == "union" or reader.kind == "union":
        return _of_branches(writer, reader, name)
    if writer.kind != reader.kind and (writer.kind, reader.kind) not in _PROMOTIONS:
        raise Undecodable(f"{name} is {writer.kind}, not {reader.kind}.")
    match reader.kind:
        case "record":
            return _of_record(writer, reader, name)
        case "array":
            of_element = _converter(writer.parts[0], reader.parts[0], name)
            return partial(_listed, of_element, reader.arrow)
        case "map":
            of_value = _converter(writer.parts[0], reader.parts[0], name)
            return partial(_mapped, of_value, reader.arrow)
        case "enum":
            return _of_enum(writer, reader, name)
        case "fixed" if writer.size != reader.size:
            raise Undecodable(f"{name} has {writer.size} bytes, not {reader.size}.")
    if (writer.logical == "decimal") != (reader.logical == "decimal"):
        raise Undecodable(f"{name} is {writer.logical or writer.kind}, not {reader.kind}.")
    if reader.logical.endswith("-millis") and not writer.logical:
        tz = None if reader.arrow.tz is None else "UTC"
        return lambda values: _cast(reader.arrow, name, values.cast(pa.timestamp("ms", tz)))
    return partial(_cast, reader.arrow, name)


def _cast(kind: pa.DataType, name: str, values: pa.Array) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_date32(values.type):  # in a union with long, which is a number
        values = values.cast(pa.int32())
    try:
        if pa.types.is_floating(kind):
            return values.cast(kind, safe=False)
        return cast_exactly(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Undecodable(f"{name} has a value that is no {kind}: {error}.") from None


def _listed(of_element: _Convert, kind: pa.DataType, values: pa.Array) -> pa.Array:
    if values.type.value_type == kind.value_type:
        return values.cast(kind)
    return pa.ListArray.from_arrays(
        values.offsets, of_element(values.values), type=kind, mask=_nulls(values)
    )


def _mapped(of_value: _Convert, kind: pa.DataType, values: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(
        values.offsets, values.keys, of_value(values.items), type=kind, mask=_nulls(values)
    )


def _nulls(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _of_enum(writer: _Type, reader: _Type, name: str) -> _Convert:
    texts = [symbol if symbol in reader.symbols else reader.default for symbol in writer.symbols]
    unknown = [symbol for symbol, text in zip(writer.symbols, texts, strict=True) if text is None]
    dictionary = pa.array(texts, pa.string())

    def convert(values: pa.Array) -> pa.Array:
        found = dictionary.take(values.indices)
        if found.null_count > values.null_count:
            known = ", ".join(reader.symbols)
            raise Undecodable(f"{name} is one of {', '.join(unknown)}; the schema has {known}.")
        return found

    return convert


def _of_record(writer: _Type, reader: _Type, name: str) -> _Convert:
    kind = reader.arrow
    columns = [_of_field(writer, one, f"{name}.{one.name}") for one in reader.fields]

    def convert(values: pa.Array) -> pa.Array:
        if values.null_count:  # what is in the fields of null does not matter
            there = values.is_valid()
            return in_places(there, convert(values.filter(there)))
        found = [column(len(values) if at is None else values.field(at)) for at, column in columns]
        return pa.StructArray.from_arrays(found, fields=list(kind))

    return convert


def _of_field(
    writer: _Type, wanted: _Field, name: str
) -> tuple[int | None, Callable[[Any], pa.Array]]:
    """The number of the writer's field and its conversion, or that of a number of rows."""
    at = _place(writer, wanted)
    if at is None:
        value = _default(wanted, name)
        return None, lambda rows: value.take(pa.repeat(0, rows))
    return at, _converter(writer.fields[at].type, wanted.type, name)


def _place(writer: _Type, wanted: _Field) -> int | None:
    """The field of the writer's, by its name, or by a former one."""
    names = [one.name for one in writer.fields]
    for name in (wanted.name, *sorted(wanted.aliases)):
        if name in names:
            return names.index(name)
    return None


def _default(wanted: _Field, name: str) -> pa.Array:
    """An array with it."""
    if not wanted.has_default:
        raise Undecodable(f"Field {name} is missing, and has no default.")
    try:
        return pa.array([_value(wanted.type, wanted.default)], wanted.type.arrow)
    except (pa.ArrowInvalid, TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise Undecodable(f"The default of {name} is of another type: {error}.") from None


def _value(type_: _Type, given: Any) -> Any:
    """A default in JSON, for PyArrow."""
    match type_.kind:
        case "union":
            return _value_of_union(type_, given)
        case "record":
            return {
                one.name: _value(one.type, given.get(one.name, one.default)) for one in type_.fields
            }
        case "array":
            return [_value(type_.parts[0], one) for one in given]
        case "map":
            return [(key, _value(type_.parts[0], one)) for key, one in given.items()]
        case "bytes" | "fixed":
            raw = given.encode("latin-1")
            if type_.logical != "decimal":
                return raw
            return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-type_.digits[1])
    if type_.logical.endswith("-millis"):
        return 1000 * given
    return given


def _value_of_union(type_: _Type, given: Any) -> Any:
    """Of the first branch, or null."""
    if given is None and type_.may_be_null:
        return None
    found = _value(type_.branches[0], given)
    return {"member0": found} if type_.has_members else found


def _of_branches(writer: _Type, reader: _Type, name: str) -> _Convert:
    """Each branch of the writer's becomes the first one of the reader's that takes it."""
    kind, given, branches = reader.arrow, writer.branches, reader.branches
    found = [_branch(one, branches, name) for one in given]
    if given and not any(found):
        raise Undecodable(f"{name} is {_said(writer)}, not {_said(reader)}.")
    if reader.may_be_null and len(branches) == len(given) == 1 and len(writer.parts) != 1:
        return found[0][1]  # type: ignore[index]  # most unions: a type and null, in any order

    def convert(values: pa.Array) -> pa.Array:
        members: list[list[pa.Array]] = [[] for _ in branches]
        for branch, taken, part in zip(given, found, _parts(writer, values), strict=True):
            if taken is not None:
                members[taken[0]].append(taken[1](part))
            elif part.null_count < len(part):
                raise Undecodable(f"{name} is {_said(branch)}, not {_said(reader)}.")
        whole = [
            pc.coalesce(*of_one) if of_one else pa.nulls(len(values), one.arrow)
            for of_one, one in zip(members, branches, strict=True)
        ]
        if reader.has_members:
            null = reduce(pc.and_, [one.is_null() for one in whole])
            result = pa.StructArray.from_arrays(whole, fields=list(kind), mask=null)
        elif whole:
            result = pc.coalesce(*(_cast(kind, name, one) for one in whole))
        else:
            result = pa.nulls(len(values), kind)
        if result.null_count and not reader.may_be_null:
            raise Undecodable(f"{name} is null, not {_said(reader)}.")
        return result

    return convert


def _branch(one: _Type, branches: Sequence[_Type], name: str) -> tuple[int, _Convert] | None:
    """The number of the branch that takes a type, the same type rather than a wider one."""
    order = sorted(
        range(len(branches)),
        key=lambda at: (branches[at].kind, branches[at].name) != (one.kind, one.name),
    )
    for at in order:
        with suppress(Undecodable):
            return at, _converter(one, branches[at], name)
    return None


def _parts(writer: _Type, values: pa.Array) -> Iterator[pa.Array]:
    """The values of each branch but null, null in the rows of the others."""
    if not pa.types.is_union(values.type):
        yield from [values] * len(writer.branches)
        return
    for number, one in enumerate(writer.parts):
        if one.kind != "null":
            mine = pc.equal(values.type_codes, number)
            yield values.field(number).take(pc.if_else(mine, values.offsets, None))


def _said(type_: _Type) -> str:
    return " or ".join(one.name or one.kind for one in type_.parts or (type_,))


# -- datums --------------------------------------------------------------------------------------


def fields_of(schema: PayloadSchema) -> pa.Schema:
    """The fields of a schema as columns. Raises ConfigError."""
    try:
        return pa.schema(list(_of_reader(schema).arrow))
    except Undecodable as error:
        raise UnusableSchema(str(error)) from None


class AvroWriter:
    """Decodes datums of a writer's schema into fields of the reader's."""

    def __init__(self, writer: PayloadSchema, reader: PayloadSchema, fields: Sequence[str]) -> None:
        """`fields`: the wanted ones of the reader's, in their order. Raises Undecodable, and
        ConfigError without the library."""
        here, there = _of_reader(reader), _parsed(writer)
        known = {one.name: one for one in here.fields}
        self._columns = [_of_field(there, known[name], name) for name in fields]
        self._name = f"{there.name or 'datum'} in Avro"
        schema = _plain(there, count())
        schema["fields"].append(
            {"name": _MARK_FIELD, "type": {"type": "fixed", "name": "mark", "size": len(_MARK)}}
        )
        self._head = _head(json.dumps(schema).encode())
        self._read = sorted({at for at, _ in self._columns if at is not None})
        self._source = library().AvroSource

    def decode(self, payloads: pa.BinaryArray) -> list[pa.Array]:
        """The fields of at least one datum. Raises Undecodable."""
        rows = len(payloads)
        datums = pc.binary_join_element_wise(payloads, _MARK, b"")
        _, edges, data = datums.buffers()
        length = int(memoryview(edges).cast("i")[datums.offset + rows])
        # One row more is announced than there are: the library would search for ever for the end
        # of a block that has bytes behind its last row.
        size = _long(rows + 1) + _long(length)
        file = _File(b"".join([self._head, size, memoryview(data).cast("B")[:length], _SYNC]))
        names = [*(f"f{at}" for at in self._read), _MARK_FIELD]
        # Its end while an error is on its way would hide the error.
        try:
            batches = self._source([lambda: file], False, False).batch_iter(rows, names)
            found = pa.record_batch(next(batches))
        except Exception as error:  # the library's, of several kinds
            why = str(error).rpartition("rror: ")[2].removeprefix("EOF: ")
            raise Undecodable(f"The payload is not {self._name}: {why}.") from None
        marks = found.column(_MARK_FIELD)
        if (
            found.num_rows != rows
            or not pc.all(pc.equal(marks, pa.scalar(_MARK, marks.type))).as_py()
        ):
            raise Undecodable(f"The payload is not {self._name}: it has bytes left over.")
        columns = [
            convert(rows if at is None else found.column(f"f{at}")) for at, convert in self._columns
        ]
        check_times(columns)
        for column in columns:
            if "decimal" in str(column.type):  # the library does not look at their digits
                _check_digits(column)
        return columns


class AvroEncoder:
    """Encodes rows as datums of a schema. The library writes them into a file, each behind a mark,
    by which they are found there; the file's schema is what Arrow's types give, so that each value
    gets the type whose bytes are those of the wanted one."""

    def __init__(self, schema: PayloadSchema) -> None:
        """Raises ConfigError for a schema that cannot be used, and without the library."""
        self.fields = fields_of(schema)
        self._type = _parsed(schema)
        self._sink = library().AvroBuffSink

    def of(self, rows: pa.RecordBatch) -> list[bytes]:
        """A payload for each row. A field without a column has its default, or is null."""
        columns = [self._column(one, rows) for one in self._type.fields]
        whole = pa.StructArray.from_arrays(columns, fields=list(self.fields))
        mark = pa.repeat(pa.scalar(_MARK, pa.binary(len(_MARK))), len(rows))
        found = _record_in_file([mark, *_in_file(self._type, whole, "").flatten()])
        table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(found)])
        file = io.BytesIO()
        sink = self._sink(file, table, None)
        sink.write(table)
        sink.close()
        return file.getvalue()[: -len(_SYNC)].split(_MARK)[1:]

    def _column(self, field: _Field, rows: pa.RecordBatch) -> pa.Array:
        if field.name in rows.schema.names:
            return rows.column(field.name)
        if field.type.may_be_null and not field.has_default:
            return pa.nulls(len(rows), field.type.arrow)
        return _default(field, field.name).take(pa.repeat(0, len(rows)))


def _in_file(type_: _Type, values: pa.Array, name: str) -> pa.Array:
    """Values of a column, for the library. Raises ConfigError."""
    if type_.kind == "union":
        return _union_in_file(type_, values, name)
    if type_.kind == "null":  # a record without fields has no bytes either
        return pa.StructArray.from_buffers(pa.struct([]), len(values), [None])
    refuse_nulls(values, name, type_.logical or type_.kind)
    match type_.kind, type_.logical:
        case "record", _:
            given = zip(type_.fields, values.flatten(), strict=True)
            return _record_in_file(
                [_in_file(one.type, each, f"{name}.{one.name}".strip(".")) for one, each in given]
            )
        case "array", _:
            offsets, inner = elements(values)
            inner = _in_file(type_.parts[0], inner, f"{name}.element")
            field = pa.field("element", inner.type, nullable=False)
            return pa.ListArray.from_arrays(offsets, inner, type=pa.list_(field))
        case "map", _:
            offsets, inner = elements(values)
            keys, items = inner.flatten()
            items = _in_file(type_.parts[0], items, f"{name}.value")
            field = pa.field("value", items.type, nullable=False)
            return pa.MapArray.from_arrays(offsets, keys, items, type=pa.map_(pa.string(), field))
        case "enum", _:
            return numbers_of(values, type_.symbols, name)
        case "fixed", "decimal":
            return _fixed_decimals(type_, values, name)
        case "fixed", _:
            return cast(values, pa.binary(type_.size), name)
        case _, "timestamp-millis" | "local-timestamp-millis":
            floor = pc.floor_temporal(values, unit="millisecond")
            return floor.cast(pa.timestamp("ms", values.type.tz))
    return values


def _union_in_file(type_: _Type, values: pa.Array, name: str) -> pa.Array:
    """Each row has the branch that is not null; of a union of numbers, the wider one. The library
    takes no two branches of a kind, so each is in a record, which adds no bytes."""
    rows, kind = len(values), type_.arrow
    members = iter(values.flatten() if type_.has_members else [values] * len(type_.branches))
    codes, places = pa.nulls(rows, pa.int8()), pa.nulls(rows, pa.int32())
    children = []
    for code, one in enumerate(type_.parts):
        if one.kind == "null":
            member, mine = values, values.is_null()
        else:
            member = next(members)
            if len(type_.branches) > 1 and not type_.has_members and one.arrow != kind:
                member = pa.nulls(rows, one.arrow)
            mine = member.is_valid()
        if pc.any(pc.and_(mine, codes.is_valid())).as_py():
            raise ConfigError(f"Field {name} has a value in more than one member.")
        children.append(_record_in_file([_in_file(one, member.filter(mine), name)]))
        codes = pc.if_else(mine, pa.scalar(code, pa.int8()), codes)
        order = pc.subtract(pc.cumulative_sum(mine.cast(pa.int32())), pa.scalar(1, pa.int32()))
        places = pc.if_else(mine, order, places)
    refuse_nulls(codes, name, _said(type_))
    return pa.UnionArray.from_dense(codes, places, children)


def _record_in_file(columns: Sequence[pa.Array]) -> pa.StructArray:
    fields = [pa.field(f"f{at}", one.type, nullable=False) for at, one in enumerate(columns)]
    return pa.StructArray.from_arrays(columns, fields=fields)


def _fixed_decimals(type_: _Type, values: pa.Array, name: str) -> pa.Array:
    whole = [int(one.scaleb(type_.digits[1])) for one in values.to_pylist()]
    try:
        found = [one.to_bytes(type_.size, "big", signed=True) for one in whole]
    except OverflowError:
        raise ConfigError(f"Field {name}: a number needs more than {type_.size} bytes.") from None
    return pa.array(found, pa.binary(type_.size))


def _check_digits(column: pa.Array) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Undecodable(f"The payload has a number with too many digits: {error}.") from None


class _File:
    """A file in memory, as the library asks for one."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __enter__(self) -> io.BytesIO:
        return io.BytesIO(self._content)

    def __exit__(self, *_: object) -> None:
        """Nothing to do."""


def _head(schema: bytes) -> bytes:
    """The beginning of an Avro file."""
    return b"".join(
        [
            b"Obj\x01",
            _long(1),
            _long(11),
            b"avro.schema",
            _long(len(schema)),
            schema,
            _long(0),
            _SYNC,
        ]
    )


def _long(number: int) -> bytes:
    """A number of at least 0 in Avro."""
    return varint(number << 1)


def library() -> Any:
    """The one that reads and writes. Raises ConfigError without it."""
    try:
        import polars_avro._avro_rs as found
    except ModuleNotFoundError:
        raise ConfigError("Avro payloads need polars-avro: pip install 'jetspark[avro]'.") from None
    return found
