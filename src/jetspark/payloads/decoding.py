"""The decoding of a stream's payloads, as options, flags and arguments choose it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast, get_args

import pyarrow as pa

from jetspark.errors import ConfigError, SchemaEvolved, SchemaNotFoundError
from jetspark.files import read_small
from jetspark.payloads import avro_schema, debezium, protobuf_schema
from jetspark.payloads.avro import AvroDecoder
from jetspark.payloads.cloudevents import CloudEventDecoder
from jetspark.payloads.decoder import (
    BatchError,
    PayloadDecoder,
    SchemaDecoder,
    SchemaKey,
    Undecodable,
    raise_batch_errors,
    with_fields,
)
from jetspark.payloads.field_names import FieldNames
from jetspark.payloads.framing import Framing
from jetspark.payloads.json_decoder import JsonDecoder
from jetspark.payloads.json_schema import columns_of, json_columns_of
from jetspark.payloads.protobuf import ProtobufDecoder
from jetspark.payloads.schema import PayloadSchema, SchemaLookup, UnusableSchema, name_schema_file
from jetspark.payloads.tolerant import Decoder, TolerantDecoder
from jetspark.reserved_names import check_names
from jetspark.validation import check_whole

Format = Literal["avro", "protobuf", "json", "cloudevents", "debezium"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
_MODULE = re.compile(r"[\w.]+:\w+")
"""A compiled class."""
MAX_FORMER: Final = 50
"""Earlier versions of a schema whose fields stay columns when a later one drops them."""
_IN_AVRO = re.compile(r"\s*\{.*\"type\"\s*:\s*\"record\"", re.DOTALL)
"""A record of Avro, rather than a JSON Schema."""


@dataclass(frozen=True)
class Decoding:
    """A format with its schemas. It is sent to executors."""

    schema: PayloadSchema
    """The reader's: what the columns are."""
    framing: Framing
    fields: tuple[str, ...] = ()
    """The selected fields; empty: all."""
    lookup: SchemaLookup | None = field(default=None, repr=False)
    """Finds the writers' schemas; None: every payload has the reader's."""
    keep_payload: bool = False
    """Whether rows have their payload, too."""
    unframed_payload: bool = False
    """Whether they have it without its compression and frame, too."""
    watched: str = ""
    """The reader's name in the registry, if a newer version ends the query; else empty."""
    unavailable_value: str = debezium.UNAVAILABLE_VALUE
    """Debezium's text for a value that the database did not send."""
    names: FieldNames = field(default_factory=FieldNames)
    """The columns of fields."""

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
        unavailable_value: str | None = None,
        rename: Mapping[str, str] | None = None,
        **of_schema: Any,
    ) -> Decoding:
        """Create a decoding from options. `of_schema`: as `find_schema`, whose errors it raises."""
        if decode not in FORMATS:
            raise ConfigError(f"decode must be {', '.join(FORMATS)}, not {decode!r}.")
        of_schema |= {"schema_file": schema_file, "lookup": lookup, "schema_name": schema_name}
        reader = find_schema(decode, **of_schema)
        watched = schema_name or "" if on_new_version == "stop" else ""
        if on_new_version == "stop" and not reader.version:
            raise ConfigError(
                "A schema has new versions if it comes from a registry by its name: give that, and "
                "no other schema."
            )
        packed = Framing(framing, compression, with_message=decode == "protobuf").checked()
        check_ids(packed, lookup)
        if watched and lookup is not None and packed.name != "none" and decode == "avro":
            reader = replace(reader, former=_former_versions(lookup, watched, reader))
        with name_schema_file(schema_file):
            names = FieldNames(rename or {})
            decoding = cls(
                reader, packed, tuple(fields), lookup, keep_payload, watched=watched,
                names=names,
            )  # fmt: skip
            if unavailable_value is not None:
                if decode != "debezium":
                    raise ConfigError(f"unavailableValue is for Debezium, not for {decode}.")
                decoding = replace(decoding, unavailable_value=unavailable_value)
            decoding.decoder()
        return decoding

    def decoder(self) -> TolerantDecoder:
        """Raises ConfigError for a schema that cannot be used, and without the format's library."""
        inner = replace(self, framing=self.framing.without_compression)
        decoder = _DECODERS[self.schema.format](inner)
        fields = self.names.schema("The schema of the payloads", decoder.fields)
        check_names("The schema of the payloads", fields.names)
        for name in self.names.renamed:
            if name not in decoder.fields.names and self.schema.format != "json":
                raise ConfigError(
                    f"rename: the payloads have no field {name!r}; they have "
                    f"{', '.join(decoder.fields.names)}."
                )
        named = decoder if fields.names == decoder.fields.names else _Renamed(decoder, fields)
        return TolerantDecoder(
            named,
            self.framing,
            keep_payload=self.keep_payload,
            keep_unframed=self.unframed_payload,
            is_text=self.is_json,
        )

    @property
    def is_json(self) -> bool:
        """Whether payloads are JSON objects, which may have fields that the schema lacks."""
        return self.schema.format == "json"

    def with_json_fields(self, ddl: str) -> Decoding:
        """Return the decoding of JSON payloads with this schema instead."""
        return replace(self, schema=replace(self.schema, text=ddl), fields=())

    @property
    def needs(self) -> list[str]:
        """The columns that are looked at beside the payload."""
        in_headers = self.framing.needs_headers or self.schema.format == "cloudevents"
        columns = ["headers"] if in_headers else []
        return columns + (["seq"] if self.schema.format == "debezium" else [])

    def schema_of(self, key: SchemaKey) -> PayloadSchema:
        """The schema of a payload's writer. Raises SchemaNotFoundError, and SchemaEvolved where a
        newer version of the reader's is to be noticed."""
        if self.lookup is None or key == SchemaKey(message=key.message):
            return self.schema
        with raise_batch_errors():
            return self._looked_up(self.lookup, key)

    def _looked_up(self, lookup: SchemaLookup, key: SchemaKey) -> PayloadSchema:
        format_ = _registered(self.schema.format)
        if key.number is None:
            written = lookup.by_name(key.name, key.version, format_)
            newest = written.version if key.name == self.watched else 0
        else:
            written = lookup.by_id(key.number)
            newest = lookup.by_name(self.watched, None, format_).version if self.watched else 0
        if newest > self.schema.version:
            raise SchemaEvolved(
                f"The schema {self.watched} has version {newest} now. The batch was not written: "
                "start the query again."
            )
        return written

    def check_fields(self, names: list[str]) -> list[str]:
        """The wanted ones of these fields. Raises ConfigError for one that is not there."""
        for name in self.fields:
            if name not in names:
                raise ConfigError(
                    f"fields: the schema has no field {name!r}; it has {', '.join(names)}."
                )
        return list(self.fields) or names


