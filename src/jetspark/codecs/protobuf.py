"""Messages of Protobuf as columns: by the C kernel, or by `protobuf_plain` where there is none."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.codecs import protobuf_plain, sizes
from jetspark.codecs.kernel_columns import arrays_of, buffers_of, plan_of
from jetspark.codecs.misfits import reasons_of
from jetspark.codecs.protobuf_plan import fields_of, plan_messages
from jetspark.codecs.protobuf_schema import MAX_DEPTH, descriptor_of
from jetspark.codecs.schema import PayloadSchema
from jetspark.wire.kernel import protobuf_columns


class ProtobufDecoder:
    """Decodes the messages of one type. It has the versions of all writers, as Protobuf has them:
    by the numbers of the fields."""

    def __init__(self, schema: PayloadSchema, fields: Collection[str] | None = None) -> None:
        """`schema`: a result of `message_of`; `fields`: the wanted ones, None for all. Raises
        ConfigError."""
        self.descriptor = descriptor_of(schema, fields)
        every = fields_of(self.descriptor)
        self._every = list(every)
        order = every.names if fields is None else [one for one in fields if one in every.names]
        self.fields = pa.schema([every.field(name) for name in order])
        self._name = f"{schema.name} in Protobuf"
        self._columns = plan_of(self._every, 2 * MAX_DEPTH)
        self._messages = plan_messages(self.descriptor)

    def decode(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """The fields, and why payloads do not fit. Raises Undecodable for what is too large."""
        if protobuf_columns is None or self._columns is None:
            columns, reasons = self.decode_plainly(payloads)
        else:
            data, offsets = buffers_of(payloads)
            plan, names = self._columns
            found = protobuf_columns(
                data, offsets, plan, names, sizes.MAX_DECODED_BYTES, *self._messages
            )
            if found is None:
                raise sizes.too_large()
            misfits, buffers = found
            columns = arrays_of(self._every, buffers)
            reasons = reasons_of(misfits, len(payloads), self._name)
        by_name = dict(zip((one.name for one in self._every), columns, strict=True))
        return [by_name[name] for name in self.fields.names], reasons

    def decode_plainly(self, payloads: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray]:
        """The same of all fields, without the kernel."""
        columns, whole, misfits = protobuf_plain.decode(
            self.descriptor, self._every, payloads, self._name
        )
        reasons = reasons_of(misfits, len(payloads), self._name)
        return columns, pc.coalesce(pa.array(whole, pa.string()), reasons)
