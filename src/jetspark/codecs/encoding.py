"""How rows become payloads, as options, flags and arguments say it, as in `decoding`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from jetspark.codecs.avro import AvroEncoder
from jetspark.codecs.decoder import Undecodable
from jetspark.codecs.decoding import given_schema
from jetspark.codecs.encoder import Pairs, check_names, fitted
from jetspark.codecs.framing import COMPRESSIONS, Framing
from jetspark.codecs.protobuf import ProtobufEncoder, path_of
from jetspark.codecs.schema import PayloadSchema, from_file
from jetspark.errors import ConfigError


@dataclass(frozen=True)
class Encoding:
    """A format with its schema. It is sent to executors."""

    schema: PayloadSchema
    compression: str
    head: bytes
    headers: Pairs
    """What is in front of each payload, and goes with it."""

    @classmethod
    def make(
        cls,
        encode: str,
        *,
        schema_file: str | None = None,
        schema_name: str | None = None,
        framing: str = "none",
        compression: str = "none",
        **of_schema: Any,
    ) -> Encoding:
        """As `Decoding.make`; the registry is asked here only."""
        if encode not in _ENCODERS:
            raise ConfigError(f"encode must be {', '.join(_ENCODERS)}, not {encode!r}.")
        if compression not in COMPRESSIONS:
            raise ConfigError(f"compression must be {', '.join(COMPRESSIONS)}.")
        packed = Framing(framing, compression).checked()
        found = given_schema(encode, schema_file=schema_file, schema_name=schema_name, **of_schema)
        path = path_of(found) if encode == "protobuf" else ()
        with from_file(schema_file):
            made = cls(found, compression, *packed.around(found, schema_name, path))
            made.encoder()
        return made

    def encoder(self) -> Callable[[pa.RecordBatch], list[bytes]]:
        """Makes payloads of rows, and raises ConfigError, with the field, for what does not fit."""
        encoder = _ENCODERS[self.schema.format](self.schema)

        def encode(rows: pa.RecordBatch) -> list[bytes]:
            check_names(names := rows.schema.names, encoder.fields.names)
            kept = pa.schema([encoder.fields.field(name) for name in names])
            found = list(map(fitted, rows.columns, kept.types, names))
            try:
                payloads = encoder.of(pa.record_batch(found, schema=kept))
            except Undecodable as error:
                raise ConfigError(str(error)) from None
            payloads = [self.head + one for one in payloads] if self.head else payloads
            if self.compression == "none":
                return payloads
            return [pa.compress(one, codec=self.compression, asbytes=True) for one in payloads]

        return encode


_ENCODERS: Final = {"avro": AvroEncoder, "protobuf": ProtobufEncoder}