def check_ids(framing: Framing, lookup: SchemaLookup | None) -> None:
    """Raise ConfigError if frames have ids, and the registry has none."""
    if framing.has_id and not getattr(lookup, "has_ids", True):
        raise ConfigError(
            f"framing {framing.name}: its frames name schemas by ids, and a registry over NATS has "
            "only names: use framing nats, or a registry with an https URL."
        )


@dataclass(frozen=True)
class _Renamed:
    """Decodes as another decoder does, with other names of the fields."""

    decoder: Decoder
    fields: pa.Schema

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        return with_fields(columns, self.fields)

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        decoded = self.decoder.decode_batch(batch)
        return pa.RecordBatch.from_arrays(decoded.columns, schema=self.decoded_schema(batch.schema))


def read_schema(file: str) -> bytes:
    """Return the content of a file with a schema. Raises ConfigError."""
    try:
        return read_small(file)
    except OSError as error:
        raise ConfigError(f"The schema in {file} cannot be read: {error.strerror}.") from None


def find_schema(
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
        reader = lookup.by_name(schema_name, schema_version, _registered(format_))
        reader = replace(reader, name="")
        if format_ == "debezium" and reader.format == "avro":
            reader = replace(reader, format="debezium")
        if reader.format != format_:
            raise ConfigError(f"The schema {schema_name} is in {reader.format}, not {format_}.")
    else:
        reader = _schema_from_text_or_file(format_, schema, schema_file)
    with name_schema_file(schema_file):
        reader = reader if message is None else replace(reader, name=message)
        return protobuf_schema.message_of(reader) if format_ == "protobuf" else reader


def _former_versions(
    lookup: SchemaLookup, name: str, latest: PayloadSchema
) -> tuple[PayloadSchema, ...]:
    """The versions before this one that the registry still has, the latest one first."""
    versions = []
    for version in range(latest.version - 1, max(latest.version - 1 - MAX_FORMER, 0), -1):
        with suppress(SchemaNotFoundError):
            versions.append(lookup.by_name(name, version, _registered(latest.format)))
    return tuple(versions)


def _registered(format_: str) -> str | None:
    """The format of its schema in a registry; None: any."""
    return format_ if format_ in ("avro", "protobuf", "json") else None


def _schema_from_text_or_file(decode: str, schema: str | None, file: str | None) -> PayloadSchema:
    if decode == "protobuf" and schema is not None and _MODULE.fullmatch(schema):
        return protobuf_schema.of_module(schema)
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


def _of_avro(decoding: Decoding) -> PayloadDecoder:
    reader = decoding.schema
    every = avro_schema.fields_of(reader)
    names = decoding.check_fields(every.names)

    def decoder_of(key: SchemaKey) -> SchemaDecoder:
        return AvroDecoder(decoding.schema_of(key), reader, names)

    return PayloadDecoder(
        pa.schema([every.field(name) for name in names]), decoding.framing, decoder_of
    )


def _of_protobuf(decoding: Decoding) -> PayloadDecoder:
    schema = protobuf_schema.message_of(decoding.schema)
    if decoding.lookup is not None:
        protobuf_schema.compiler()
    messages = ProtobufDecoder(schema, decoding.fields or None)
    if len(messages.fields) < len(decoding.fields):
        decoding.check_fields(protobuf_schema.field_names(schema))

    def decoder_of(key: SchemaKey) -> SchemaDecoder:
        name = key.message
        if isinstance(name, tuple):
            schema_of_writer = decoding.schema_of(key)
            try:
                name = protobuf_schema.name_at(schema_of_writer, name)
            except OSError as error:  # of protoc's folder
                raise BatchError(error) from None
        if name not in (None, schema.name):
            raise Undecodable(f"The payload is {name}, not {schema.name}.")
        return messages

    return PayloadDecoder(messages.fields, decoding.framing, decoder_of)


def data_format(text: str) -> Literal["avro", "protobuf", "json"]:
    """Return the format of the data of CloudEvents by their schema."""
    return "protobuf" if ";" in text else "avro" if _IN_AVRO.match(text) else "json"


def _of_cloudevents(decoding: Decoding) -> CloudEventDecoder:
    if decoding.framing.name != "none":
        raise ConfigError("CloudEvents have no frame: leave framing out.")
    text, unframe = decoding.schema.text, decoding.framing.unframe
    if not text:
        return CloudEventDecoder(unframe)
    inner = replace(decoding, framing=Framing(compression="none", may_be_framed=False), lookup=None)
    if (format_ := data_format(text)) != "json":
        inner = replace(inner, schema=replace(decoding.schema, format=format_))
        of_data = _of_avro if format_ == "avro" else _of_protobuf
        return CloudEventDecoder(unframe, of_data(inner), format_)
    every = columns_of(text)
    fields = [every.field(name) for name in decoding.check_fields(every.names)]
    return CloudEventDecoder(unframe, JsonDecoder(pa.schema(fields)), "json")


def _of_json(decoding: Decoding) -> JsonDecoder:
    if not decoding.schema.text:
        raise UnusableSchema(
            "Payloads in JSON become columns by a schema: give it, in Spark's DDL or as JSON "
            "Schema, the file that has it, or its name in a registry."
        )
    every = json_columns_of(decoding.schema.text)
    fields = pa.schema([every.field(name) for name in decoding.check_fields(every.names)])
    return JsonDecoder(fields, framing=decoding.framing)


def _of_debezium(decoding: Decoding) -> debezium.DebeziumDecoder:
    try:
        every, events, in_avro = debezium.parse_schema(decoding.schema.text)
    except ValueError as error:
        raise UnusableSchema(f"The schema cannot be used: {error}.") from None
    fields = pa.schema([every.field(name) for name in decoding.check_fields(every.names)])
    try:
        placeholders = debezium.Placeholders(decoding.unavailable_value)
    except ValueError as error:
        raise ConfigError(f"unavailableValue: {error}.") from None
    if not in_avro:
        return debezium.DebeziumDecoder(fields, events, decoding.framing, None, placeholders)
    envelope = replace(decoding, schema=replace(decoding.schema, format="avro"), fields=())
    return debezium.DebeziumDecoder(
        fields, events, avro=_of_avro(envelope), placeholders=placeholders
    )


_DECODERS: dict[
    str,
    Callable[
        [Decoding], PayloadDecoder | JsonDecoder | CloudEventDecoder | debezium.DebeziumDecoder
    ],
] = {
    "avro": _of_avro,
    "protobuf": _of_protobuf,
    "json": _of_json,
    "cloudevents": _of_cloudevents,
    "debezium": _of_debezium,
}
