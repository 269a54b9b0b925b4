"""The fields of JSON payloads as columns of a batch: by the C kernel, and every payload that the
kernel leaves by `json_decoder`. Both give the same columns."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.codecs.decoder import PAYLOAD, with_fields
from jetspark.codecs.framing import Framing
from jetspark.codecs.json_decoder import JsonDecoder
from jetspark.codecs.sizes import MAX_DECODED_BYTES, too_large
from jetspark.reserved_names import BARE_PAYLOAD
from jetspark.wire.kernel import ColumnKind, json_columns

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
}
_NODE: Final = struct.Struct("=BBBxI")
_MAX_DEPTH: Final = 30
"""Of columns within each other that the kernel builds."""


class JsonFields:
    """Decodes payloads into columns, and says why one does not fit."""

    def __init__(
        self,
        fields: pa.Schema,
        names: Mapping[str, str] | None = None,
        framing: Framing | None = None,
        payload: str = PAYLOAD,
    ) -> None:
        """`names`: those of columns whose fields have another one in payloads; `framing`: what is
        around payloads; `payload`: the column that has them. Raises ConfigError for a type that
        JSON has no values of."""
        self.fields = fields
        self._payload = payload
        self._framing = framing
        in_payloads = [(names or {}).get(name, name) for name in fields.names]
        self._decoder = JsonDecoder(fields, in_payloads)
        self.plan: Final = None if json_columns is None else _plan_of(fields, in_payloads)

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""
        return with_fields(columns, self.fields, self._payload)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns, and why payloads do not fit.

        In a column `BARE_PAYLOAD` payloads come out of their frames. A null payload has neither
        fields nor a reason.
        """
        at = batch.schema.get_field_index(self._payload)
        payloads, unpacked = batch.column(at), None
        if self._framing is not None:
            bare = self._framing.unpack(batch)
            payloads, unpacked = bare.payloads, bare.reasons
            if unpacked is not None:
                payloads = pc.if_else(pc.is_valid(unpacked), None, payloads)
        columns, reasons = self.decode(payloads)
        kept = batch.columns
        if (bare := batch.schema.get_field_index(BARE_PAYLOAD)) >= 0:
            kept[bare] = pc.coalesce(payloads, kept[bare])
        reasons = self._hinted(payloads, reasons)
        if unpacked is not None:
            reasons = pc.coalesce(unpacked, reasons)
        return pa.RecordBatch.from_arrays(
            [*kept, *columns, reasons], schema=self.schema(batch.schema)
        )

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """The columns and the reasons, as `JsonDecoder.decode`; nothing of a null payload."""
        if self.plan is None:
            return self.decode_plainly(payloads)
        assert json_columns is not None  # noqa: S101
        rows = len(payloads)
        found = json_columns(*buffers_of(payloads), *self.plan, MAX_DECODED_BYTES)
        if found is None:
            raise too_large()
        left, buffers = found
        parts = iter(buffers[1:])
        columns = [_array_of(one.type, parts) for one in self.fields]
        if not any(left):
            return columns, pa.nulls(rows, pa.string())
        is_left = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(left)])
        more, reasons = self.decode_plainly(payloads.filter(is_left))
        behind = pc.add(pc.cumulative_sum(is_left.cast(pa.int64())), rows - 1)
        places = pc.if_else(is_left, behind, pa.array(range(rows), pa.int64()))
        return [
            pa.concat_arrays([column, one]).take(places)
            for column, one in zip(columns, more, strict=True)
        ], pc.replace_with_mask(pa.nulls(rows, pa.string()), is_left, reasons)

    def decode_plainly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """The same without the C kernel."""
        columns, reasons = self._decoder.decode(payloads)
        if payloads.null_count:
            reasons = pc.if_else(pc.is_null(payloads), None, reasons)
        return columns, reasons

    def _hinted(self, payloads: pa.BinaryArray, reasons: pa.StringArray) -> pa.StringArray:
        """The reasons, with what may be around a payload."""
        if self._framing is None or reasons.null_count == len(reasons):
            return reasons
        texts = reasons.to_pylist()
        for row in pc.indices_nonzero(pc.is_valid(reasons)).to_pylist():
            texts[row] += self._framing.hint(payloads[row].as_py())
        return pa.array(texts, pa.string())


def buffers_of(payloads: Any) -> tuple[memoryview, memoryview]:
    """Bytes and offsets of an array, which may be a slice."""
    _, offsets, data = payloads.buffers()
    begin = 4 * payloads.offset
    end = begin + 4 * (len(payloads) + 1)
    return memoryview(b"" if data is None else data), memoryview(offsets)[begin:end]


def _plan_of(fields: pa.Schema, names: Sequence[str]) -> tuple[bytes, tuple[bytes, ...]] | None:
    """The plan of the columns and their names, for the kernel; None: it does not build them."""
    plan, named = bytearray(), []

    def add(kind: pa.DataType, name: str, depth: int) -> bool:
        scale = precision = 0
        below: Sequence[tuple[str, pa.DataType]] = ()
        if pa.types.is_decimal128(kind):
            number, precision, scale = ColumnKind.DECIMAL, kind.precision, kind.scale
        elif pa.types.is_struct(kind):
            number, below = ColumnKind.STRUCT, [(one.name, one.type) for one in kind]
        elif pa.types.is_map(kind) and kind.key_type == pa.string():
            entries = pa.struct([kind.key_field, kind.item_field])
            number, below = ColumnKind.MAP, [("", entries)]
        elif pa.types.is_list(kind):
            number, below = ColumnKind.LIST, [("", kind.value_type)]
        elif kind in _KINDS:
            number = _KINDS[kind]
        else:
            return False
        plan.extend(_NODE.pack(number, precision, scale, len(below)))
        named.append(name.encode())
        return (
            depth < _MAX_DEPTH
            and scale >= 0
            and all(add(each, name_below, depth + 1) for name_below, each in below)
        )

    columns = pa.struct([one.with_name(name) for one, name in zip(fields, names, strict=True)])
    return (bytes(plan), tuple(named)) if add(columns, "", 0) else None


def _array_of(kind: pa.DataType, parts: Iterator[ColumnBuffers]) -> pa.Array:
    """The next column that the kernel has built, with those below it."""
    rows, *buffers = next(parts)
    valid, values, offsets = (one if one is None else pa.py_buffer(one) for one in buffers)
    if pa.types.is_struct(kind):
        children = [_array_of(one.type, parts) for one in kind]
        return pa.Array.from_buffers(kind, rows, [valid], children=children)
    if pa.types.is_map(kind):
        entries = _array_of(pa.struct([kind.key_field, kind.item_field]), parts)
        return pa.Array.from_buffers(kind, rows, [valid, offsets], children=[entries])
    if pa.types.is_list(kind):
        items = _array_of(kind.value_type, parts)
        return pa.Array.from_buffers(kind, rows, [valid, offsets], children=[items])
    if kind in (pa.string(), pa.binary()):
        return pa.Array.from_buffers(kind, rows, [valid, offsets, values])
    return pa.Array.from_buffers(kind, rows, [valid, values])
