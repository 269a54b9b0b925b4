"""Messages of Protobuf as columns, by a plan of their fields.

The C kernel (`wire/_protobuf.h`) follows the plan; `protobuf_plain` decodes with Protobuf's own
library where the kernel was not built.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.payloads import protobuf_plain
from jetspark.payloads.columns import KernelColumns, PlannedDecoder, TargetColumn, describe_misfits
from jetspark.payloads.protobuf_schema import (
    MAX_DEPTH,
    ProtobufKind,
    descriptor_of,
    fields_of,
    kind_of,
)
from jetspark.payloads.schema import PayloadSchema
from jetspark.wire.kernel import protobuf_columns

_FIELD: Final = struct.Struct("=BBBBiiII")


class ProtobufDecoder(PlannedDecoder):
    """Decodes the messages of one type. It has the versions of all writers, as Protobuf has them:
    by the numbers of the fields."""

    kernel = staticmethod(protobuf_columns) if protobuf_columns else None

    def __init__(self, schema: PayloadSchema, fields: Collection[str] | None = None) -> None:
        """`schema`: a result of `message_of`; `fields`: the selected ones, None for all. Raises
        ConfigError."""
        self.descriptor = descriptor_of(schema, fields)
        self._schema, self._selected = schema, fields
        declared = fields_of(self.descriptor)
        self._declared = list(declared)
        names = declared.names
        order = names if fields is None else [name for name in fields if name in names]
        self.fields = pa.schema([declared.field(name) for name in order])
        self.name = f"{schema.name} in Protobuf"
        self.columns = KernelColumns(self._declared, 2 * MAX_DEPTH)
        self.plan = plan_messages(self.descriptor)

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """See PlannedDecoder."""
        columns, reasons = super().decode(payloads)
        by_name = dict(zip((field.name for field in self._declared), columns, strict=True))
        return [by_name[name] for name in self.fields.names], reasons

    def decode_plainly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """See PlannedDecoder; the fields are in the order of their declaration."""
        columns, unparsed, misfits = protobuf_plain.decode(
            self.descriptor, self._parsed, self._declared, payloads, self.name
        )
        reasons = describe_misfits(misfits, len(payloads), self.name)
        return columns, pc.coalesce(pa.array(unparsed, pa.string()), reasons)

    @cached_property
    def _parsed(self) -> Any:
        return descriptor_of(self._schema, self._selected, maps_as_lists=True)


# -- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Field:
    kind: ProtobufKind
    name: str
    number: int
    target: TargetColumn
    fields: tuple[_Field, ...] = ()
    """Fields of a message, by their numbers."""
    is_repeated: bool = False
    has_default: bool = False
    is_message: bool = False
    oneof: int = 0
    """One more than the place of the member before, or of its own; 0: it is in none."""


def plan_messages(message: Any) -> tuple[bytes, tuple[bytes, ...]]:
    """The plan of a message for the kernel, and the names of its fields."""
    columns = pa.struct(list(fields_of(message)))
    fields = _fields(message, TargetColumn(0, columns), frozenset({message.full_name}))
    plan, names = bytearray(), []

    def add(field: _Field) -> None:
        plan.extend(
            _FIELD.pack(
                *(field.kind, field.is_repeated, field.has_default, field.is_message),
                *(field.number, field.target.number, field.oneof, len(field.fields)),
            )
        )
        names.append(field.name.encode())
        for child in field.fields:
            add(child)

    add(_Field(ProtobufKind.MESSAGE, "", 0, TargetColumn(0, columns), fields))
    return bytes(plan), tuple(names)


def _fields(message: Any, target: TargetColumn, ancestors: frozenset[str]) -> tuple[_Field, ...]:
    """The fields of a message in a STRUCT, by their numbers."""
    planned = []
    members: dict[str, int] = {}
    is_entry = bool(message.GetOptions().map_entry)
    by_number = sorted(enumerate(message.fields), key=lambda declared: declared[1].number)
    for at, (column, declared) in enumerate(by_number):
        field = _field(declared, target.child(column), ancestors, is_entry=is_entry)
        group = declared.containing_oneof
        if group is not None and len(group.fields) > 1:
            before = members.get(group.name, at)
            members[group.name] = at
            field = replace(field, oneof=before + 1)
        planned.append(field)
    return tuple(planned)


def _field(
    field: Any, target: TargetColumn, ancestors: frozenset[str], *, is_entry: bool
) -> _Field:
    message, kind = field.message_type, kind_of(field, ancestors)
    several = field.is_repeated
    value = target.child(0) if several else target
    fields: tuple[_Field, ...] = ()
    match kind:
        case ProtobufKind.MAP:
            fields = _fields(message, value, ancestors)
        case ProtobufKind.MESSAGE:
            fields = _fields(message, value, ancestors | {message.full_name})
        case ProtobufKind.WRAPPER:
            inner = _field(message.fields_by_name["value"], value, ancestors, is_entry=True)
            fields = (inner,)
        case ProtobufKind.ENUM:
            names: dict[int, str] = {}
            for symbol in field.enum_type.values:
                names.setdefault(symbol.number, symbol.name)
            fields = tuple(
                _Field(ProtobufKind.STRING, names[number], number, value)
                for number in sorted(names)
            )
    return _Field(
        kind,
        field.name,
        field.number,
        target,
        fields,
        is_repeated=several,
        has_default=message is None and (is_entry or not field.has_presence),
        is_message=message is not None,
    )
