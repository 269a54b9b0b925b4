"""A decoder that no payload stops, whatever the decoder of its format does not foresee.

Decoders make bad records of what they know to be wrong. If one raises nevertheless, halves of the
batch are decoded until the row to blame is alone, which becomes a bad record with the exception as
its reason; all others are decoded as if it were not there.

What comes out has the columns of the messages, the fields, and for a bad record its payload and the
reason. The payload is as it came, which is what the headers beside it are about; of JSON it is a
text, without its compression and frame.

Payloads are decompressed here, for decoders of all formats, and a batch is decoded in parts, so
that a few bytes of each payload cannot become more in memory than one payload may have: neither by
their compression, nor as elements of lists, which a byte each may be many columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.payloads import columns
from jetspark.payloads.decoder import PAYLOAD, REASON, BatchError, reason_of
from jetspark.payloads.framing import Decompressed, Framing
from jetspark.reserved_names import CORRUPT_RECORD, PREFIX, UNFRAMED_PAYLOAD

CORRUPT: Final = CORRUPT_RECORD
"""The column with the payloads of bad records."""
ROW: Final = f"{PREFIX}_row"
"""A column with the number of each row, while some rows of a batch are decoded apart."""


class Decoder(Protocol):
    """Adds the fields of payloads, as columns, to a batch of messages."""

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the schema of `decode_batch` for a batch with these columns."""

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the fields after its columns, and `REASON` as the last one."""


def decode_in_parts(
    decoder: Decoder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decode batches of messages; a batch whose payloads are large when they are decompressed
    becomes several, so that memory is bounded."""
    for batch in batches:
        if isinstance(decoder, TolerantDecoder):
            yield from decoder.decode_in_parts(batch)
        else:
            yield decoder.decode_batch(batch)


