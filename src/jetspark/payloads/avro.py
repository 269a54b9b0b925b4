"""Datums of Avro as columns: Avro's "Schema Resolution" of a writer's and a reader's schema.

A plan is a tree of what the writer has written, in its order. A node says into which column its
value goes, if anybody wants it. What is of no use in a schema is found here, when both are
compared; what is wrong with a value, when it is decoded. The C kernel (`wire/_avro.h`) and
`avro_plain` follow the same plan. The types are those of Spark's `from_avro`; docs/payloads.md has
the differences.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import pyarrow as pa

from jetspark.payloads import avro_plain
from jetspark.payloads.avro_encoder import default_datum
from jetspark.payloads.avro_schema import (
    KINDS,
    MAX_DEPTH,
    PROMOTIONS,
    AvroKind,
    Field,
    Node,
    Type,
    in_words,
    parse_record,
    reader_record,
)
from jetspark.payloads.columns import KernelColumns, PlannedDecoder, TargetColumn, describe_misfits
from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.schema import PayloadSchema
from jetspark.wire.kernel import avro_columns

_NODE: Final = struct.Struct("=BBBBiiIII")
_SAME_MEANING: Final = (
    {"timestamp-millis", "timestamp-micros"},
    {"local-timestamp-millis", "local-timestamp-micros"},
)
"""Logical types of which one is converted into the other. A number of any other one would be taken
for another value."""


class AvroDecoder(PlannedDecoder):
    """Decodes datums of a writer's schema into fields of the reader's."""

    kernel = staticmethod(avro_columns) if avro_columns else None

    def __init__(self, writer: PayloadSchema, reader: PayloadSchema, fields: Sequence[str]) -> None:
        """`fields`: the selected ones of the reader's, in their order. Raises Undecodable."""
        written = parse_record(writer)
        fields_by_name = {field.name: field for field in reader_record(reader).fields}
        selected = [fields_by_name[name] for name in fields]
        self.fields = [pa.field(field.name, field.type.arrow) for field in selected]
        self.root = plan_datums(written, selected)
        self.name = f"{written.name or 'datum'} in Avro"
        self.columns = KernelColumns(self.fields, MAX_DEPTH)
        self.plan = pack_plan(self.root)

    def decode_plainly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """See PlannedDecoder."""
        columns, misfits = avro_plain.decode(self.root, self.fields, payloads)
        return columns, describe_misfits(misfits, len(payloads), self.name)


def pack_plan(root: Node) -> tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]:
    """Return a plan in the kernel's form: its nodes, their names, and constants."""
    nodes, names, constants = bytearray(), [], []

    def add(node: Node) -> None:
        nodes.extend(
            _NODE.pack(
                *(node.kind, node.is_millis, node.scale, node.constant is not None),
                *(-1 if node.target is None else node.target.number, node.member),
                *(node.size, len(node.nodes), len(node.constants)),
            )
        )
        names.append(node.name.encode())
        if node.constant is not None:
            constants.append(node.constant)
        for child in (*node.nodes, *node.constants):
            add(child)

    add(root)
    return bytes(nodes), tuple(names), tuple(constants)


def plan_datums(writer: Type, fields: Sequence[Field]) -> Node:
    """Return the plan of a writer's datums for these fields of the reader's. Raises Undecodable."""
    columns = pa.struct([pa.field(field.name, field.type.arrow) for field in fields])
    return _record(writer, fields, TargetColumn(0, columns), "")


def _resolve(writer: Type, reader: Type, target: TargetColumn, name: str) -> Node:
    """Raises Undecodable if the reader takes no value of the writer's."""
    if writer.kind == "union" or reader.kind == "union":
        return _branches(writer, reader, target, name)
    if writer.kind != reader.kind and (writer.kind, reader.kind) not in PROMOTIONS:
        raise Undecodable(f"{name} is {writer.kind}, not {reader.kind}.")
    node = Node(KINDS[writer.kind], target=target, size=writer.size)
    match reader.kind:
        case "record":
            return _record(writer, reader.fields, target, f"{name}.")
        case "array":
            item = _resolve(writer.parts[0], reader.parts[0], target.child(0), name)
            return replace(node, nodes=(item,))
        case "map":
            value = target.child(0).child(1)
            return replace(node, nodes=(_resolve(writer.parts[0], reader.parts[0], value, name),))
        case "enum":
            return replace(node, nodes=_symbols(writer, reader, name))
        case "fixed" if writer.size != reader.size:
            raise Undecodable(f"{name} has {writer.size} bytes, not {reader.size}.")
    if (writer.logical == "decimal") != (reader.logical == "decimal"):
        kinds = [type_.logical or type_.kind for type_ in (writer, reader)]
        raise Undecodable(f"{name} is {kinds[0]}, not {kinds[1]}.")
    if {writer.declared, reader.declared} not in _SAME_MEANING and (
        writer.declared and reader.declared and writer.declared != reader.declared
    ):
        raise Undecodable(f"{name} is {writer.declared}, not {reader.declared}.")
    unit = writer.logical if "timestamp" in writer.logical else reader.logical
    is_millis = pa.types.is_timestamp(target.kind) and unit.endswith("-millis")
    return replace(node, is_millis=is_millis, scale=writer.digits[1])


