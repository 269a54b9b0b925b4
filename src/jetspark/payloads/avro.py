"""Datums of Avro as columns: Avro's "Schema Resolution" of a writer's and a reader's schema.

A plan is a tree of what the writer has written, in its order. A node says into which column its
value goes, if the reader has it. Schemas that do not go together are refused here; what is wrong
with a value is found when it is decoded. The C kernel (`wire/_avro.h`) and `avro_plain` follow the
same plan. The types are those of Spark's `from_avro`; docs/payloads.md has the differences.
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
"""Logical types that are converted into each other: they differ in the unit only."""


class AvroDecoder(PlannedDecoder):
    """Decodes Avro payloads that were written with one schema (the writer's) into columns by the
    schema that the user wants (the reader's)."""

    kernel = staticmethod(avro_columns) if avro_columns else None

    def __init__(self, writer: PayloadSchema, reader: PayloadSchema, fields: Sequence[str]) -> None:
        """Plan the decoding. `fields`: names of the reader's fields to decode, in the order of the
        columns. Raises Undecodable if the reader's schema cannot take the writer's values."""
        written = parse_record(writer)
        fields_by_name = {field.name: field for field in reader_record(reader).fields}
        selected = [fields_by_name[name] for name in fields]
        self.fields = [pa.field(field.name, field.type.arrow) for field in selected]
        columns = TargetColumn(0, pa.struct(self.fields))
        self.root = _plan_record(written, selected, columns, prefix="")
        self.name = f"{written.name or 'datum'} in Avro"
        self.columns = KernelColumns(self.fields, MAX_DEPTH)
        self.plan = _pack_plan(self.root)

    def decode_plainly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode without the C kernel: return a column for each field, and for each payload the
        reason why it does not fit, or null."""
        columns, misfits = avro_plain.decode(self.root, self.fields, payloads)
        return columns, describe_misfits(misfits, len(payloads), self.name)


def _pack_plan(root: Node) -> tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]:
    """Return a plan of decoding, a tree of nodes, as bytes for the C kernel, each node before those
    below it; then the nodes' names, and the constants (defaults, encoded in Avro)."""
    nodes, names, constants = bytearray(), [], []

    def add(node: Node) -> None:
        """Append a node, and then those below it."""
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


# -- resolution ----------------------------------------------------------------------------------
# `path` is the way to a value, for errors. All of these functions raise Undecodable if the reader
# cannot take the values of the writer.


def _plan_value(writer: Type, reader: Type, target: TargetColumn, path: str) -> Node:
    """Return how to decode values of the writer's type into a column of the reader's type.
    `target`: the column; `path`: the way to the value, for errors. Raises Undecodable if the
    reader's type cannot take them."""
    if writer.kind == "union" or reader.kind == "union":
        return _plan_union(writer, reader, target, path)
    if writer.kind != reader.kind and (writer.kind, reader.kind) not in PROMOTIONS:
        raise Undecodable(f"{path} is {writer.kind}, not {reader.kind}.")
    node = Node(KINDS[writer.kind], target=target, size=writer.size)
    match reader.kind:
        case "record":
            return _plan_record(writer, reader.fields, target, f"{path}.")
        case "array":
            item = _plan_value(writer.parts[0], reader.parts[0], target.child(0), path)
            return replace(node, nodes=(item,))
        case "map":
            value = target.child(0).child(1)  # a map is a list of entries: key, then value
            item = _plan_value(writer.parts[0], reader.parts[0], value, path)
            return replace(node, nodes=(item,))
        case "enum":
            return replace(node, nodes=_plan_symbols(writer, reader, path))
        case "fixed" if writer.size != reader.size:
            raise Undecodable(f"{path} has {writer.size} bytes, not {reader.size}.")
    _check_logical_types(writer, reader, path)
    # A plain long is read in the unit of the reader.
    unit = writer.logical if "timestamp" in writer.logical else reader.logical
    is_millis = pa.types.is_timestamp(target.kind) and unit.endswith("-millis")
    return replace(node, is_millis=is_millis, scale=writer.digits[1])


def _check_logical_types(writer: Type, reader: Type, path: str) -> None:
    """Raise Undecodable if a number that the writer stored would mean another value to the reader,
    such as a date to a reader of times."""
    if (writer.logical == "decimal") != (reader.logical == "decimal"):
        kinds = [type_.logical or type_.kind for type_ in (writer, reader)]
        raise Undecodable(f"{path} is {kinds[0]}, not {kinds[1]}.")
    declared = {writer.declared, reader.declared}  # "": a plain number, which goes with all
    if "" not in declared and len(declared) == 2 and declared not in _SAME_MEANING:
        raise Undecodable(f"{path} is {writer.declared}, not {reader.declared}.")


def _plan_record(writer: Type, fields: Sequence[Field], target: TargetColumn, prefix: str) -> Node:
    """Return how to decode the writer's records: its fields as they follow each other, each into
    the reader's column for it, or skipped. A field that only the reader has becomes a constant, its
    default.

    `fields`: the reader's, in the order of the columns below `target`; `prefix`: the path of the
    record with a point at its end, for errors.
    """
    selected: dict[int, Node] = {}  # by the positions of the writer's fields
    constants = []
    for at, field in enumerate(fields):
        position, column = _find_written_field(writer, field), target.child(at)
        path = f"{prefix}{field.name}"
        if position is None:
            datum = default_datum(field, path)
            constant = _plan_value(field.type, field.type, column, path)
            constants.append(replace(constant, name=field.name, constant=datum, key=field.name))
        elif position in selected:
            duplicate = writer.fields[position].name
            raise Undecodable(f"{prefix}{duplicate} is two fields of the schema, by its aliases.")
        else:
            node = _plan_value(writer.fields[position].type, field.type, column, path)
            selected[position] = replace(node, name=field.name, key=field.name)
    nodes = [
        selected.get(at) or replace(_plan_skipped(field.type), name=field.name)
        for at, field in enumerate(writer.fields)
    ]
    return Node(AvroKind.RECORD, target=target, nodes=tuple(nodes), constants=tuple(constants))


def _find_written_field(writer: Type, field: Field) -> int | None:
    """Return the position of a reader's field in the writer's record, by its name or an alias; None
    if the writer does not have it."""
    names = [written.name for written in writer.fields]
    for name in (field.name, *sorted(field.aliases)):
        if name in names:
            return names.index(name)
    return None


def _plan_skipped(type_: Type) -> Node:
    """Return the plan of values that the reader has no column for: they are read, to find where
    they end, and dropped."""
    inner = tuple(replace(_plan_skipped(field.type), name=field.name) for field in type_.fields)
    inner += tuple(map(_plan_skipped, type_.parts))
    inner += tuple(Node(AvroKind.NULL, name=symbol) for symbol in type_.symbols)
    return Node(KINDS[type_.kind], nodes=inner, size=type_.size)


def _plan_symbols(writer: Type, reader: Type, path: str) -> tuple[Node, ...]:
    """Return a node for each symbol of the writer's enum. Its name is the text that the reader
    gets: the symbol, or the default of the reader's enum; or it rejects payloads with the
    symbol."""
    nodes = []
    for symbol in writer.symbols:
        text = symbol if symbol in reader.symbols else reader.default
        if text is None:
            reason = f"{path} is {symbol}; the schema has {', '.join(reader.symbols)}."
            nodes.append(Node(AvroKind.REJECTED, name=reason))
        else:
            nodes.append(Node(AvroKind.NULL, name=text))  # a symbol has no bytes of its own
    return tuple(nodes)


def _plan_union(writer: Type, reader: Type, target: TargetColumn, path: str) -> Node:
    """Return how to decode values where the writer's or the reader's type is a union: each type
    that the writer may have written goes into the branch of the reader's that takes it."""
    written = writer.parts if writer.kind == "union" else (writer,)
    nodes = [_plan_branch(branch, reader, target, path) for branch in written]
    if all(node.kind is AvroKind.REJECTED for node in nodes):  # no payload could fit
        raise Undecodable(f"{path} is {in_words(writer)}, not {in_words(reader)}.")
    if writer.kind == "union":
        return Node(AvroKind.UNION, target=target, nodes=tuple(nodes))
    (node,) = nodes
    # If the reader's union is a STRUCT, a BRANCH puts the value into its member.
    return node if node.member < 0 else Node(AvroKind.BRANCH, target=target, nodes=(node,))


def _plan_branch(written: Type, reader: Type, target: TargetColumn, path: str) -> Node:
    """Return how to decode one of the types that a writer's value may have, as a branch of the
    reader's union: the branch of the same type, or else the first one of a wider type.

    If no branch takes it, the node is REJECTED, so that only payloads with such a value fail.
    """
    if written.kind == "null" and reader.may_be_null:
        return Node(AvroKind.NULL, target=target)
    if written.kind == "null":
        return Node(AvroKind.REJECTED, name=f"{path} is null, not {in_words(reader)}.")
    branches = reader.branches
    same_first = sorted(
        range(len(branches)),
        key=lambda at: (branches[at].kind, branches[at].name) != (written.kind, written.name),
    )
    for at in same_first:
        with suppress(Undecodable):
            if reader.has_members:
                member = target.child(at)
                return replace(_plan_value(written, branches[at], member, path), member=at)
            return _plan_value(written, branches[at], target, path)
    return Node(AvroKind.REJECTED, name=f"{path} is {in_words(written)}, not {in_words(reader)}.")
