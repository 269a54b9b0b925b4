"""Datums of Avro as columns, without the C kernel: the same plan, value by value."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from jetspark.payloads.avro_schema import AvroKind, Node
from jetspark.payloads.columns import PayloadMisfit, Problem, check_decoded_size, min_value_bytes
from jetspark.years import FIRST_DAY, LAST_DAY

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_DAY_MICROS: Final = 86_400_000_000
_LARGEST: Final = 1 << 31
_EXACT: Final = Context(prec=100)


def decode(
    root: Node, fields: Sequence[pa.Field], payloads: pa.BinaryArray
) -> tuple[list[pa.Array], list[tuple[int, int, bytes, bytes]]]:
    """The columns, and what does not fit, as `avro_columns` of the kernel. Raises Undecodable for
    what becomes too large."""
    rows: list[dict[str, Any]] = []
    misfits = []
    size = 0
    for number, payload in enumerate(payloads.to_pylist()):
        datum = _Datum(payload or b"")
        try:
            row = datum.value(root)
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


class _Datum:
    """Reads one datum."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.size = 0
        """Bytes of the values in lists and maps, of symbols and constants."""

    def value(self, node: Node) -> Any:
        """The value of a node, for PyArrow; None if nobody wants it. Raises PayloadMisfit."""
        match node.kind:
            case AvroKind.NULL:
                return None
            case AvroKind.BOOLEAN:
                (truth,) = self._take(1)
                if truth > 1:
                    raise PayloadMisfit(Problem.BOOLEAN)
                return bool(truth)
            case AvroKind.INT | AvroKind.LONG:
                return self._number(node)
            case AvroKind.FLOAT:
                return _FLOAT.unpack(self._take(4))[0]
            case AvroKind.DOUBLE:
                return _DOUBLE.unpack(self._take(8))[0]
            case AvroKind.BYTES | AvroKind.FIXED:
                size = node.size if node.kind is AvroKind.FIXED else self._size()
                return _of_bytes(node, self._take(size))
            case AvroKind.ENUM:
                symbol = self._chosen(node, Problem.SYMBOL)
                self._count(len(symbol.name))
                return None if node.target is None else _accepted(symbol).name
            case AvroKind.RECORD:
                return self._record(node)
            case AvroKind.ARRAY | AvroKind.MAP:
                return self._items(node)
            case AvroKind.UNION:
                return self._member(node, self._chosen(node, Problem.BRANCH))
            case AvroKind.BRANCH:
                return self._member(node, node.nodes[0])
        raise PayloadMisfit(Problem.NOT_TAKEN, node.name)

    def _take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise PayloadMisfit(Problem.ENDS)
        self.at += size
        return self.data[self.at - size : self.at]

    def _count(self, size: int) -> None:
        self.size += size
        check_decoded_size(self.size)

    def _long(self) -> int:
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

    def _size(self) -> int:
        size = self._long()
        if size < 0:
            raise PayloadMisfit(Problem.SIZE)
        return size

    def _chosen(self, node: Node, problem: Problem) -> Node:
        number = self._long()
        if not 0 <= number < len(node.nodes):
            raise PayloadMisfit(problem)
        return node.nodes[number]

    def _number(self, node: Node) -> Any:
        number = self._long()
        if node.kind is AvroKind.INT and not -_LARGEST <= number < _LARGEST:
            raise PayloadMisfit(Problem.NUMBER)
        if node.target is None:
            return None
        kind = node.target.kind
        if pa.types.is_floating(kind):
            return float(number) if kind == pa.float64() else _single(number)
        unit = 1 if pa.types.is_date(kind) else _DAY_MICROS
        if pa.types.is_temporal(kind):
            number *= 1000 if node.is_millis else 1
            if not FIRST_DAY * unit <= number < (LAST_DAY + 1) * unit:
                raise PayloadMisfit(Problem.TIME)
        return number

    def _record(self, node: Node) -> Any:
        row: dict[str, Any] = {}
        for child in (*node.nodes, *(node.constants if node.target is not None else ())):
            source = self
            if child.constant is not None:
                self._count(len(child.constant))
                source = _Datum(child.constant)
            try:
                value = source.value(child)
            except PayloadMisfit as error:
                error.path = f".{child.name}{error.path}"
                raise
            if child.target is not None:
                row[child.key] = value
        return row

    def _items(self, node: Node) -> Any:
        items: list[Any] = []
        is_map, (item,), number = node.kind is AvroKind.MAP, node.nodes, 0
        item_size = 0 if item.target is None else min_value_bytes(item.target.kind)
        while count := self._long():
            if count < 0:
                size = self._long()
                if not 0 <= size <= len(self.data) - self.at or count == -(1 << 63):
                    raise PayloadMisfit(Problem.SIZE)
                count = -count
            if count > len(self.data) - self.at:
                raise PayloadMisfit(Problem.ENDS)
            self._count(count * item_size)
            for _ in range(count):
                try:
                    key = self._key(node) if is_map else ""
                    value = self.value(item)
                except PayloadMisfit as error:
                    error.path = f"[{number}]{error.path}"
                    raise
                items.append((key, value) if is_map else value)
                number += 1
        return items

    def _key(self, node: Node) -> str:
        key = self._take(self._size())
        return "" if node.target is None else _text(key)

    def _member(self, node: Node, branch: Node) -> Any:
        if branch.member < 0 or node.target is None:
            return self.value(branch)
        return {f"member{branch.member}": self.value(branch)}


def _accepted(node: Node) -> Node:
    if node.kind is AvroKind.REJECTED:
        raise PayloadMisfit(Problem.NOT_TAKEN, node.name)
    return node


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise PayloadMisfit(Problem.UTF8) from None


def _single(number: int) -> float:
    """The nearest FLOAT."""
    return float(pa.scalar(number, pa.int64()).cast(pa.float32(), safe=False).as_py())


def _of_bytes(node: Node, data: bytes) -> Any:
    if node.target is None:
        return None
    kind = node.target.kind
    if kind == pa.string():
        return _text(data)
    if not pa.types.is_decimal(kind):
        return data
    number = int.from_bytes(data, "big", signed=True)
    shift = kind.scale - node.scale
    quotient, rest = (number * 10**shift, 0) if shift >= 0 else divmod(number, 10**-shift)
    if rest or abs(quotient) >= 10**kind.precision:
        raise PayloadMisfit(Problem.DECIMAL)
    return Decimal(quotient).scaleb(-kind.scale, _EXACT)
