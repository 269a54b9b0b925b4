"""Schemas of Avro, as Spark has them: Avro's specification, "Schema Declaration" and "Names".

The types are those of Spark's `from_avro`; docs/payloads.md has the differences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from jetspark.payloads.columns import TargetColumn
from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.schema import PayloadSchema, UnusableSchema

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
_NUMBER_UNIONS: Final = (({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64()))
"""Unions that are one column of the wider type in Spark."""
_MAX_DIGITS: Final = 38
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


class AvroKind(IntEnum):
    """The kind of a node; the numbers are those of the C kernel."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    FIXED = 7
    ENUM = 8
    """The symbols are its nodes."""
    RECORD = 9
    """The fields are its nodes, and behind them constants."""
    ARRAY = 10
    MAP = 11
    UNION = 12
    BRANCH = 13
    """No union, but the reader has one."""
    REJECTED = 14
    """A branch or a symbol that the reader does not take; its name says why."""


KINDS: Final = {kind.name.lower(): kind for kind in AvroKind} | {"string": AvroKind.BYTES}
"""Kinds by the names of Avro's types."""


@dataclass(frozen=True)
class Node:
    """A node of the plan by which Avro is decoded: a value as the writer has written it, and what
    becomes of it."""

    kind: AvroKind
    name: str = ""
    target: TargetColumn | None = None
    """The column of the value; None: the reader skips it."""
    nodes: tuple[Node, ...] = ()
    constants: tuple[Node, ...] = ()
    """Columns of a record that the writer does not have, each with its `constant`."""
    constant: bytes | None = None
    """The default of such a column, as a datum."""
    is_millis: bool = False
    scale: int = 0
    size: int = 0
    member: int = -1
    """The index of its member, where the reader's union is a STRUCT of its branches; -1: the value
    is that of the union."""
    key: str = field(default="", compare=False)
    """The name of the column in the record around it."""


