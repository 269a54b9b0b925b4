"""Datums of Avro as columns: by the C kernel, or by `avro_plain` where it was not built.

The types are those of Spark's `from_avro`; docs/payloads.md has the differences.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jetspark.codecs import avro_plain, sizes
from jetspark.codecs.avro_plan import packed, plan_datums
from jetspark.codecs.avro_schema import MAX_DEPTH, parse_record, reader_record
from jetspark.codecs.kernel_columns import arrays_of, buffers_of, plan_of
from jetspark.codecs.misfits import Misfits, reasons_of
from jetspark.codecs.schema import PayloadSchema
from jetspark.wire.kernel import avro_columns


class AvroDecoder:
    """Decodes datums of a writer's schema into fields of the reader's."""

    def __init__(self, writer: PayloadSchema, reader: PayloadSchema, fields: Sequence[str]) -> None:
        """`fields`: the wanted ones of the reader's, in their order. Raises Undecodable."""
        there = parse_record(writer)
        known = {one.name: one for one in reader_record(reader).fields}
        wanted = [known[name] for name in fields]
        self.fields = [pa.field(one.name, one.type.arrow) for one in wanted]
        self.root = plan_datums(there, wanted)
        self._name = f"{there.name or 'datum'} in Avro"
        self._columns = plan_of(self.fields, MAX_DEPTH)
        self._datums = packed(self.root)

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """The fields, and why payloads do not fit. Raises Undecodable for what is too large."""
        if avro_columns is None or self._columns is None:
            columns, misfits = avro_plain.decode(self.root, self.fields, payloads)
        else:
            data, offsets = buffers_of(payloads)
            columns_plan, names = self._columns
            plan = self._datums
            found = avro_columns(
                data,
                offsets,
                columns_plan,
                names,
                sizes.MAX_DECODED_BYTES,
                plan.nodes,
                plan.names,
                plan.constants,
            )
            if found is None:
                raise sizes.too_large()
            misfits, buffers = found
            columns = arrays_of(self.fields, buffers)
        return columns, self.reasons(len(payloads), misfits)

    def reasons(self, rows: int, misfits: Misfits) -> pa.StringArray:
        """Why payloads do not fit."""
        return reasons_of(misfits, rows, self._name)
