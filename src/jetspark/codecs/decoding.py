"""How the payloads of a stream are decoded, as options, flags and arguments say it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol, get_args

import pyarrow as pa

from jetspark.codecs import avro, debezium, protobuf
from jetspark.codecs.decoder import PayloadFields, SchemaKey, Undecodable, Writer
from jetspark.codecs.framing import COMPRESSIONS, FRAMINGS, Framing
from jetspark.codecs.schema import PayloadSchema, SchemaLookup
from jetspark.errors import ConfigError
from jetspark.files import read_small

Format = Literal["avro", "protobuf", "debezium"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
_MODULE = re.compile(r"[\w.]+:\w+")
"""A compiled class."""


class Decoder(Protocol):
    """Adds the fields of payloads to a batch, whose payloads are null where they are decoded."""

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns."""


@dataclass(frozen=True)
class Decoding:
    """A format with its schemas. It is sent to executors."""

    schema: PayloadSchema
    """The reader's: what the columns are."""
    framing: Framing
    fields: tuple[str, ...] = ()
    """The wanted ones; empty: all."""
    lookup: SchemaLookup | None = field(default=None, repr=False)
    """For the writers' schemas; without it every payload is of the reader's."""
    version: int = 0
    """Of the reader's in the registry that it came from."""

    @classmethod
    def make(
        cls,
        decode: Format,
        *,
        schema: str | None = None,
        schema_file: str | None = None,
        lookup: SchemaLookup | None = None,
        schema_name: str | None = None,
        schema_version: int | None = None,
        message: str | None = None,
        fields: Sequence[str] = (),
        framing: str = "none",
        compression: str = "header",
    ) -> Decoding:
        """From what users give; `lookup`: their registry. Raises ConfigError, and as `lookup`."""
        for name, given, known in (
            ("decode", decode, FORMATS),
            ("framing", framing, FRAMINGS),
            ("compression", compression, ("header", *COMPRESSIONS)),
        ):
            if given not in known:
                raise ConfigError(f"{name} must be {', '.join(known)}, not {given!r}.")
        if schema is not None and schema_file is not None:
            raise ConfigError("Give the schema of the payloads, or the file that has it, not both.")
        if message is not None and decode != "protobuf":
            raise ConfigError(f"A message is named for Protobuf, not for {decode}.")
        if lookup is None and (schema_name, schema_version) != (None, None):
            raise ConfigError("A schema's name and version go with a registry that has it.")
        version = 0
        if lookup is not None and schema_name is not None and schema is schema_file is None:
            found = replace(lookup.by_name(schema_name, schema_version), name="")
            version = found.version
            if decode == "debezium" and found.format == "avro":
                found = replace(found, format=decode)
            if found.format != decode:
                raise ConfigError(f"The schema {schema_name} is in {found.format}, not {decode}.")
        else:
            found = _given(decode, schema, schema_file)
        if message is not None:
            found = replace(found, name=message)
        packed = Framing(framing, compression, with_message=decode == "protobuf")
        made = cls(found, packed, tuple(fields), lookup, version)
        made.decoder()
        return made

    def decoder(self) -> Decoder:
        """Raises ConfigError for a schema that cannot be used, and without the format's library."""
        return _DECODERS[self.schema.format](self)

    @property
    def needs(self) -> list[str]:
        """The columns that are looked at beside the payload."""
        found = ["headers"] if self.framing.needs_headers else []
        return found + (["seq"] if self.schema.format == "debezium" else [])

    def schema_of(self, key: SchemaKey) -> PayloadSchema:
        """The schema of a payload's writer. Raises SchemaNotFoundError."""
        if self.lookup is None or key == SchemaKey(message=key.message):
            return self.schema
        if key.number is not None:
            return self.lookup.by_id(key.number)
        return self.lookup.by_name(key.name, key.version)

    def check_fields(self, names: list[str]) -> list[str]:
        """The wanted ones of these fields. Raises ConfigError for one that is not there."""
        for one in self.fields:
            if one not in names:
                raise ConfigError(
                    f"fields: the schema has no field {one!r}; it has {', '.join(names)}."
                )
        return list(self.fields) or names


def _given(decode: Format, schema: str | None, file: str | None) -> PayloadSchema:
    if decode == "protobuf" and schema is not None and _MODULE.fullmatch(schema):
        return protobuf.of_module(schema)
    if file is not None:
        try:
            content = read_small(file)
            is_set = decode == "protobuf" and not file.endswith(".proto")
            schema = base64.b64encode(content).decode() if is_set else content.decode()
        except OSError as error:
            raise ConfigError(f"The schema in {file} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise ConfigError(f"The schema in {file} is not UTF-8 text.") from None
    if schema is None:
        raise ConfigError(
            f"Payloads in {decode} need their schema: give it, the file that has it, or its name "
            "in a registry."
        )
    return PayloadSchema(decode, schema)


def _of_avro(decoding: Decoding) -> PayloadFields:
    reader = decoding.schema
    avro.source_of_files()
    every = avro.fields_of(reader)
    names = decoding.check_fields(every.names)

    def writer(key: SchemaKey) -> Writer:
        return avro.AvroWriter(decoding.schema_of(key), reader, names)

    return PayloadFields(
        pa.schema([every.field(name) for name in names]), decoding.framing.unpack, writer
    )


def _of_protobuf(decoding: Decoding) -> Decoder:
    schema = protobuf.message_of(decoding.schema)
    messages = protobuf.ProtobufWriter(schema, decoding.fields or None)
    decoding.check_fields(messages.fields.names)

    def writer(key: SchemaKey) -> Writer:
        name = key.message
        if isinstance(name, tuple):
            name = protobuf.name_at(decoding.schema_of(key), name)
        if name not in (None, schema.name):
            raise Undecodable(f"The payload is {name}, not {schema.name}.")
        return messages

    return PayloadFields(messages.fields, decoding.framing.unpack, writer)


def _of_debezium(decoding: Decoding) -> Decoder:
    try:
        every, events, in_avro = debezium.given_schema(decoding.schema.text)
    except ValueError as error:
        raise ConfigError(f"The schema cannot be used: {error}.") from None
    fields = pa.schema([every.field(name) for name in decoding.check_fields(every.names)])
    unpack = decoding.framing.unpack
    if not in_avro:
        return debezium.DebeziumFields(fields, events, unpack)
    envelope = replace(decoding, schema=replace(decoding.schema, format="avro"), fields=())
    return debezium.DebeziumFields(fields, events, avro=_of_avro(envelope))


_DECODERS: dict[str, Callable[[Decoding], Decoder]] = {
    "avro": _of_avro,
    "protobuf": _of_protobuf,
    "debezium": _of_debezium,
}
