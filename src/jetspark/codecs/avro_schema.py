"""Schemas of Avro, as Spark has them: Avro's specification, "Schema Declaration" and "Names".

The types are those of Spark's `from_avro`; docs/payloads.md has the differences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from jetspark.codecs.decoder import Undecodable
from jetspark.codecs.schema import PayloadSchema, UnusableSchema

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
PROMOTIONS: Final = {
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


class Kind(IntEnum):
    """What was written; the numbers are those of the C kernel."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    FIXED = 7
    ENUM = 8
    """Its nodes are the symbols."""
    RECORD = 9
    """Its nodes are the fields, and behind them constants."""
    ARRAY = 10
    MAP = 11
    UNION = 12
    BRANCH = 13
    """No union, but the reader has one."""
    REFUSED = 14
    """A branch or a symbol that the reader does not take; its name says why."""


KINDS: Final = {
    "null": Kind.NULL,
    "boolean": Kind.BOOLEAN,
    "int": Kind.INT,
    "long": Kind.LONG,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "bytes": Kind.BYTES,
    "string": Kind.BYTES,
    "fixed": Kind.FIXED,
    "enum": Kind.ENUM,
    "record": Kind.RECORD,
    "array": Kind.ARRAY,
    "map": Kind.MAP,
    "union": Kind.UNION,
}


# -- schemas -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Type:
    kind: str
    name: str = ""
    aliases: frozenset[str] = frozenset()
    logical: str = ""
    """One that Spark knows."""
    declared: str = ""
    """The logical type of the schema, whether or not Spark knows it."""
    size: int = 0
    digits: tuple[int, int] = (0, 0)
    """Precision and scale of a decimal."""
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """The symbol of an enum."""
    fields: tuple[Field, ...] = ()
    parts: tuple[Type, ...] = ()
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
    def branches(self) -> tuple[Type, ...]:
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
class Field:
    name: str
    type: Type
    aliases: frozenset[str]
    default: Any
    has_default: bool


def _of_union(branches: Sequence[Type]) -> pa.DataType:
    if len(branches) < 2:
        return branches[0].arrow if branches else pa.null()
    members = [pa.field(f"member{at}", one.arrow) for at, one in enumerate(branches)]
    return _wide(branches) or pa.struct(members)


def _wide(branches: Sequence[Type]) -> pa.DataType | None:
    """The type of a union of numbers."""
    kinds = {one.kind for one in branches}
    return next((wide for numbers, wide in _WIDER if kinds == numbers), None)


class _Parser:
    """Reads a schema: Avro's specification, "Schema Declaration" and "Names"."""

    def __init__(self) -> None:
        self._known: dict[str, Type | None] = {}
        """None: its definition is not read to its end, so that it would contain itself."""

    def parse(self, text: str) -> Type:
        try:
            text.encode()
            found = json.loads(text)
        except ValueError as error:
            raise Undecodable(f"it is not JSON: {error}") from None
        return self._type(found, "")

    def _type(self, given: Any, space: str) -> Type:
        found = self._declared(given, space)
        if found.nodes > MAX_NODES:
            raise Undecodable(f"it has more than {MAX_NODES:,} fields")
        if found.depth > MAX_DEPTH:
            raise Undecodable("it is nested too deeply")
        return found

    def _declared(self, given: Any, space: str) -> Type:
        match given:
            case str() if given in _PRIMITIVES:
                return Type(given)
            case str():
                return self._named(given, space)
            case list():
                parts = tuple(self._type(one, space) for one in given)
                if any(one.kind == "union" for one in parts) or not parts:
                    raise Undecodable("a union has no union in it, and at least one type")
                if _wide([one for one in parts if one.kind != "null"]) is not None:
                    parts = tuple(
                        replace(one, logical="", declared="") for one in parts
                    )  # to Spark a number
                return Type("union", parts=parts)
            case {"type": "array", "items": items}:
                element = self._type(items, space)
                if element.may_be_empty:
                    # A few bytes would be as many elements as one likes.
                    raise Undecodable("it has an array of elements without bytes")
                return Type("array", parts=(element,))
            case {"type": "map", "values": values}:
                return Type("map", parts=(self._type(values, space),))
            case {"type": "record" | "error" | "enum" | "fixed", "name": str()}:
                return self._definition(given, space)
            case {"type": str(kind)} if kind in _PRIMITIVES:
                return _with_logical(Type(kind), given)
            case {"type": str() | dict() | list() as inner}:
                return self._type(inner, space)
        raise Undecodable(f"it has {json.dumps(given)[:80]}, which is no type of Avro")

    def _named(self, name: str, space: str) -> Type:
        for full in (_full(name, space), name):
            if full in self._known:
                found = self._known[full]
                if found is None:
                    raise Undecodable(f"{name} contains itself, which a column cannot")
                return found
        raise Undecodable(f"it does not define {name}")

    def _definition(self, given: Mapping[str, Any], space: str) -> Type:
        full = _full(given["name"], given.get("namespace", space))
        inside = full.rpartition(".")[0]
        found = Type(
            "record" if given["type"] == "error" else given["type"],
            full.rpartition(".")[2],
            frozenset(str(one).rpartition(".")[2] for one in given.get("aliases") or ()),
        )
        self._known[full] = None
        try:
            if found.kind == "record":
                fields = [self._field(one, inside) for one in given["fields"]]
                if len({one.name for one in fields}) < len(fields):
                    raise Undecodable(f"its record {full} has a field twice")
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

    def _field(self, given: Mapping[str, Any], space: str) -> Field:
        return Field(
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


def _with_logical(type_: Type, given: Mapping[str, Any]) -> Type:
    logical = str(given.get("logicalType") or "")
    type_ = replace(type_, declared=logical)
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


def parse_record(schema: PayloadSchema) -> Type:
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
    return Type("record", fields=(Field(_VALUE, found, frozenset(), None, False),))


def reader_record(schema: PayloadSchema) -> Type:
    """As a record, with the fields that its former versions had beside. Raises Undecodable."""
    found = parse_record(schema)
    for one in schema.former:
        with suppress(Undecodable):  # nobody can have written with it
            united = _with_dropped(found, parse_record(one))
            if united.nodes <= MAX_NODES:
                found = united
    return found


def _with_dropped(now: Type, former: Type) -> Type:
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


def _same_field(field: Field, before: Mapping[str, Field]) -> Field:
    earlier = next((before[one] for one in (field.name, *field.aliases) if one in before), None)
    if earlier is None:
        return field
    return replace(field, type=_with_dropped(field.type, earlier.type))


def _dropped(field: Field) -> Field:
    """The field of a former version, null where it is missing."""
    type_ = field.type
    if not type_.may_be_null:
        parts = type_.parts if type_.kind == "union" else (type_,)
        type_ = Type("union", parts=(Type("null"), *parts))
    return replace(field, type=type_, default=None, has_default=True)


def fields_of(schema: PayloadSchema) -> pa.Schema:
    """The fields of a schema as columns. Raises ConfigError."""
    try:
        return pa.schema(list(reader_record(schema).arrow))
    except Undecodable as error:
        raise UnusableSchema(str(error)) from None


def in_words(type_: Type) -> str:
    """What a type is, for a sentence."""
    return " or ".join(one.name or one.kind for one in type_.parts or (type_,))
