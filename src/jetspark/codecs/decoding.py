"""How the payloads of a stream are decoded, as options, flags and arguments say it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol, cast, get_args

import pyarrow as pa

from jetspark.codecs import avro, debezium, protobuf
from jetspark.codecs.cloudevents import CloudEventFields, JsonObjects
from jetspark.codecs.decoder import PayloadFields, SchemaKey, Undecodable, Writer, only_refused
from jetspark.codecs.framing import Framing
from jetspark.codecs.json_schema import columns_of
from jetspark.codecs.schema import PayloadSchema, SchemaLookup, UnusableSchema, from_file
from jetspark.errors import ConfigError, SchemaGrown
from jetspark.files import read_small
from jetspark.validation import check_whole

Format = Literal["avro", "protobuf", "cloudevents", "debezium"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
_MODULE = re.compile(r"[\w.]+:\w+")
"""A compiled class."""
_IN_AVRO = re.compile(r"\s*\{.*\"type\"\s*:\s*\"record\"", re.DOTALL)
"""A record of Avro, rather than a JSON Schema."""


class Decoder(Protocol):
    """Adds the fields of payloads to a batch."""

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns."""


@dataclass(frozen=True)
class _WithoutDecoded:
    """Decodes as another one, and leaves no payload that was decoded."""

    decoder: Decoder

    def schema(self, columns: pa.Schema) -> pa.Schema:
        return self.decoder.schema(columns)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return only_refused(self.decoder.of(batch))


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
    keep_payload: bool = False
    """Whether payloads stay that were decoded."""
    growing: str = ""
    """The reader's name in the registry, if a newer version ends the query; else empty."""

    @classmethod
    def make(
        cls,
        decode: Format,
        *,
        schema_file: str | None = None,
        lookup: SchemaLookup | None = None,
        fields: Sequence[str] = (),
        framing: str = "none",
        compression: str = "header",
        keep_payload: bool = False,
        schema_name: str | None = None,
        on_new_version: str = "ignore",
        **of_schema: Any,
    ) -> Decoding:
        """From what users give; the rest is that of `given_schema`, whose errors it raises."""
        if decode not in FORMATS:
            raise ConfigError(f"decode must be {', '.join(FORMATS)}, not {decode!r}.")
        of_schema |= {"schema_file": schema_file, "lookup": lookup, "schema_name": schema_name}
        found = given_schema(decode, **of_schema)
        growing = schema_name or "" if on_new_version == "stop" else ""
        if on_new_version == "stop" and not found.version:
            raise ConfigError(
                "A schema has new versions if it comes from a registry by its name: give that, and "
                "no other schema."
            )
        packed = Framing(framing, compression, with_message=decode == "protobuf").checked()
        with from_file(schema_file):
            made = cls(found, packed, tuple(fields), lookup, keep_payload, growing)
            made.decoder()
        return made

    def decoder(self) -> Decoder:
        """Raises ConfigError for a schema that cannot be used, and without the format's library."""
        made = _DECODERS[self.schema.format](self)
        return made if self.keep_payload else _WithoutDecoded(made)

    @property
    def needs(self) -> list[str]:
        """The columns that are looked at beside the payload."""
        in_headers = self.framing.needs_headers or self.schema.format == "cloudevents"
        found = ["headers"] if in_headers else []
        return found + (["seq"] if self.schema.format == "debezium" else [])

    def schema_of(self, key: SchemaKey) -> PayloadSchema:
        """The schema of a payload's writer. Raises SchemaNotFoundError, and SchemaGrown where a
        newer version of the reader's is to be noticed."""
        if self.lookup is None or key == SchemaKey(message=key.message):
            return self.schema
        format_ = _registered(self.schema.format)
        if key.number is None:
            found = self.lookup.by_name(key.name, key.version, format_)
            newest = found.version if key.name == self.growing else 0
        else:
            found = self.lookup.by_id(key.number)
            newest = self.lookup.by_name(self.growing, None, format_).version if self.growing else 0
        if newest > self.schema.version:
            raise SchemaGrown(
                f"The schema {self.growing} has version {newest} now. The batch was not written: "
                "start the query again."
            )
        return found

    def check_fields(self, names: list[str]) -> list[str]:
        """The wanted ones of these fields. Raises ConfigError for one that is not there."""
        for one in self.fields:
            if one not in names:
                raise ConfigError(
                    f"fields: the schema has no field {one!r}; it has {', '.join(names)}."
                )
        return list(self.fields) or names


def read_schema(file: str) -> bytes:
    """What a file of a schema has. Raises ConfigError."""
    try:
        return read_small(file)
    except OSError as error:
        raise ConfigError(f"The schema in {file} cannot be read: {error.strerror}.") from None


