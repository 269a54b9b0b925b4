"""JSON payloads as columns of a batch: by the C kernel, and by `json_plain` each payload that the
kernel leaves, because it is unusual or bad. Both give the same columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.payloads.columns import KernelColumns
from jetspark.payloads.decoder import PAYLOAD, add_framing_hints, replace_rows, with_fields
from jetspark.payloads.framing import Framing
from jetspark.payloads.json_plain import PlainJsonDecoder
from jetspark.reserved_names import UNFRAMED_PAYLOAD
from jetspark.wire.kernel import json_columns

_MAX_DEPTH: Final = 30
"""Columns within each other that the kernel takes."""


class JsonDecoder:
    """Decodes payloads that are JSON objects into columns, and says why one does not fit."""

    def __init__(
        self,
        fields: pa.Schema,
        names: Mapping[str, str] | None = None,
        framing: Framing | None = None,
        payload: str = PAYLOAD,
    ) -> None:
        """`fields`: the columns; `names`: of fields in payloads, by columns that have another name;
        `framing`: what is around payloads; `payload`: the column that has them. Raises ConfigError
        for a type that JSON has no values of."""
        self.fields = fields
        self._payload = payload
        self._framing = framing
        in_payloads = [(names or {}).get(name, name) for name in fields.names]
        self._decoder = PlainJsonDecoder(fields, in_payloads)
        named = [f.with_name(name) for f, name in zip(fields, in_payloads, strict=True)]
        self._columns = KernelColumns(named, _MAX_DEPTH)
        self.plan = None if json_columns is None else self._columns.plan

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the schema of `decode_batch` for a batch with these columns."""
        return with_fields(columns, self.fields, self._payload)

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the decoded fields, and `REASON`, after its columns.

        A column `UNFRAMED_PAYLOAD`, if the batch has one, gets the payloads without their frames. A
        null payload has neither fields nor a reason.
        """
        at = batch.schema.get_field_index(self._payload)
        payloads, frame_reasons = batch.column(at), None
        if self._framing is not None:
            unframed = self._framing.unframe(batch)
            payloads, frame_reasons = unframed.payloads, unframed.reasons
            if frame_reasons is not None:
                payloads = pc.if_else(pc.is_valid(frame_reasons), None, payloads)
        columns, reasons = self.decode(payloads)
        columns_of_batch = batch.columns
        if (at_unframed := batch.schema.get_field_index(UNFRAMED_PAYLOAD)) >= 0:
            columns_of_batch[at_unframed] = pc.coalesce(payloads, columns_of_batch[at_unframed])
        if self._framing is not None:
            reasons = add_framing_hints(reasons, payloads, self._framing)
        if frame_reasons is not None:
            reasons = pc.coalesce(frame_reasons, reasons)
        return pa.RecordBatch.from_arrays(
            [*columns_of_batch, *columns, reasons], schema=self.decoded_schema(batch.schema)
        )

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Return the columns of payloads, and for each payload why it does not fit, or null. A null
        payload has null in all of them."""
        if self.plan is None:
            return self.decode_plainly(payloads)
        assert json_columns is not None  # noqa: S101
        rows = len(payloads)
        # `left`: for each payload a bit, 1 if the kernel leaves it to `decode_plainly`.
        left, columns = self._columns.build(json_columns, payloads)
        if not any(left):
            return columns, pa.nulls(rows, pa.string())
        is_left = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(left)])
        replacements = self.decode_plainly(payloads.filter(is_left))
        return replace_rows((columns, pa.nulls(rows, pa.string())), replacements, is_left)

    def decode_plainly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode without the C kernel; see `decode`."""
        columns, reasons = self._decoder.decode(payloads)
        if payloads.null_count:
            reasons = pc.if_else(pc.is_null(payloads), None, reasons)
        return columns, reasons
