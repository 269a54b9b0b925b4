"""The fields of JSON payloads as columns of a batch: flat ones by the C kernel, the rest of them,
and every payload that the kernel leaves, by `json_decoder`. Both give the same columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.codecs.decoder import PAYLOAD, with_fields
from jetspark.codecs.framing import Framing
from jetspark.codecs.json_decoder import JsonDecoder
from jetspark.reserved_names import BARE_PAYLOAD
from jetspark.wire.kernel import JsonKind, json_columns

KINDS: Final[Mapping[pa.DataType, JsonKind]] = {
    pa.string(): JsonKind.TEXT,
    pa.int8(): JsonKind.INT8,
    pa.int16(): JsonKind.INT16,
    pa.int32(): JsonKind.INT32,
    pa.int64(): JsonKind.INT64,
    pa.float64(): JsonKind.DOUBLE,
    pa.bool_(): JsonKind.TRUTH,
    pa.date32(): JsonKind.DAY,
    pa.timestamp("us", tz="UTC"): JsonKind.TIME,
}
"""The types that the kernel decodes."""


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
        kinds = [KINDS.get(one.type) for one in fields]
        self._flat = None not in kinds and json_columns is not None
        self._names = tuple(name.encode() for name in in_payloads)
        self._kinds = bytes(one for one in kinds if one is not None)

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
        if not self._flat:
            return self._decode_plainly(payloads)
        assert json_columns is not None  # noqa: S101
        rows = len(payloads)
        left, found = json_columns(*_buffers(payloads), self._names, self._kinds)
        columns = [
            pa.Array.from_buffers(field.type, rows, [pa.py_buffer(one) for one in buffers])
            for field, buffers in zip(self.fields, map(_of_arrow, found), strict=True)
        ]
        if not any(left):
            return columns, pa.nulls(rows, pa.string())
        is_left = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(left)])
        more, reasons = self._decode_plainly(payloads.filter(is_left))
        return [
            pc.replace_with_mask(column, is_left, one)
            for column, one in zip(columns, more, strict=True)
        ], pc.replace_with_mask(pa.nulls(rows, pa.string()), is_left, reasons)

    def _decode_plainly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
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


def _buffers(payloads: Any) -> tuple[memoryview, memoryview]:
    """Bytes and offsets of an array, which may be a slice."""
    _, offsets, data = payloads.buffers()
    begin = 4 * payloads.offset
    end = begin + 4 * (len(payloads) + 1)
    return memoryview(b"" if data is None else data), memoryview(offsets)[begin:end]


def _of_arrow(column: tuple[bytes, bytes, bytes]) -> list[bytes]:
    valid, values, offsets = column
    return [valid, offsets, values] if offsets else [valid, values]
