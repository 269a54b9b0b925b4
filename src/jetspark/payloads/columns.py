"""Columns that payloads become: how the C kernel builds them, how large they may get, and why a
payload in Avro or Protobuf does not fit."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from jetspark.payloads.decoder import Undecodable
from jetspark.wire.kernel import ColumnKind

if TYPE_CHECKING:
    from jetspark.wire.kernel import ColumnBuffers

_KINDS: Final[Mapping[pa.DataType, ColumnKind]] = {
    pa.bool_(): ColumnKind.BOOLEAN,
    pa.int8(): ColumnKind.INT8,
    pa.int16(): ColumnKind.INT16,
    pa.int32(): ColumnKind.INT32,
    pa.int64(): ColumnKind.INT64,
    pa.float32(): ColumnKind.FLOAT,
    pa.float64(): ColumnKind.DOUBLE,
    pa.string(): ColumnKind.STRING,
    pa.binary(): ColumnKind.BINARY,
    pa.date32(): ColumnKind.DATE,
    pa.timestamp("us", tz="UTC"): ColumnKind.TIMESTAMP,
    pa.timestamp("us"): ColumnKind.TIMESTAMP_NTZ,
    pa.null(): ColumnKind.NOTHING,
}
_NODE: Final = struct.Struct("=BBBxI")


class KernelColumns:
    """The columns of a schema, as functions of the C kernel build them."""

    def __init__(self, fields: Sequence[pa.Field], max_depth: int) -> None:
        """`max_depth`: of columns within each other; more deeply nested ones are not planned."""
        self._fields = fields
        self.plan: Final = plan_of(fields, max_depth)
        """None: the kernel does not build all of these columns."""

    def build(
        self, decode: Callable[..., Any], payloads: pa.BinaryArray, *plan_of_payloads: Any
    ) -> tuple[Any, list[pa.Array]]:
        """Call a function of the kernel; return what it says of payloads that do not fit, and the
        columns. Raises Undecodable if they become too large."""
        assert self.plan is not None  # noqa: S101
        result = decode(*buffers_of(payloads), *self.plan, MAX_DECODED_BYTES, *plan_of_payloads)
        if result is None:
            raise too_large()
        misfits, buffers = result
        return misfits, arrays_of(self._fields, buffers)


def plan_of(fields: Sequence[pa.Field], max_depth: int) -> tuple[bytes, tuple[bytes, ...]] | None:
    """The plan of a batch's columns, and their names; None: the kernel does not build all of them,
    or they are nested more deeply."""
    plan, names = bytearray(), []

    def add(kind: pa.DataType, name: str, depth: int) -> bool:
        precision = scale = 0
        if pa.types.is_decimal128(kind):
            number, precision, scale = ColumnKind.DECIMAL, kind.precision, kind.scale
        elif pa.types.is_struct(kind):
            number = ColumnKind.STRUCT
        elif pa.types.is_map(kind):
            number = ColumnKind.MAP
        elif pa.types.is_list(kind):
            number = ColumnKind.LIST
        elif kind in _KINDS:
            number = _KINDS[kind]
        else:
            return False
        below = fields_below(kind)
        plan.extend(_NODE.pack(number, precision, max(scale, 0), len(below)))
        names.append(name.encode())
        return (
            depth < max_depth
            and scale >= 0
            and all(add(field.type, field.name, depth + 1) for field in below)
        )

    return (bytes(plan), tuple(names)) if add(pa.struct(fields), "", 0) else None


def fields_below(kind: pa.DataType) -> list[pa.Field]:
    """The columns directly below one of a type; those of a plan."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [pa.field("", pa.struct([kind.key_field, kind.item_field]))]
    return [kind.value_field] if pa.types.is_list(kind) else []


def count_columns(kind: pa.DataType) -> int:
    """Count the columns of a type in a plan, with its own."""
    return 1 + sum(count_columns(field.type) for field in fields_below(kind))


@dataclass(frozen=True)
class TargetColumn:
    """A column of the reader's, and its number in the plan of columns."""

    number: int
    kind: pa.DataType

    def below(self, at: int) -> TargetColumn:
        """A column directly below."""
        fields = fields_below(self.kind)
        before = sum(count_columns(field.type) for field in fields[:at])
        return TargetColumn(self.number + 1 + before, fields[at].type)


def arrays_of(fields: Sequence[pa.Field], buffers: Sequence[ColumnBuffers]) -> list[pa.Array]:
    """The columns that the kernel has built."""
    parts = iter(buffers[1:])
    return [_array_of(field.type, parts) for field in fields]


def _array_of(kind: pa.DataType, parts: Iterator[ColumnBuffers]) -> pa.Array:
    rows, valid, values, offsets = next(parts)
    if kind.num_buffers == 1:
        own = [valid]
    elif kind.num_buffers == 3:
        own = [valid, offsets, values]
    else:
        own = [valid, offsets if kind.num_fields else values]
    below = fields_below(kind) if kind.num_fields else ()
    children = [_array_of(field.type, parts) for field in below]
    buffers = [buffer if buffer is None else pa.py_buffer(buffer) for buffer in own]
    return pa.Array.from_buffers(kind, rows, buffers, children=children)


def buffers_of(payloads: Any) -> tuple[memoryview, memoryview]:
    """Bytes and offsets of an array, which may be a slice."""
    _, offsets, data = payloads.buffers()
    begin = 4 * payloads.offset
    end = begin + 4 * (len(payloads) + 1)
    return memoryview(b"" if data is None else data), memoryview(offsets)[begin:end]


