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
"""A column with the number of each row of a part, while its payloads are decompressed."""


class Decoder(Protocol):
    """Adds the fields of payloads to a batch."""

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns, and `REASON` as the last one."""


def decode_in_parts(
    decoder: Decoder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decode batches; one whose payloads are large without their compression becomes several."""
    for batch in batches:
        if isinstance(decoder, TolerantDecoder):
            yield from decoder.parts(batch)
        else:
            yield decoder.decode_batch(batch)


@dataclass(frozen=True)
class TolerantDecoder:
    """Decodes as `decoder` does, and makes a bad record of each row for which it raises."""

    decoder: Decoder
    """It gets payloads without compression."""
    framing: Framing = field(default_factory=partial(Framing, compression="none"))
    payload: str = PAYLOAD
    """The column that has them."""
    keep_payload: bool = False
    """Whether that column stays."""
    keep_unframed: bool = False
    """Whether there is a column `UNFRAMED_PAYLOAD` with payloads without compression and frame."""
    is_text: bool = False
    """Whether the payload of a bad record is a text, which is without these, too."""

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""
        return self._schema(self._inner(columns))

    def _inner(self, columns: pa.Schema) -> pa.Schema:
        """The schema of the decoder's batches from these columns."""
        if self._has_unframed:
            columns = columns.append(pa.field(UNFRAMED_PAYLOAD, pa.binary()))
        return self.decoder.decoded_schema(columns)

    @property
    def _has_unframed(self) -> bool:
        return self.keep_unframed or self.is_text

    def _schema(self, decoded: pa.Schema) -> pa.Schema:
        """The schema without the columns that nobody asked for, and with that of bad records."""
        left_out = set() if self.keep_payload else {self.payload}
        left_out |= set() if self.keep_unframed else {UNFRAMED_PAYLOAD}
        fields = [field for field in decoded if field.name not in left_out]
        corrupt = pa.field(CORRUPT, pa.string() if self.is_text else pa.binary())
        return pa.schema([*fields[:-1], corrupt, fields[-1]])

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns, and for bad records `CORRUPT` and `REASON`.
        Raises only what no payload causes."""
        return _joined(list(self.parts(batch)))

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `of` in batches of bounded size."""
        try:
            for part in self.framing.decompress(batch):
                for piece in self._pieces(part):
                    yield self._with_corrupt_column(self._decompressed(piece))
        except BatchError as error:
            raise error.error from None

    def _with_corrupt_column(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the payloads of bad records, and no others that nobody needs."""
        corrupt = self._corrupt(decoded)
        schema = self._schema(decoded.schema)
        columns = [corrupt if name == CORRUPT else decoded.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _corrupt(self, decoded: pa.RecordBatch) -> pa.Array:
        """The payloads of bad records, and null in the other rows."""
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

    def _pieces(self, part: Decompressed) -> Iterator[Decompressed]:
        """The rows in pieces that cannot become more than `MAX_DECODED_BYTES`, or are one row."""
        payloads = part.rows.column(self.payload) if part.payloads is None else part.payloads
        kinds = self._inner(part.rows.schema).types[part.rows.num_columns :]
        of_row, of_byte = (
            sum(map(columns.min_value_bytes, kinds)),
            max(map(columns.max_bytes_per_byte, kinds)),
        )
        # The memory of an array is somewhat more than its payloads.
        if of_byte * payloads.nbytes + of_row * len(payloads) <= columns.MAX_DECODED_BYTES:
            yield part
            return
        lengths = pc.fill_null(pc.binary_length(payloads), 0)
        start = total = 0
        for at, size in enumerate(lengths.to_pylist()):
            row_bytes = of_byte * size + of_row
            total += row_bytes
            if total > columns.MAX_DECODED_BYTES and at > start:
                yield part.slice(start, at - start)
                start, total = at, row_bytes
        yield part.slice(start, len(payloads) - start)

    def _decompressed(self, part: Decompressed) -> pa.RecordBatch:
        """The decoded rows of a part, with the payloads as they came."""
        rows, at = part.rows, part.rows.schema.get_field_index(self.payload)
        if part.payloads is not None:
            rows = rows.set_column(at, rows.schema.field(at), part.payloads)
        if self._has_unframed:
            rows = rows.append_column(UNFRAMED_PAYLOAD, rows.column(at))
        if part.payloads is None or part.reasons is None:
            return _joined(list(self._decoded(rows)))
        row_numbers = pa.array(range(rows.num_rows), pa.int64())
        rows = rows.append_column(ROW, row_numbers)
        is_bad = pc.is_valid(part.reasons)
        decoded = _joined(
            [
                *self._decoded(rows.filter(pc.invert(is_bad))),
                self._rejected(rows.filter(is_bad), part.reasons.filter(is_bad)),
            ]
        )
        decoded = decoded.take(pc.sort_indices(decoded.column(ROW)))
        came = part.rows.column(at).take(decoded.column(ROW))
        return decoded.drop_columns([ROW]).set_column(at, decoded.schema.field(at), came)

    def _decoded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        try:
            decoded = self.decoder.decode_batch(batch)
        except BaseException as error:
            reason = reason_of(error)
        else:
            yield decoded
            return
        half = batch.num_rows // 2
        if half:
            yield from self._decoded(batch.slice(0, half))
            yield from self._decoded(batch.slice(half))
        else:
            yield self._rejected(batch, pa.array([reason] * batch.num_rows, pa.string()))

    def _rejected(self, batch: pa.RecordBatch, reasons: pa.StringArray) -> pa.RecordBatch:
        """The rows with null in their fields."""
        schema = self.decoder.decoded_schema(batch.schema)
        fields = list(schema)[batch.num_columns : -1]
        nulls = [pa.nulls(batch.num_rows, field.type) for field in fields]
        return pa.RecordBatch.from_arrays([*batch.columns, *nulls, reasons], schema=schema)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of at least one batch as one batch."""
    filled = [batch for batch in batches if batch.num_rows] or batches[:1]
    if len(filled) == 1:
        return filled[0]
    (joined,) = pa.Table.from_batches(filled).combine_chunks().to_batches()
    return joined
