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
    """Builds columns of Arrow with functions of the C kernel, which follow a plan: a description of
    the columns."""

    def __init__(self, fields: Sequence[pa.Field], max_depth: int) -> None:
        """Plan the columns. `max_depth`: how deeply they may be nested; of more deeply nested ones
        there is no plan."""
        self._fields = fields
        self.plan: Final = _plan_columns(fields, max_depth)
        """The kernel's description of the columns, and their names; None: it does not build all of
        these columns."""

    def build(
        self, decode: Callable[..., Any], payloads: pa.BinaryArray, *plan_of_payloads: Any
    ) -> tuple[Any, list[pa.Array]]:
        """Decode payloads into the columns with `decode`, a function of the kernel. Return what it
        says of payloads that do not fit, and the columns.

        `plan_of_payloads`: further arguments of the function. Raises Undecodable if the columns
        become too large.
        """
        assert self.plan is not None  # noqa: S101
        result = decode(
            *payload_buffers(payloads), *self.plan, MAX_DECODED_BYTES, *plan_of_payloads
        )
        if result is None:
            raise _too_large()
        misfits, buffers = result
        remaining = iter(buffers[1:])  # the first is the STRUCT around all columns
        return misfits, [_array_from_buffers(field.type, remaining) for field in self._fields]


def _plan_columns(
    fields: Sequence[pa.Field], max_depth: int
) -> tuple[bytes, tuple[bytes, ...]] | None:
    """Return the C kernel's description of columns, each before those in it, and their names. None
    if the kernel cannot build one of them, or they are nested more deeply than `max_depth`."""
    plan, names = bytearray(), []

    def add(kind: pa.DataType, name: str, depth: int) -> bool:
        """Append a column, and then those in it; return whether the kernel can build them."""
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
        children = _child_fields(kind)
        plan.extend(_NODE.pack(number, precision, max(scale, 0), len(children)))
        names.append(name.encode())
        return (
            depth < max_depth
            and scale >= 0
            and all(add(field.type, field.name, depth + 1) for field in children)
        )

    is_planned = add(pa.struct(fields), name="", depth=0)
    return (bytes(plan), tuple(names)) if is_planned else None