# -- sizes ---------------------------------------------------------------------------------------


MAX_DECODED_BYTES: Final = 512 * 1024 * 1024
"""Bytes of rows that are decoded together."""


def min_value_bytes(kind: pa.DataType) -> int:
    """The bytes of one value in a column, without what its bytes in the payload become."""
    if pa.types.is_struct(kind):
        return 1 + sum(min_value_bytes(field.type) for field in kind)
    try:
        return 1 + int(kind.bit_width) // 8
    except ValueError:  # texts, lists and maps begin with an offset
        return 5


def max_bytes_per_byte(kind: pa.DataType) -> int:
    """The bytes that one byte of a payload may become: an element of a list can be one byte, and
    has all columns of its type."""
    if pa.types.is_struct(kind):
        return max((max_bytes_per_byte(field.type) for field in kind), default=1)
    if pa.types.is_map(kind):
        return max(5 + min_value_bytes(kind.item_type), max_bytes_per_byte(kind.item_type))
    if pa.types.is_list(kind):
        return max(min_value_bytes(kind.value_type), max_bytes_per_byte(kind.value_type))
    return 1


def check_decoded_size(size: int) -> None:
    """Raise Undecodable if payloads become so many bytes that a task might not have them."""
    if size > MAX_DECODED_BYTES:
        raise too_large()


def too_large() -> Undecodable:
    """The error for payloads that become more than `MAX_DECODED_BYTES`."""
    return Undecodable(
        f"The payload becomes more than {MAX_DECODED_BYTES >> 20} MiB: each element of a list has "
        "all columns of its type."
    )


# -- payloads that do not fit --------------------------------------------------------------------


Misfits: TypeAlias = Iterable[tuple[int, int, bytes, bytes]]
"""Rows, a `Problem`, the path of the value in UTF-8, and of `NOT_TAKEN` the sentence."""


class Problem(IntEnum):
    """Why a payload does not fit; the numbers are those of the C kernel."""

    ENDS = 1
    LEFT_OVER = 2
    NUMBER = 3
    SIZE = 4
    BOOLEAN = 5
    UTF8 = 6
    BRANCH = 7
    SYMBOL = 8
    TIME = 9
    DECIMAL = 10
    NOT_TAKEN = 11
    TAG = 12
    DEEP = 13


class Misfit(Exception):
    """A value does not fit; for decoders in Python."""

    def __init__(self, problem: Problem, sentence: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.sentence = sentence
        self.path = ""

    def of_row(self, row: int) -> tuple[int, int, bytes, bytes]:
        """Return the problem as an item of `Misfits`."""
        return row, int(self.problem), self.path.encode(), self.sentence.encode()


_PAYLOAD_PROBLEMS: Final = {
    Problem.ENDS: "it ends too early",
    Problem.LEFT_OVER: "it has bytes left over",
    Problem.NUMBER: "a number is out of range",
    Problem.SIZE: "a size is negative, or larger than the payload",
    Problem.BOOLEAN: "a boolean is neither 0 nor 1",
    Problem.BRANCH: "a union has no branch of this number",
    Problem.SYMBOL: "an enum has no symbol of this number",
    Problem.TAG: "a field has no number, or an unknown form",
    Problem.DEEP: "groups are nested too deeply",
}
"""Problems of a payload as a whole: its schema may be another one."""
_VALUE_PROBLEMS: Final = {
    Problem.UTF8: "the text is not UTF-8",
    Problem.TIME: "a time outside of the years 1 to 9999",
    Problem.DECIMAL: "a number with too many digits",
}


def describe_misfits(misfits: Misfits, rows: int, name: str) -> pa.StringArray:
    """The reasons of so many payloads, null where one fits. `name`: of what they should be."""
    if not misfits:
        return pa.nulls(rows, pa.string())
    reasons: list[str | None] = [None] * rows
    for row, number, path, sentence in misfits:
        problem, path_text = Problem(number), path.decode("utf-8", "replace").lstrip(".")
        if problem is Problem.NOT_TAKEN:
            reasons[row] = sentence.decode()
        elif problem in _VALUE_PROBLEMS:
            reasons[row] = f"{path_text}: {_VALUE_PROBLEMS[problem]}."
        else:
            place_text = f", in {path_text}" if path_text else ""
            reasons[row] = f"The payload is not {name}: {_PAYLOAD_PROBLEMS[problem]}{place_text}."
    return pa.array(reasons, pa.string())


class PlannedDecoder(ABC):
    """Decodes the payloads of one writer's schema by a plan: in the C kernel, or in Python where
    it was not built."""

    name: str
    """Names the payloads in reasons: "Order in Avro"."""
    columns: KernelColumns
    plan: tuple[Any, ...]
    """The plan of payloads, for the kernel."""
    kernel: Callable[..., Any] | None
    """The kernel's function."""

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Return the fields, and why payloads do not fit. Raises Undecodable for too large ones."""
        if self.kernel is None or self.columns.plan is None:
            return self.decode_plainly(payloads)
        misfits, columns = self.columns.build(self.kernel, payloads, *self.plan)
        return columns, describe_misfits(misfits, len(payloads), self.name)

    @abstractmethod
    def decode_plainly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode without the kernel."""
