"""What the fields of Protobuf's messages become: columns, and a plan of how they are read.

The types are those of Spark's `from_protobuf`; docs/payloads.md has the differences. The C
kernel (`wire/_protobuf.h`) follows the plan.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

import pyarrow as pa

from jetspark.codecs.kernel_columns import Slot

_FIELD: Final = struct.Struct("=BBBBiiII")
_US: Final = pa.timestamp("us", tz="UTC")
_UNSIGNED: Final = pa.decimal128(20, 0)


class Kind(IntEnum):
    """What a field is; the numbers are those of the C kernel."""

    DOUBLE = 0
    FLOAT = 1
    INT64 = 2
    UINT64 = 3
    INT32 = 4
    UINT32 = 5
    BOOL = 6
    SINT32 = 7
    SINT64 = 8
    FIXED64 = 9
    FIXED32 = 10
    SFIXED64 = 11
    SFIXED32 = 12
    STRING = 13
    BYTES = 14
    """Also a message that contains itself, as it came."""
    ENUM = 15
    """Its fields are the symbols."""
    MESSAGE = 16
    MAP = 17
    WRAPPER = 18
    """A message of one field, whose value is the column."""
    TIMESTAMP = 19
    DURATION = 20
    DATE = 21
    TIME_OF_DAY = 22
    LIST = 23
    """Only written: the values of a field that is repeated."""


_SCALARS: Final = {
    1: (Kind.DOUBLE, pa.float64()),
    2: (Kind.FLOAT, pa.float32()),
    3: (Kind.INT64, pa.int64()),
    4: (Kind.UINT64, _UNSIGNED),
    5: (Kind.INT32, pa.int32()),
    6: (Kind.FIXED64, _UNSIGNED),
    7: (Kind.FIXED32, pa.int64()),
    8: (Kind.BOOL, pa.bool_()),
    9: (Kind.STRING, pa.string()),
    12: (Kind.BYTES, pa.binary()),
    13: (Kind.UINT32, pa.int64()),
    14: (Kind.ENUM, pa.string()),
    15: (Kind.SFIXED32, pa.int32()),
    16: (Kind.SFIXED64, pa.int64()),
    17: (Kind.SINT32, pa.int32()),
    18: (Kind.SINT64, pa.int64()),
}
"""By the numbers of Protobuf's `FieldDescriptorProto.Type`."""
_KNOWN: Final = {
    "google.protobuf.Timestamp": (Kind.TIMESTAMP, _US),
    "google.protobuf.Duration": (Kind.DURATION, pa.int64()),
    "google.type.Date": (Kind.DATE, pa.date32()),
    "google.type.TimeOfDay": (Kind.TIME_OF_DAY, pa.int64()),
}
"""Messages that are a single value."""
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)


def kind_of(field: Any, around: frozenset[str]) -> Kind:
    """What a value of a field is. `around`: the messages that it is in."""
    message = field.message_type
    if message is None:
        return _SCALARS[field.type][0]
    if is_map(field):
        return Kind.MAP
    if message.full_name in _KNOWN:
        return _KNOWN[message.full_name][0]
    if message.full_name in _WRAPPERS:
        return Kind.WRAPPER
    return Kind.BYTES if message.full_name in around else Kind.MESSAGE


def fields_of(message: Any) -> pa.Schema:
    """The columns of a message's fields, in the order of its declaration."""
    return pa.schema(_columns(message, frozenset({message.full_name})))


def _columns(message: Any, around: frozenset[str]) -> list[pa.Field]:
    return [pa.field(one.name, _type(one, around)) for one in message.fields]


def _type(field: Any, around: frozenset[str]) -> pa.DataType:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[one] for one in ("key", "value"))
        return pa.map_(_type_of_value(key, around), _type_of_value(value, around))
    kind = _type_of_value(field, around)
    return pa.list_(pa.field("element", kind)) if field.is_repeated else kind


def _type_of_value(field: Any, around: frozenset[str]) -> pa.DataType:
    message = field.message_type
    match kind_of(field, around):
        case Kind.WRAPPER:
            return _type_of_value(message.fields_by_name["value"], around)
        case Kind.MESSAGE:
            return pa.struct(_columns(message, around | {message.full_name}))
        case Kind.BYTES if message is not None:
            return pa.binary()
    return (_SCALARS[field.type] if message is None else _KNOWN[message.full_name])[1]


# -- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Field:
    kind: Kind
    name: str
    number: int
    slot: Slot
    fields: tuple[_Field, ...] = ()
    """By their numbers."""
    is_repeated: bool = False
    has_default: bool = False
    is_message: bool = False
    oneof: int = 0
    """One more than the place of the member before, or of its own; 0: it is in none."""


def plan_messages(message: Any) -> tuple[bytes, tuple[bytes, ...]]:
    """The plan of a message for the kernel, and the names of its fields."""
    columns = pa.struct(list(fields_of(message)))
    fields = _fields(message, Slot(0, columns), frozenset({message.full_name}))
    plan, names = bytearray(), []

    def add(field: _Field) -> None:
        plan.extend(
            _FIELD.pack(
                *(field.kind, field.is_repeated, field.has_default, field.is_message),
                *(field.number, field.slot.number, field.oneof, len(field.fields)),
            )
        )
        names.append(field.name.encode())
        for one in field.fields:
            add(one)

    add(_Field(Kind.MESSAGE, "", 0, Slot(0, columns), fields))
    return bytes(plan), tuple(names)


def _fields(message: Any, slot: Slot, around: frozenset[str]) -> tuple[_Field, ...]:
    """The fields of a message in a STRUCT, by their numbers."""
    found = []
    members: dict[str, int] = {}
    is_entry = bool(message.GetOptions().map_entry)
    by_number = sorted(enumerate(message.fields), key=lambda one: one[1].number)
    for at, (column, one) in enumerate(by_number):
        field = _field(one, slot.below(column), around, is_entry=is_entry)
        group = one.containing_oneof
        if group is not None and len(group.fields) > 1:
            before = members.get(group.name, at)
            members[group.name] = at
            field = replace(field, oneof=before + 1)
        found.append(field)
    return tuple(found)


def _field(field: Any, slot: Slot, around: frozenset[str], *, is_entry: bool) -> _Field:
    message, kind = field.message_type, kind_of(field, around)
    several = field.is_repeated
    value = slot.below(0) if several else slot
    fields: tuple[_Field, ...] = ()
    match kind:
        case Kind.MAP:
            fields = _fields(message, value, around)
        case Kind.MESSAGE:
            fields = _fields(message, value, around | {message.full_name})
        case Kind.WRAPPER:
            inner = _field(message.fields_by_name["value"], value, around, is_entry=True)
            fields = (inner,)
        case Kind.ENUM:
            names: dict[int, str] = {}
            for symbol in field.enum_type.values:
                names.setdefault(symbol.number, symbol.name)
            fields = tuple(
                _Field(Kind.STRING, names[number], number, value) for number in sorted(names)
            )
    return _Field(
        kind,
        field.name,
        field.number,
        slot,
        fields,
        is_repeated=several,
        has_default=message is None and (is_entry or not field.has_presence),
        is_message=message is not None,
    )