def given_schema(
    format_: str,
    schema: str | None = None,
    schema_file: str | None = None,
    lookup: SchemaLookup | None = None,
    schema_name: str | None = None,
    schema_version: int | None = None,
    message: str | None = None,
) -> PayloadSchema:
    """The schema that users give; `lookup`: their registry. Raises ConfigError, and as `lookup`."""
    if schema is not None and schema_file is not None:
        raise ConfigError("Give the schema of the payloads, or the file that has it, not both.")
    if message is not None and format_ not in ("protobuf", "cloudevents"):
        raise ConfigError(f"A message is named for Protobuf, not for {format_}.")
    if schema_name is not None and (schema, schema_file) != (None, None):
        raise ConfigError("Give the schema of the payloads, or its name in the registry, not both.")
    if lookup is None and (schema_name, schema_version) != (None, None):
        raise ConfigError("A schema's name and version go with a registry that has it.")
    if lookup is not None and schema_name is not None:
        if schema_version is not None:
            check_whole("The schema's version", schema_version)
        found = lookup.by_name(schema_name, schema_version, _registered(format_))
        found = replace(found, name="")
        if format_ == "debezium" and found.format == "avro":
            found = replace(found, format="debezium")
        if found.format != format_:
            raise ConfigError(f"The schema {schema_name} is in {found.format}, not {format_}.")
    else:
        found = _given(format_, schema, schema_file)
    with from_file(schema_file):
        found = found if message is None else replace(found, name=message)
        return protobuf.message_of(found) if format_ == "protobuf" else found


def _registered(format_: str) -> str | None:
    """The format of its schema in a registry; None: any."""
    return format_ if format_ in ("avro", "protobuf", "json") else None


def _given(decode: str, schema: str | None, file: str | None) -> PayloadSchema:
    if decode == "protobuf" and schema is not None and _MODULE.fullmatch(schema):
        return protobuf.of_module(schema)
    if file is not None:
        content = read_schema(file)
        if decode == "protobuf" and not file.endswith(".proto"):
            schema = base64.b64encode(content).decode()
        else:
            try:
                schema = content.decode()
            except UnicodeDecodeError:
                raise ConfigError(f"The schema in {file} is not UTF-8 text.") from None
    if schema is None and decode in ("cloudevents", "json"):  # the data stays as it is
        schema = ""
    if schema is None:
        raise ConfigError(
            f"Payloads in {decode} need their schema: give it, the file that has it, or its name "
            "in a registry."
        )
    return PayloadSchema(cast("Format", decode), schema)


def _of_avro(decoding: Decoding) -> PayloadFields:
    reader = decoding.schema
    avro.library()
    every = avro.fields_of(reader)
    names = decoding.check_fields(every.names)

    def writer(key: SchemaKey) -> Writer:
        return avro.AvroWriter(decoding.schema_of(key), reader, names)

    return PayloadFields(pa.schema([every.field(name) for name in names]), decoding.framing, writer)


def _of_protobuf(decoding: Decoding) -> PayloadFields:
    schema = protobuf.message_of(decoding.schema)
    messages = protobuf.ProtobufWriter(schema, decoding.fields or None)
    if len(messages.fields) < len(decoding.fields):
        decoding.check_fields(protobuf.field_names(schema))

    def writer(key: SchemaKey) -> Writer:
        name = key.message
        if isinstance(name, tuple):
            name = protobuf.name_at(decoding.schema_of(key), name)
        if name not in (None, schema.name):
            raise Undecodable(f"The payload is {name}, not {schema.name}.")
        return messages

    return PayloadFields(messages.fields, decoding.framing, writer)


def data_format(text: str) -> Literal["avro", "protobuf", "json"]:
    """Of the data of CloudEvents, by their schema."""
    return "protobuf" if ";" in text else "avro" if _IN_AVRO.match(text) else "json"


def _of_cloudevents(decoding: Decoding) -> Decoder:
    if decoding.framing.name != "none":
        raise ConfigError("CloudEvents have no frame: leave framing out.")
    text, unpack = decoding.schema.text, decoding.framing.unpack
    if not text:
        return CloudEventFields(unpack)
    inner = replace(decoding, framing=Framing(compression="none", may_be_framed=False), lookup=None)
    if (format_ := data_format(text)) != "json":
        inner = replace(inner, schema=replace(decoding.schema, format=format_))
        of_data = _of_avro if format_ == "avro" else _of_protobuf
        return CloudEventFields(unpack, of_data(inner), format_)
    every = columns_of(text)
    fields = [every.field(name) for name in decoding.check_fields(every.names)]
    return CloudEventFields(unpack, JsonObjects(pa.schema(fields)), "json")


def _of_debezium(decoding: Decoding) -> Decoder:
    try:
        every, events, in_avro = debezium.given_schema(decoding.schema.text)
    except ValueError as error:
        raise UnusableSchema(f"The schema cannot be used: {error}.") from None
    fields = pa.schema([every.field(name) for name in decoding.check_fields(every.names)])
    if not in_avro:
        return debezium.DebeziumFields(fields, events, decoding.framing)
    envelope = replace(decoding, schema=replace(decoding.schema, format="avro"), fields=())
    return debezium.DebeziumFields(fields, events, avro=_of_avro(envelope))


_DECODERS: dict[str, Callable[[Decoding], Decoder]] = {
    "avro": _of_avro,
    "protobuf": _of_protobuf,
    "cloudevents": _of_cloudevents,
    "debezium": _of_debezium,
}