def _record(writer: Type, fields: Sequence[Field], target: TargetColumn, name: str) -> Node:
    """`name`: of the record with a point, for errors."""
    selected: dict[int, Node] = {}
    constants = []
    for at, field in enumerate(fields):
        position, below = _written_position(writer, field), target.child(at)
        if position is None:
            datum = default_datum(field, f"{name}{field.name}")
            constant = _resolve(field.type, field.type, below, f"{name}{field.name}")
            constants.append(replace(constant, name=field.name, constant=datum, key=field.name))
        elif position in selected:
            twice = writer.fields[position].name
            raise Undecodable(f"{name}{twice} is two fields of the schema, by its aliases.")
        else:
            node = _resolve(writer.fields[position].type, field.type, below, f"{name}{field.name}")
            selected[position] = replace(node, name=field.name, key=field.name)
    nodes = [
        selected.get(at) or replace(_skipped(field.type), name=field.name)
        for at, field in enumerate(writer.fields)
    ]
    return Node(AvroKind.RECORD, target=target, nodes=tuple(nodes), constants=tuple(constants))


def _written_position(writer: Type, field: Field) -> int | None:
    """The field of the writer's, by its name, or by a former one."""
    names = [written.name for written in writer.fields]
    for name in (field.name, *sorted(field.aliases)):
        if name in names:
            return names.index(name)
    return None


def _skipped(type_: Type) -> Node:
    """Return the node of a value that the reader skips."""
    inner = tuple(replace(_skipped(written.type), name=written.name) for written in type_.fields)
    inner += tuple(map(_skipped, type_.parts))
    inner += tuple(Node(AvroKind.NULL, name=symbol) for symbol in type_.symbols)
    return Node(KINDS[type_.kind], nodes=inner, size=type_.size)


def _symbols(writer: Type, reader: Type, name: str) -> tuple[Node, ...]:
    """Each symbol as the reader has it."""
    symbols = ", ".join(reader.symbols)

    def node(symbol: str) -> Node:
        text = symbol if symbol in reader.symbols else reader.default
        if text is not None:
            return Node(AvroKind.NULL, name=text)
        return Node(AvroKind.REJECTED, name=f"{name} is {symbol}; the schema has {symbols}.")

    return tuple(map(node, writer.symbols))


def _branches(writer: Type, reader: Type, target: TargetColumn, name: str) -> Node:
    """Each branch of the writer's becomes the first one of the reader's that takes it."""
    written = writer.parts if writer.kind == "union" else (writer,)
    nodes = [_branch(branch, reader, target, name) for branch in written]
    if all(node.kind is AvroKind.REJECTED for node in nodes):
        raise Undecodable(f"{name} is {in_words(writer)}, not {in_words(reader)}.")
    if writer.kind == "union":
        return Node(AvroKind.UNION, target=target, nodes=tuple(nodes))
    (node,) = nodes
    return node if node.member < 0 else Node(AvroKind.BRANCH, target=target, nodes=(node,))


def _branch(written: Type, reader: Type, target: TargetColumn, name: str) -> Node:
    """The branch of the reader's that takes a type: the same type rather than a wider one."""
    if written.kind == "null":
        if reader.may_be_null:
            return Node(AvroKind.NULL, target=target)
        return Node(AvroKind.REJECTED, name=f"{name} is null, not {in_words(reader)}.")
    branches = reader.branches
    order = sorted(
        range(len(branches)),
        key=lambda at: (branches[at].kind, branches[at].name) != (written.kind, written.name),
    )
    for at in order:
        with suppress(Undecodable):
            if reader.has_members:
                return replace(_resolve(written, branches[at], target.child(at), name), member=at)
            return _resolve(written, branches[at], target, name)
    return Node(AvroKind.REJECTED, name=f"{name} is {in_words(written)}, not {in_words(reader)}.")
