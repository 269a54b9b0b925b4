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
    """Decodes payloads that are one message of Protobuf. It takes those of every version of the
    schema, since fields have the same numbers in all of them."""

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
        # A repeated message is two columns within each other: a list and its items.
        self.columns = KernelColumns(self._declared, 2 * MAX_DEPTH)
        self.plan = _plan_messages(self.descriptor)

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode payloads: return the columns, in the order of the selected fields, and for each
        payload why it does not fit, or null."""
        columns, reasons = super().decode(payloads)
        by_name = dict(zip((field.name for field in self._declared), columns, strict=True))
        return [by_name[name] for name in self.fields.names], reasons

    def decode_plainly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode without the C kernel; see `decode`. The columns are in the order of the schema."""
        columns, unparsed, misfits = protobuf_plain.decode(
            self.descriptor, self._parsed, self._declared, payloads, self.name
        )
        reasons = describe_misfits(misfits, len(payloads), self.name)
        return columns, pc.coalesce(pa.array(unparsed, pa.string()), reasons)

    @cached_property
    def _parsed(self) -> Any:
        """The message's descriptor for parsing in Python, where maps are lists of entries: of a map
        the library would keep only the last entry of a key."""
        return descriptor_of(self._schema, self._selected, maps_as_lists=True)


# -- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FieldPlan:
    """How the C kernel decodes a field of a message."""

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
    """Return the plan by which the C kernel decodes a message, each field before those in it, and
    the names of the fields."""
    root = TargetColumn(0, pa.struct(list(fields_of(message))))
    fields = _plan_fields(message, root, frozenset({message.full_name}))
    plan, names = bytearray(), []

    def add(field: _FieldPlan) -> None:
        """Append a field, and then those in it."""
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
    """Return how to decode each field of a message, in the order of their numbers. `target`: the
    message's column, a STRUCT; `ancestors`: the names of the messages that it is in, and its
    own."""
    plans = []
    last_members: dict[str, int] = {}  # by their oneofs
    is_entry = bool(message.GetOptions().map_entry)
    by_number = sorted(enumerate(message.fields), key=lambda declared: declared[1].number)
    for at, (column, field) in enumerate(by_number):
        plan = _plan_field(field, target.child(column), ancestors, is_entry=is_entry)
        oneof = field.containing_oneof
        # A message has at most one member of a oneof: each that is read clears the one before.
        if oneof is not None and len(oneof.fields) > 1:
            plan = replace(plan, previous_member=1 + last_members.get(oneof.name, at))
            last_members[oneof.name] = at
        plans.append(plan)
    return tuple(plans)


def _plan_field(
    field: Any, target: TargetColumn, ancestors: frozenset[str], *, is_entry: bool
) -> _FieldPlan:
    """Return how to decode a field of a message. `target`: its column; `ancestors`: the names of
    the messages that it is in; `is_entry`: whether it is in an entry of a map, or the value of a
    wrapper, and so has a default."""
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