@dataclass(frozen=True)
class TolerantDecoder:
    """Decodes as `decoder` does; a row for which that raises becomes a bad record, which has the
    reason in place of its fields."""

    decoder: Decoder
    """It gets payloads without compression."""
    framing: Framing = field(default_factory=partial(Framing, compression="none"))
    payload: str = PAYLOAD
    """The column of payloads."""
    keep_payload: bool = False
    """Whether that column stays."""
    keep_unframed: bool = False
    """Whether there is a column `UNFRAMED_PAYLOAD` with payloads without compression and frame."""
    is_text: bool = False
    """Whether the payload of a bad record is a text; then it is without compression and frame."""

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the schema of `decode_batch` for a batch with these columns."""
        return self._output_schema(self._inner_schema(columns))

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the fields after its columns, and behind them `CORRUPT` and
        `REASON`, which have the payload of a bad record and what is wrong with it. Raises only what
        no payload causes."""
        return _concat_batches(list(self.decode_in_parts(batch)))

    def decode_in_parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `decode_batch` in batches of bounded size."""
        try:
            for part in self.framing.decompress(batch):
                for bounded in self._split_by_decoded_size(part):
                    yield self._select_output(self._decode_decompressed(bounded))
        except BatchError as error:
            raise error.error from None

    # -- columns -------------------------------------------------------------------------------

    @property
    def _has_unframed(self) -> bool:
        return self.keep_unframed or self.is_text

    def _inner_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the schema of what the inner `decoder` makes of a batch with these columns."""
        if self._has_unframed:
            columns = columns.append(pa.field(UNFRAMED_PAYLOAD, pa.binary()))
        return self.decoder.decoded_schema(columns)

    def _output_schema(self, decoded: pa.Schema) -> pa.Schema:
        """Return the schema of rows for the user: without the payload, unless it was asked for, and
        with `CORRUPT`. `decoded`: the schema that the inner `decoder` returns."""
        hidden = set() if self.keep_payload else {self.payload}
        hidden |= set() if self.keep_unframed else {UNFRAMED_PAYLOAD}
        fields = [field for field in decoded if field.name not in hidden]
        corrupt = pa.field(CORRUPT, pa.string() if self.is_text else pa.binary())
        return pa.schema([*fields[:-1], corrupt, fields[-1]])  # `REASON` is the last one

    def _select_output(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        """Return decoded rows with the columns that the user gets; see `_output_schema`."""
        corrupt = self._corrupt_payloads(decoded)
        schema = self._output_schema(decoded.schema)
        columns = [corrupt if name == CORRUPT else decoded.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _corrupt_payloads(self, decoded: pa.RecordBatch) -> pa.Array:
        """Return a column with the payloads of bad records (those with a reason), null in other
        rows."""
        kind = pa.string() if self.is_text else pa.binary()
        reasons = decoded.column(REASON)
        if reasons.null_count == len(reasons):
            return pa.nulls(len(reasons), kind)
        payloads = decoded.column(UNFRAMED_PAYLOAD if self.is_text else self.payload)
        bad_payloads = pc.if_else(pc.is_valid(reasons), payloads, pa.scalar(None, pa.binary()))
        try:
            return bad_payloads.cast(kind)
        except pa.ArrowInvalid:  # with U+FFFD for what is not UTF-8
            texts = [data and data.decode("utf-8", "replace") for data in bad_payloads.to_pylist()]
            return pa.array(texts, kind)

    # -- rows ----------------------------------------------------------------------------------

    def _split_by_decoded_size(self, part: Decompressed) -> Iterator[Decompressed]:
        """Yield rows in parts, each of which is one row or certainly becomes no more than
        `MAX_DECODED_BYTES` when it is decoded."""
        payloads = part.rows.column(self.payload) if part.payloads is None else part.payloads
        field_types = self._inner_schema(part.rows.schema).types[part.rows.num_columns :]
        bytes_per_row = sum(map(columns.min_value_bytes, field_types))
        bytes_per_byte = max(map(columns.max_bytes_per_byte, field_types))
        # The memory of an array is somewhat more than its payloads.
        most_bytes = bytes_per_byte * payloads.nbytes + bytes_per_row * len(payloads)
        if most_bytes <= columns.MAX_DECODED_BYTES:
            yield part
            return
        start = total = 0
        for at, size in enumerate(pc.fill_null(pc.binary_length(payloads), 0).to_pylist()):
            row_bytes = bytes_per_byte * size + bytes_per_row
            total += row_bytes
            if total > columns.MAX_DECODED_BYTES and at > start:
                yield part.slice(start, at - start)
                start, total = at, row_bytes
        yield part.slice(start, len(payloads) - start)

    def _decode_decompressed(self, part: Decompressed) -> pa.RecordBatch:
        """Decode rows whose payloads are decompressed; those that could not be are bad records. In
        the result the column of payloads is as it came, with its compression."""
        rows, at = part.rows, part.rows.schema.get_field_index(self.payload)
        if part.payloads is not None:
            rows = rows.set_column(at, rows.schema.field(at), part.payloads)
        if self._has_unframed:
            rows = rows.append_column(UNFRAMED_PAYLOAD, rows.column(at))
        if part.payloads is None or part.reasons is None:
            return _concat_batches(list(self._decode_by_halves(rows)))
        rows = rows.append_column(ROW, pa.array(range(rows.num_rows), pa.int64()))
        is_bad = pc.is_valid(part.reasons)
        rejected = self._reject_rows(rows.filter(is_bad), part.reasons.filter(is_bad))
        good = self._decode_by_halves(rows.filter(pc.invert(is_bad)))
        decoded = _concat_batches([*good, rejected])
        decoded = decoded.take(pc.sort_indices(decoded.column(ROW)))
        # The decoder may have left rows out.
        compressed = part.rows.column(at).take(decoded.column(ROW))
        return decoded.drop_columns([ROW]).set_column(at, decoded.schema.field(at), compressed)

    def _decode_by_halves(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode a batch. If the decoder raises, decode its halves, and so on, until the row to
        blame is alone; it becomes a bad record."""
        try:
            decoded = self.decoder.decode_batch(batch)
        except BaseException as error:
            reason = reason_of(error)
        else:
            yield decoded
            return
        half = batch.num_rows // 2
        if half:
            yield from self._decode_by_halves(batch.slice(0, half))
            yield from self._decode_by_halves(batch.slice(half))
        else:
            yield self._reject_rows(batch, pa.array([reason] * batch.num_rows, pa.string()))

    def _reject_rows(self, batch: pa.RecordBatch, reasons: pa.StringArray) -> pa.RecordBatch:
        """Return rows as bad records: with null in their fields, and these reasons."""
        schema = self.decoder.decoded_schema(batch.schema)
        fields = list(schema)[batch.num_columns : -1]
        nulls = [pa.nulls(batch.num_rows, field.type) for field in fields]
        return pa.RecordBatch.from_arrays([*batch.columns, *nulls, reasons], schema=schema)


def _concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of at least one batch as one batch."""
    filled = [batch for batch in batches if batch.num_rows] or batches[:1]
    return filled[0] if len(filled) == 1 else pa.concat_batches(filled)