def _child_fields(kind: pa.DataType) -> list[pa.Field]:
    """Return the columns directly below a column in a plan: the fields of a STRUCT, the items of a
    LIST, and of a MAP its entries, as a STRUCT of key and value."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [pa.field("", pa.struct([kind.key_field, kind.item_field]))]
    return [kind.value_field] if pa.types.is_list(kind) else []


@dataclass(frozen=True)
class TargetColumn:
    """A column that payloads are decoded into, and its number in the kernel's plan, where each
    column comes before those in it."""

    number: int
    kind: pa.DataType

    def child(self, at: int) -> TargetColumn:
        """Return the column with this index among those directly below: the fields of a STRUCT, the
        item of a LIST, the entry of a MAP (see `_child_fields`)."""
        fields = _child_fields(self.kind)
        before = sum(_count_columns(field.type) for field in fields[:at])
        return TargetColumn(self.number + 1 + before, fields[at].type)


def _count_columns(kind: pa.DataType) -> int:
    """Count the columns of a type in a plan, with its own."""
    return 1 + sum(_count_columns(field.type) for field in _child_fields(kind))


def _array_from_buffers(kind: pa.DataType, remaining: Iterator[ColumnBuffers]) -> pa.Array:
    """Return the array of a type from the buffers that the C kernel has filled. `remaining`: the
    buffers of this column, then those of the columns in it, and of columns behind these; what the
    array needs is taken off."""
    rows, valid, values, offsets = next(remaining)
    if kind.num_buffers == 1:
        own = [valid]  # a STRUCT
    elif kind.num_buffers == 3:
        own = [valid, offsets, values]  # texts or bytes
    else:
        own = [valid, offsets if kind.num_fields else values]  # lists and maps, or numbers
    child_fields = _child_fields(kind) if kind.num_fields else ()
    children = [_array_from_buffers(field.type, remaining) for field in child_fields]
    buffers = [buffer if buffer is None else pa.py_buffer(buffer) for buffer in own]
    return pa.Array.from_buffers(kind, rows, buffers, children=children)


def payload_buffers(payloads: Any) -> tuple[memoryview, memoryview]:
    """Return the bytes and the offsets of an array of payloads, which may be a slice of a larger
    one."""
    _, offsets, data = payloads.buffers()
    begin = 4 * payloads.offset
    end = begin + 4 * (len(payloads) + 1)
    return memoryview(b"" if data is None else data), memoryview(offsets)[begin:end]


# -- sizes ---------------------------------------------------------------------------------------


MAX_DECODED_BYTES: Final = 512 * 1024 * 1024
"""The most that rows which are decoded together may become, so that a task has the memory."""


def min_value_bytes(kind: pa.DataType) -> int:
    """Return the least memory that a value of a type takes in a column, however few bytes it has in
    the payload."""
    if pa.types.is_struct(kind):
        return 1 + sum(min_value_bytes(field.type) for field in kind)
    try:
        return 1 + int(kind.bit_width) // 8
    except ValueError:  # texts, lists and maps begin with an offset
        return 5


def max_bytes_per_byte(kind: pa.DataType) -> int:
    """Return how much memory one byte of a payload may become in a column of a type: an item of a
    list can be one byte, and takes a place in all columns of its type."""
    if pa.types.is_struct(kind):
        return max((max_bytes_per_byte(field.type) for field in kind), default=1)
    if pa.types.is_map(kind):
        return max(5 + min_value_bytes(kind.item_type), max_bytes_per_byte(kind.item_type))
    if pa.types.is_list(kind):
        return max(min_value_bytes(kind.value_type), max_bytes_per_byte(kind.value_type))
    return 1


def check_decoded_size(size: int) -> None:
    """Raise Undecodable if payloads become more than `MAX_DECODED_BYTES`."""
    if size > MAX_DECODED_BYTES:
        raise _too_large()


def _too_large() -> Undecodable:
    """Return the error for payloads that become more than `MAX_DECODED_BYTES`."""
    return Undecodable(
        f"The payload becomes more than {MAX_DECODED_BYTES >> 20} MiB: each element of a list has "
        "all columns of its type."
    )


# -- payloads that do not fit --------------------------------------------------------------------


KernelMisfit: TypeAlias = tuple[int, int, bytes, bytes]
"""A payload that does not fit, as the kernel describes it: its row, a `Problem`, the path of the
value in UTF-8, and of `NOT_TAKEN` the reason as a sentence."""


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


class PayloadMisfit(Exception):
    """Raised, by the decoders in Python, for a value that does not fit; `path` is its place in the
    payload."""

    def __init__(self, problem: Problem, sentence: str = "") -> None:
        """`sentence`: says why the reader does not take the value (NOT_TAKEN only)."""
        super().__init__(problem)
        self.problem = problem
        self.sentence = sentence
        self.path = ""  # the decoders add to it on the way out

    def at_row(self, row: int) -> KernelMisfit:
        """Return what the C kernel would return for this misfit of the payload in a row."""
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


def describe_misfits(misfits: Iterable[KernelMisfit], rows: int, name: str) -> pa.StringArray:
    """Return for each payload the sentence that says why it does not fit; null for one that fits.

    `rows`: the number of payloads; `name`: what they should be, such as "Order in Avro".
    """
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
            suffix = f", in {path_text}" if path_text else ""
            reasons[row] = f"The payload is not {name}: {_PAYLOAD_PROBLEMS[problem]}{suffix}."
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
        """Decode payloads: return the columns, and for each payload why it does not fit, or null.
        Raises Undecodable if the columns become too large."""
        if self.kernel is None or self.columns.plan is None:
            return self.decode_plainly(payloads)
        misfits, columns = self.columns.build(self.kernel, payloads, *self.plan)
        return columns, describe_misfits(misfits, len(payloads), self.name)

    @abstractmethod
    def decode_plainly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode without the kernel; see `decode`."""
