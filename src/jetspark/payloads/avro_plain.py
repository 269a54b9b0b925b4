"""Datums of Avro as columns, without the C kernel: the same plan, value by value."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from jetspark.payloads.avro_schema import AvroKind, Node, member_name
from jetspark.payloads.columns import (
    KernelMisfit,
    PayloadMisfit,
    Problem,
    check_decoded_size,
    min_value_bytes,
)
from jetspark.years import FIRST_DAY, LAST_DAY

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_DAY_MICROS: Final = 86_400_000_000
_INT_LIMIT: Final = 1 << 31
_EXACT: Final = Context(prec=100)
"""For decimals, so that none is rounded."""


def decode(
    root: Node, fields: Sequence[pa.Field], payloads: pa.BinaryArray
) -> tuple[list[pa.Array], list[KernelMisfit]]:
    """Decode Avro payloads by a plan, value by value, where the C kernel was not built.

    `root`: the plan; `fields`: the columns. Returns the columns, and the payloads that do not fit,
    as the kernel's `avro_columns` does. Raises Undecodable if the columns become too large.
    """
    rows: list[dict[str, Any]] = []
    misfits: list[KernelMisfit] = []
    size = 0
    for number, payload in enumerate(payloads.to_pylist()):
        datum = _DatumReader(payload or b"")
        try:
            row = datum.read(root)
            if datum.at < len(datum.data):
                raise PayloadMisfit(Problem.LEFT_OVER)
        except PayloadMisfit as error:
            misfits.append(error.at_row(number))
            row = {}
        size += datum.size
        check_decoded_size(size)
        rows.append(row)
    return [
        pa.array([row.get(field.name) for row in rows], field.type) for field in fields
    ], misfits


class _DatumReader:
    """Reads the values of one Avro payload, from its first byte to its last."""

    def __init__(self, data: bytes) -> None:
        """`data`: the whole payload, or a constant of the plan."""
        self.data = data
        self.at = 0
        self.size = 0
        """Bytes in columns of what a few bytes of a payload can become: items of lists and maps,
        symbols and constants."""

    def read(self, node: Node) -> Any:
        """Read the next value, which `node` of the plan describes, in the form that PyArrow takes.
        Return None if the reader has no column for it. Raises PayloadMisfit."""
        match node.kind:
            case AvroKind.NULL:
                return None
            case AvroKind.BOOLEAN:
                (truth,) = self._take(1)
                if truth > 1:
                    raise PayloadMisfit(Problem.BOOLEAN)
                return bool(truth)
            case AvroKind.INT | AvroKind.LONG:
                return self._read_number(node)
            case AvroKind.FLOAT:
                return _FLOAT.unpack(self._take(4))[0]
            case AvroKind.DOUBLE:
                return _DOUBLE.unpack(self._take(8))[0]
            case AvroKind.BYTES | AvroKind.FIXED:
                size = node.size if node.kind is AvroKind.FIXED else self._read_size()
                return _convert_bytes(node, self._take(size))
            case AvroKind.ENUM:
                symbol = self._read_choice(node, Problem.SYMBOL)
                self._count_bytes(len(symbol.name))
                if node.target is not None and symbol.kind is AvroKind.REJECTED:
                    raise PayloadMisfit(Problem.NOT_TAKEN, symbol.name)
                return None if node.target is None else symbol.name
            case AvroKind.RECORD:
                return self._read_record(node)
            case AvroKind.ARRAY | AvroKind.MAP:
                return self._read_items(node)
            case AvroKind.UNION:
                return self._read_branch(node, self._read_choice(node, Problem.BRANCH))
            case AvroKind.BRANCH:
                return self._read_branch(node, node.nodes[0])
        # REJECTED: the reader has no branch for this one; the name of the node says so.
        raise PayloadMisfit(Problem.NOT_TAKEN, node.name)

    def _take(self, size: int) -> bytes:
        """Return the next bytes, and go behind them. Raises PayloadMisfit if there are fewer."""
        if size > len(self.data) - self.at:
            raise PayloadMisfit(Problem.ENDS)
        self.at += size
        return self.data[self.at - size : self.at]

    def _count_bytes(self, size: int) -> None:
        """Count bytes that values become in columns. Raises Undecodable if they are too many."""
        self.size += size
        check_decoded_size(self.size)

    def _read_long(self) -> int:
        """Read a whole number: a zigzag varint of at most 64 bits."""
        number = 0
        for shift in range(0, 64, 7):
            (byte,) = self._take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if number >> 64:
                    break
                return (number >> 1) ^ -(number & 1)
            if shift == 63:
                break
        raise PayloadMisfit(Problem.NUMBER)

    def _read_size(self) -> int:
        """Read the number of bytes that follow, of a text or a block."""
        size = self._read_long()
        if size < 0:
            raise PayloadMisfit(Problem.SIZE)
        return size

    def _read_choice(self, node: Node, problem: Problem) -> Node:
        """Read the index of an enum's symbol or a union's branch, and return the node of that.
        Raises PayloadMisfit with `problem` if none has this index."""
        number = self._read_long()
        if not 0 <= number < len(node.nodes):
            raise PayloadMisfit(problem)
        return node.nodes[number]

    def _read_number(self, node: Node) -> Any:
        """Read an int or a long as its column has it: a number, the days of a date, the
        microseconds of a time, or a float if the reader's type is one."""
        number = self._read_long()
        if node.kind is AvroKind.INT and not -_INT_LIMIT <= number < _INT_LIMIT:
            raise PayloadMisfit(Problem.NUMBER)
        if node.target is None:
            return None
        kind = node.target.kind
        if pa.types.is_floating(kind):
            return float(number) if kind == pa.float64() else _nearest_float(number)
        unit = 1 if pa.types.is_date(kind) else _DAY_MICROS  # what a day is in the column
        if pa.types.is_temporal(kind):
            number *= 1000 if node.is_millis else 1
            if not FIRST_DAY * unit <= number < (LAST_DAY + 1) * unit:
                raise PayloadMisfit(Problem.TIME)
        return number

    def _read_record(self, node: Node) -> Any:
        """Read a record; return the reader's fields by their names. Those that the writer lacks are
        constants of the plan: their defaults, encoded in Avro."""
        row: dict[str, Any] = {}
        for child in (*node.nodes, *(node.constants if node.target is not None else ())):
            source = self
            if child.constant is not None:
                self._count_bytes(len(child.constant))
                source = _DatumReader(child.constant)
            try:
                value = source.read(child)
            except PayloadMisfit as error:
                error.path = f".{child.name}{error.path}"
                raise
            if child.target is not None:
                row[child.key] = value
        return row

    def _read_items(self, node: Node) -> Any:
        """Read an array or a map: return its items, or pairs of key and item.

        They come in blocks, each behind its number of items; 0 ends the last one. A negative number
        is followed by the block's size in bytes.
        """
        items: list[Any] = []
        is_map, (item,), number = node.kind is AvroKind.MAP, node.nodes, 0
        item_size = 0 if item.target is None else min_value_bytes(item.target.kind)
        while count := self._read_long():
            if count < 0:
                size = self._read_long()
                # -2**63 is the one long without a positive counterpart.
                if not 0 <= size <= len(self.data) - self.at or count == -(1 << 63):
                    raise PayloadMisfit(Problem.SIZE)
                count = -count
            if count > len(self.data) - self.at:  # each item has a byte, or a key with its size
                raise PayloadMisfit(Problem.ENDS)
            self._count_bytes(count * item_size)
            for _ in range(count):
                try:
                    key = self._read_key(node) if is_map else ""
                    value = self.read(item)
                except PayloadMisfit as error:
                    error.path = f"[{number}]{error.path}"
                    raise
                items.append((key, value) if is_map else value)
                number += 1
        return items

    def _read_key(self, node: Node) -> str:
        """Read the key of an entry; "" if the reader skips the map."""
        key = self._take(self._read_size())
        return "" if node.target is None else _decode_text(key)

    def _read_branch(self, node: Node, branch: Node) -> Any:
        """Read the value of a union's branch. Where the column of the union is a STRUCT of its
        branches, return a dict with this member."""
        if branch.member < 0 or node.target is None:
            return self.read(branch)
        return {member_name(branch.member): self.read(branch)}


def _decode_text(data: bytes) -> str:
    """Decode UTF-8. Raises PayloadMisfit."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise PayloadMisfit(Problem.UTF8) from None


def _nearest_float(number: int) -> float:
    """Return the nearest FLOAT of a whole number."""
    return float(pa.scalar(number, pa.int64()).cast(pa.float32(), safe=False).as_py())


def _convert_bytes(node: Node, data: bytes) -> Any:
    """Return bytes of a payload as the value of the node's column: a text, a decimal or bytes.
    Return None if the reader has no column for them."""
    if node.target is None:
        return None
    kind = node.target.kind
    if kind == pa.string():
        return _decode_text(data)
    if not pa.types.is_decimal(kind):
        return data
    number = int.from_bytes(data, "big", signed=True)
    shift = kind.scale - node.scale
    quotient, rest = (number * 10**shift, 0) if shift >= 0 else divmod(number, 10**-shift)
    if rest or abs(quotient) >= 10**kind.precision:  # it would be rounded, or has no room
        raise PayloadMisfit(Problem.DECIMAL)
    return Decimal(quotient).scaleb(-kind.scale, _EXACT)