# -- schemas -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Type:
    """A type of an Avro schema. A name in it is replaced by the type that it names."""

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
    """The items of an array, the values of a map, or the branches of a union."""

    @cached_property
    def nodes(self) -> int:
        """How many types it consists of, which bounds the columns that it becomes. Long symbols and
        defaults count as types."""
        symbols = sum(1 + len(symbol) // _CHARS_OF_NODE for symbol in self.symbols)
        fields = sum(
            field.type.nodes + len(str(field.default)) // _CHARS_OF_NODE for field in self.fields
        )
        return 1 + symbols + fields + sum(part.nodes for part in self.parts)

    @cached_property
    def depth(self) -> int:
        """How deeply types are nested in it; 1: it has no other types in it."""
        inner = (*self.parts, *(field.type for field in self.fields))
        return 1 + max((type_.depth for type_ in inner), default=0)

    @cached_property
    def arrow(self) -> pa.DataType:
        """The type of its column, as Spark has it. Raises Undecodable for a record without
        fields."""
        match self.kind:
            case "record" if not self.fields:
                raise Undecodable(f"{self.name} is a record without fields.")
            case "record":
                return pa.struct([pa.field(field.name, field.type.arrow) for field in self.fields])
            case "array":
                return pa.list_(pa.field("element", self.parts[0].arrow))
            case "map":
                return pa.map_(pa.string(), self.parts[0].arrow)
            case "union":
                return _union_type(self.branches)
            case "enum":
                return pa.string()
        if self.logical == "decimal":
            return pa.decimal128(*self.digits)
        if self.kind == "fixed":
            return pa.binary()
        return _LOGICAL.get((self.kind, self.logical), _PRIMITIVES[self.kind])

    @property
    def branches(self) -> tuple[Type, ...]:
        """The branches of a union without null; another type is its own branch."""
        parts = self.parts if self.kind == "union" else (self,)
        return tuple(part for part in parts if part.kind != "null")

    @cached_property
    def may_be_null(self) -> bool:
        """Whether null is a value: the type is null, or a union with null."""
        parts = self.parts if self.kind == "union" else (self,)
        return any(part.kind == "null" for part in parts)

    @cached_property
    def has_members(self) -> bool:
        """Whether it is a union that Spark has as a STRUCT with a member for each branch. A union
        of numbers, or of one type and null, is a single value."""
        return (
            self.kind == "union" and _wider_number(self.branches) is None and len(self.branches) > 1
        )

    @cached_property
    def written_branches(self) -> tuple[tuple[int, Type], ...]:
        """The branches of a union that its values are written as, one for each member, each with
        its number in the union. Of int and long Spark has one BIGINT, which is written as a
        long."""
        branches = [(number, part) for number, part in enumerate(self.parts) if part.kind != "null"]
        if self.has_members:
            return tuple(branches)
        wider = [(number, part) for number, part in branches if part.arrow == self.arrow]
        return tuple(wider or branches)

    @cached_property
    def may_be_empty(self) -> bool:
        """Whether a value of the type may take no bytes in a payload."""
        if self.kind == "record":
            return all(field.type.may_be_empty for field in self.fields)
        return self.kind == "null" or (self.kind == "fixed" and not self.size)


@dataclass(frozen=True)
class Field:
    """A field of a record."""

    name: str
    type: Type
    aliases: frozenset[str]
    default: Any
    """As the schema has it in JSON."""
    has_default: bool


def _union_type(branches: Sequence[Type]) -> pa.DataType:
    """Return the type of a union's column in Spark. `branches`: those beside null."""
    if len(branches) < 2:
        return branches[0].arrow if branches else pa.null()
    members = [pa.field(member_name(at), branch.arrow) for at, branch in enumerate(branches)]
    return _wider_number(branches) or pa.struct(members)


def member_name(number: int) -> str:
    """Return the name of a branch in the STRUCT that Spark makes of a union: member0, member1, …
    `number`: its index among the branches that are not null."""
    return f"member{number}"


def _wider_number(branches: Sequence[Type]) -> pa.DataType | None:
    """Return the wider type of a union of two numbers, such as BIGINT for int and long; None for
    any other union."""
    kinds = {branch.kind for branch in branches}
    return next((wide for types, wide in _NUMBER_UNIONS if kinds == types), None)


class _Parser:
    """Parses a schema, after the schemas that it refers to, whose names it may use.

    The text of its errors goes on after "The schema cannot be used:". In its methods `space` is the
    namespace that a declaration is in.
    """

    def __init__(self) -> None:
        self._named_types: dict[str, Type | None] = {}
        """By full names; None while the definition is parsed: the type would contain itself."""

    def parse(self, text: str) -> Type:
        """Parse the JSON of a schema. Raises Undecodable."""
        try:
            text.encode()
            declared = json.loads(text)
        except ValueError as error:
            raise Undecodable(f"it is not JSON: {error}") from None
        return self._parse_type(declared, "")

    def _parse_type(self, declared: Any, space: str) -> Type:
        """Parse the declaration of a type, given as decoded JSON, and check that the type is
        neither too large nor nested too deeply. `space`: the namespace that it is in."""
        type_ = self._parse_declaration(declared, space)
        if type_.nodes > MAX_NODES:
            raise Undecodable(f"it has more than {MAX_NODES:,} fields")
        if type_.depth > MAX_DEPTH:
            raise Undecodable("it is nested too deeply")
        return type_

    def _parse_declaration(self, declared: Any, space: str) -> Type:
        """Parse the declaration of a type by its form in JSON: a name, a list (a union) or an
        object. Raises Undecodable."""
        match declared:
            case str() if declared in _PRIMITIVES:
                return Type(declared)
            case str():
                return self._find_named(declared, space)
            case list():
                parts = tuple(self._parse_type(part, space) for part in declared)
                if any(part.kind == "union" for part in parts) or not parts:
                    raise Undecodable("a union has no union in it, and at least one type")
                if _wider_number([part for part in parts if part.kind != "null"]) is not None:
                    parts = tuple(
                        replace(part, logical="", declared="") for part in parts
                    )  # Spark has one number for them, which is no date and no time
                return Type("union", parts=parts)
            case {"type": "array", "items": items}:
                element = self._parse_type(items, space)
                if element.may_be_empty:
                    # A few bytes would be as many elements as one likes.
                    raise Undecodable("it has an array of elements without bytes")
                return Type("array", parts=(element,))
            case {"type": "map", "values": values}:
                return Type("map", parts=(self._parse_type(values, space),))
            case {"type": "record" | "error" | "enum" | "fixed", "name": str()}:
                return self._define(declared, space)
            case {"type": str(kind)} if kind in _PRIMITIVES:
                return _with_logical(Type(kind), declared)
            case {"type": str() | dict() | list() as inner}:
                return self._parse_type(inner, space)
        raise Undecodable(f"it has {json.dumps(declared)[:80]}, which is no type of Avro")

    def _find_named(self, name: str, space: str) -> Type:
        """Return the type that was defined under a name earlier in the schema: in the namespace
        `space`, or else by its full name. Raises Undecodable."""
        for full in (_full_name(name, space), name):
            if full in self._named_types:
                type_ = self._named_types[full]
                if type_ is None:
                    raise Undecodable(f"{name} contains itself, which a column cannot")
                return type_
        raise Undecodable(f"it does not define {name}")

    def _define(self, declared: Mapping[str, Any], space: str) -> Type:
        """Parse the definition of a record, an enum or a fixed, and remember it by its name.
        `space`: the namespace that the definition is in."""
        full = _full_name(declared["name"], declared.get("namespace", space))
        inside = full.rpartition(".")[0]
        type_ = Type(
            "record" if declared["type"] == "error" else declared["type"],
            full.rpartition(".")[2],
            frozenset(str(alias).rpartition(".")[2] for alias in declared.get("aliases") or ()),
        )
        self._named_types[full] = None  # until it is parsed: the type may not contain itself
        try:
            if type_.kind == "record":
                fields = [self._parse_field(field, inside) for field in declared["fields"]]
                if len({field.name for field in fields}) < len(fields):
                    raise Undecodable(f"its record {full} has a field twice")
                type_ = replace(type_, fields=tuple(fields))
            elif type_.kind == "enum":
                default = declared.get("default")
                type_ = replace(
                    type_,
                    symbols=_check_texts(declared["symbols"]),
                    default=None if default is None else _check_text(default),
                )
            else:
                type_ = _with_logical(replace(type_, size=_check_size(declared["size"])), declared)
        except (KeyError, TypeError, ValueError) as error:
            raise Undecodable(f"its {declared['type']} {full} is incomplete ({error})") from None
        self._named_types[full] = type_
        return type_

    def _parse_field(self, declared: Mapping[str, Any], space: str) -> Field:
        """Parse a field of a record. Raises KeyError or TypeError for a declaration that is no
        field."""
        return Field(
            _check_text(declared["name"]),
            self._parse_type(declared["type"], space),
            frozenset(_check_texts(declared.get("aliases") or [])),
            declared.get("default"),
            "default" in declared,
        )


def _check_text(declared: Any) -> str:
    """Return a name or symbol of a schema, given as decoded JSON. Raises TypeError if it is no
    text."""
    if not isinstance(declared, str):
        raise TypeError(f"{json.dumps(declared)[:80]} is no text")
    return declared


def _check_texts(declared: Any) -> tuple[str, ...]:
    """Return a list of names or symbols of a schema. Raises TypeError for anything else."""
    if not isinstance(declared, list):
        raise TypeError(f"{json.dumps(declared)[:80]} is no list")
    return tuple(_check_text(text) for text in declared)


def _check_size(declared: Any) -> int:
    """Return the size of a fixed. Raises TypeError for anything else."""
    if type(declared) is not int or not 0 <= declared <= MAX_FIXED_BYTES:
        raise TypeError(f"{json.dumps(declared)[:80]} is no size")
    return declared


def _full_name(name: str, space: str) -> str:
    """Return a name with its namespace, unless it has one."""
    return f"{space}.{name}" if space and "." not in name else name


def _with_logical(type_: Type, declared: Mapping[str, Any]) -> Type:
    """Return a type with the logical type (date, decimal, …) of its declaration, if Spark knows it;
    others are ignored, as Avro demands."""
    logical = str(declared.get("logicalType") or "")
    type_ = replace(type_, declared=logical)
    if (type_.kind, logical) in _LOGICAL:
        return replace(type_, logical=logical)
    if logical == "decimal" and type_.kind in ("bytes", "fixed"):
        precision, scale = declared.get("precision"), declared.get("scale", 0)
        if (
            type(precision) is type(scale) is int
            and 0 < precision <= _MAX_DIGITS
            and 0 <= scale <= precision
        ):
            return replace(type_, logical=logical, digits=(precision, scale))
    return type_


def parse_record(schema: PayloadSchema) -> Type:
    """Parse an Avro schema as a record; a schema of another type becomes a record with one field of
    it. Raises Undecodable."""
    parser = _Parser()
    try:
        for reference in schema.references:  # they define names that the schema uses
            parser.parse(reference.text)
        type_ = parser.parse(schema.text)
    except Undecodable as error:
        name = f" {schema.name}" if schema.name else ""
        raise Undecodable(f"The Avro schema{name} cannot be used: {error}.") from None
    except RecursionError:
        raise Undecodable("The Avro schema is nested too deeply.") from None
    if type_.kind == "record":
        return type_
    field = Field(_VALUE, type_, aliases=frozenset(), default=None, has_default=False)
    return Type("record", fields=(field,))


def reader_record(schema: PayloadSchema) -> Type:
    """Parse the reader's schema as a record, with the fields that it had in former versions, so
    that their columns stay. Raises Undecodable."""
    record = parse_record(schema)
    for version in schema.former:
        with suppress(Undecodable):  # of a schema that nobody can have written with
            extended = _with_dropped_fields(record, parse_record(version))
            if extended.nodes <= MAX_NODES:  # else it goes without the fields of this version
                record = extended
    return record


def _with_dropped_fields(current: Type, former: Type) -> Type:
    """Return a type with the fields that only its former version has, at any depth; these may be
    null."""
    if len(current.branches) != 1 or len(former.branches) != 1:  # a union of several types
        return current
    if current.kind == "union":  # of null and a type
        parts = (
            part if part.kind == "null" else _with_dropped_fields(part, former)
            for part in current.parts
        )
        return replace(current, parts=tuple(parts))
    (former,) = former.branches
    if current.kind != former.kind:
        return current
    match current.kind:
        case "record":
            before = {field.name: field for field in former.fields}
            fields = [_with_former_type(field, before) for field in current.fields]
            names = {name for field in current.fields for name in (field.name, *field.aliases)}
            return replace(
                current,
                fields=(
                    *fields,
                    *(_nullable_field(field) for field in former.fields if field.name not in names),
                ),
            )
        case "array" | "map":
            return replace(
                current, parts=(_with_dropped_fields(current.parts[0], former.parts[0]),)
            )
    return current


def _with_former_type(field: Field, before: Mapping[str, Field]) -> Field:
    """Return a field with the fields, in records of its type, that only its former version has.
    `before`: all former fields, by name."""
    earlier = next((before[name] for name in (field.name, *field.aliases) if name in before), None)
    if earlier is None:
        return field
    return replace(field, type=_with_dropped_fields(field.type, earlier.type))


def _nullable_field(field: Field) -> Field:
    """Return a field that the current schema has dropped as one that may be null, and is null by
    default: payloads of the current schema do not have it."""
    type_ = field.type
    if not type_.may_be_null:
        parts = type_.parts if type_.kind == "union" else (type_,)
        type_ = Type("union", parts=(Type("null"), *parts))
    return replace(field, type=type_, default=None, has_default=True)


def fields_of(schema: PayloadSchema) -> pa.Schema:
    """Return the columns that payloads of a schema become. Raises ConfigError."""
    try:
        return pa.schema(list(reader_record(schema).arrow))
    except Undecodable as error:
        raise UnusableSchema(str(error)) from None


def in_words(type_: Type) -> str:
    """Return the name of a type for a sentence: "int or null" for a union."""
    return " or ".join(part.name or part.kind for part in type_.parts or (type_,))
