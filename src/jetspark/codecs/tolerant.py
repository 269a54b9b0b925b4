"""A decoder that no payload stops, whatever the decoder of its format does not foresee.

Decoders make bad records of what they know to be wrong. If one raises nevertheless, halves of the
batch are decoded until the row to blame is alone, which becomes a bad record with the exception as
its reason; all others are decoded as if it were not there.

The column of the payload has it as it came, which is what the headers beside it are about, whatever
is around it. What needs it without its compression and frame reads `BARE_PAYLOAD` (`Bare`).

Payloads are decompressed here, for decoders of all formats, and a batch is decoded in parts, so
that a few bytes of each payload cannot become more in memory than one payload may have: neither by
their compression, nor as elements of lists, which a byte each may be many columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.codecs import sizes
from jetspark.codecs.decoder import PAYLOAD, NotOfPayload, only_refused, reason_of
from jetspark.codecs.framing import Decompressed, Framing
from jetspark.reserved_names import BARE_PAYLOAD, PREFIX

Bare: TypeAlias = Literal["", "refused", "all"]
"""Which rows have their payload in the column `BARE_PAYLOAD`; empty: there is no such column."""

ROW: Final = f"{PREFIX}_row"
"""A column with the number of each row of a part, while its payloads are decompressed."""


class Decoder(Protocol):
    """Adds the fields of payloads to a batch."""

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns, and `REASON` as the last one."""


def decode_in_parts(
    decoder: Decoder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decode batches; one whose payloads are large without their compression becomes several."""
    for batch in batches:
        if isinstance(decoder, TolerantDecoder):
            yield from decoder.parts(batch)
        else:
            yield decoder.of(batch)


@dataclass(frozen=True)
class TolerantDecoder:
    """Decodes as `decoder` does, and makes a bad record of each row for which it raises."""

    decoder: Decoder
    """It gets payloads without compression."""
    framing: Framing = field(default_factory=partial(Framing, compression="none"))
    keep_payload: bool = True
    """Whether the column of the payload keeps those that were decoded."""
    bare: Bare = ""

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""
        if self.bare:
            columns = columns.append(pa.field(BARE_PAYLOAD, pa.binary()))
        return self.decoder.schema(columns)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns. Raises only what no payload causes."""
        return _joined(list(self.parts(batch)))

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `of` in batches of bounded size."""
        try:
            for part in self.framing.decompress(batch):
                for piece in self._pieces(part):
                    yield self._kept(self._decompressed(piece))
        except NotOfPayload as error:
            raise error.error from None

    def _kept(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without the payloads that nobody needs."""
        if not self.keep_payload:
            decoded = only_refused(decoded)
        return only_refused(decoded, BARE_PAYLOAD) if self.bare == "refused" else decoded

    def _pieces(self, part: Decompressed) -> Iterator[Decompressed]:
        """The rows in pieces that cannot become more than `MAX_DECODED_BYTES`, or are one row."""
        if PAYLOAD not in part.rows.schema.names:
            yield part
            return
        payloads = part.rows.column(PAYLOAD) if part.payloads is None else part.payloads
        kinds = self.schema(part.rows.schema).types[part.rows.num_columns :]
        of_row, of_byte = (
            sum(map(sizes.bytes_of_value, kinds)),
            max(map(sizes.bytes_of_byte, kinds)),
        )
        lengths = pc.fill_null(pc.binary_length(payloads), 0)
        most = of_byte * (pc.sum(lengths).as_py() or 0) + of_row * len(payloads)
        if most <= sizes.MAX_DECODED_BYTES:
            yield part
            return
        start = total = 0
        for at, size in enumerate(lengths.to_pylist()):
            most = of_byte * size + of_row
            total += most
            if total > sizes.MAX_DECODED_BYTES and at > start:
                yield part.slice(start, at - start)
                start, total = at, most
        yield part.slice(start, len(payloads) - start)

    def _decompressed(self, part: Decompressed) -> pa.RecordBatch:
        """The decoded rows of a part, with the payloads as they came."""
        rows, at = part.rows, part.rows.schema.get_field_index(PAYLOAD)
        if part.payloads is not None:
            rows = rows.set_column(at, rows.schema.field(at), part.payloads)
        if self.bare:
            rows = rows.append_column(BARE_PAYLOAD, rows.column(at))
        if part.payloads is None or part.reasons is None:
            return _joined(list(self._decoded(rows)))
        numbers = pa.array(range(rows.num_rows), pa.int64())
        rows = rows.append_column(ROW, numbers)
        refused = pc.is_valid(part.reasons)
        decoded = _joined(
            [
                *self._decoded(rows.filter(pc.invert(refused))),
                self._rejected(rows.filter(refused), part.reasons.filter(refused)),
            ]
        )
        decoded = decoded.take(pc.sort_indices(decoded.column(ROW)))
        came = part.rows.column(at).take(decoded.column(ROW))
        return decoded.drop_columns([ROW]).set_column(at, decoded.schema.field(at), came)

    def _decoded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        try:
            decoded = self.decoder.of(batch)
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
        schema = self.decoder.schema(batch.schema)
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
