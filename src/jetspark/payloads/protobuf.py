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
    """Decodes the messages of one type. It takes those of every version of the schema, since fields
    have the same numbers in all of them."""

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
        self.plan = _plan_messages(self.descriptor)

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
        """The descriptor for parsing in Python: the library would keep only the last entry of a
        key in a map."""
        return descriptor_of(self._schema, self._selected, maps_as_lists=True)


# -- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FieldPlan:
    """How the kernel decodes a field."""

    kind: ProtobufKind
    name: str
    number: int
    target: TargetColumn
    fields: tuple[_FieldPlan, ...] = ()
    """Of a message its fields, by their numbers; of an enum its symbols."""
    is_repeated: bool = False
    has_default: bool = False
    """Whether a missing field has the default of its type, rather than null."""
    is_message: bool = False
    previous_member: int = 0
    """Of a field in a oneof: 1 + the index of the member before it, of its own for the first."""


def _plan_messages(message: Any) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the plan of a message for the kernel, and the names of its fields."""
    root = TargetColumn(0, pa.struct(list(fields_of(message))))
    fields = _plan_fields(message, root, frozenset({message.full_name}))
    plan, names = bytearray(), []

    def add(field: _FieldPlan) -> None:
        plan.extend(
            _FIELD.pack(
                *(field.kind, field.is_repeated, field.has_default, field.is_message),
                *(field.number, field.target.number, field.previous_member, len(field.fields)),
            )
        )
        names.append(field.name.encode())
        for child in field.fields:
            add(child)

    add(_FieldPlan(ProtobufKind.MESSAGE, "", 0, root, fields))
    return bytes(plan), tuple(names)


def _plan_fields(
    message: Any, target: TargetColumn, ancestors: frozenset[str]
) -> tuple[_FieldPlan, ...]:
    """Return the plans of a message's fields, by their numbers. `target`: its column, a STRUCT;
    `ancestors`: the messages that it is in, and itself."""
    plans = []
    last_members: dict[str, int] = {}  # by their oneofs
    is_entry = bool(message.GetOptions().map_entry)
    by_number = sorted(enumerate(message.fields), key=lambda declared: declared[1].number)
    for at, (column, field) in enumerate(by_number):
        plan = _plan_field(field, target.child(column), ancestors, is_entry=is_entry)
        oneof = field.containing_oneof
        if oneof is not None and len(oneof.fields) > 1:
            plan = replace(plan, previous_member=1 + last_members.get(oneof.name, at))
            last_members[oneof.name] = at
        plans.append(plan)
    return tuple(plans)


def _plan_field(
    field: Any, target: TargetColumn, ancestors: frozenset[str], *, is_entry: bool
) -> _FieldPlan:
    """Return the plan of a field. `is_entry`: whether it is in an entry of a map, or a wrapper."""
    message, kind = field.message_type, kind_of(field, ancestors)
    value = target.child(0) if field.is_repeated else target
    fields: tuple[_FieldPlan, ...] = ()
    match kind:
        case ProtobufKind.MAP:
            fields = _plan_fields(message, value, ancestors)
        case ProtobufKind.MESSAGE:
            fields = _plan_fields(message, value, ancestors | {message.full_name})
        case ProtobufKind.WRAPPER:
            wrapped = message.fields_by_name["value"]
            fields = (_plan_field(wrapped, value, ancestors, is_entry=True),)
        case ProtobufKind.ENUM:
            names: dict[int, str] = {}
            for symbol in field.enum_type.values:  # the first one of several aliases
                names.setdefault(symbol.number, symbol.name)
            fields = tuple(
                _FieldPlan(ProtobufKind.STRING, name, number, value)
                for number, name in sorted(names.items())
            )
    return _FieldPlan(
        kind,
        field.name,
        field.number,
        target,
        fields,
        is_repeated=field.is_repeated,
        has_default=message is None and (is_entry or not field.has_presence),
        is_message=message is not None,
    )
