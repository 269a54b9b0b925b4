"""The decoding of a stream's payloads, as options, flags and arguments choose it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa

from jetspark.errors import ConfigError, SchemaEvolved
from jetspark.payloads import avro_schema, protobuf_schema
from jetspark.payloads.avro import AvroDecoder
from jetspark.payloads.cloudevents import CloudEventDecoder
from jetspark.payloads.debezium import DebeziumDecoder
from jetspark.payloads.debezium_placeholders import UNAVAILABLE_VALUE, Placeholders
from jetspark.payloads.debezium_schema import parse_schema
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
from jetspark.payloads.schema import (
    PayloadFormat,
    PayloadSchema,
    SchemaLookup,
    UnusableSchema,
    name_schema_file,
)
from jetspark.payloads.schema_sources import find_former_versions, find_schema, registry_format
from jetspark.payloads.tolerant import Decoder, TolerantDecoder
from jetspark.reserved_names import check_names

FORMATS: Final[tuple[PayloadFormat, ...]] = get_args(PayloadFormat)
_AVRO_RECORD = re.compile(r"\s*\{.*\"type\"\s*:\s*\"record\"", re.DOTALL)
"""The schema of a record in Avro, rather than a JSON Schema."""


@dataclass(frozen=True)
class Decoding:
    """How the payloads of a stream are decoded: by which schema, out of which frames, into which
    columns. It is sent to Spark's executors."""

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
    unavailable_value: str = UNAVAILABLE_VALUE
    """Debezium's text for a value that the database did not send."""
    names: FieldNames = field(default_factory=FieldNames)
    """The columns of fields."""

    @classmethod
    def make(
        cls,
        decode: PayloadFormat,
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
        **schema_options: Any,
    ) -> Decoding:
        """Create a decoding from a user's options. `schema_options`: further ones of `find_schema`,
        whose errors it raises; ConfigError also for options that do not go together."""
        if decode not in FORMATS:
            raise ConfigError(f"must be {', '.join(FORMATS)}", option="decode", value=decode)
        schema = find_schema(
            decode,
            schema_file=schema_file,
            lookup=lookup,
            schema_name=schema_name,
            **schema_options,
        )
        watched = schema_name or "" if on_new_version == "stop" else ""
        if on_new_version == "stop" and not schema.version:
            raise ConfigError(
                "A schema has new versions if it comes from a registry by its name: give that, and "
                "no other schema."
            )
        if unavailable_value is not None and decode != "debezium":
            raise ConfigError(f"is for Debezium, not for {decode}.", option="unavailable_value")
        envelope = Framing(framing, compression, with_message=decode == "protobuf").checked()
        check_ids(envelope, lookup)
        # Payloads of former versions can still come, with fields that a newer one has dropped.
        if watched and lookup is not None and envelope.name != "none" and decode == "avro":
            schema = replace(schema, former=find_former_versions(lookup, watched, schema))
        if unavailable_value is None:
            unavailable_value = UNAVAILABLE_VALUE
        with name_schema_file(schema_file):
            decoding = cls(
                schema,
                envelope,
                fields=tuple(fields),
                lookup=lookup,
                keep_payload=keep_payload,
                watched=watched,
                unavailable_value=unavailable_value,
                names=FieldNames(rename or {}),
            )
            decoding.decoder()  # which refuses what cannot be used
        return decoding

    def decoder(self) -> TolerantDecoder:
        """Create the decoder of batches. Raises ConfigError for a schema that cannot be used, for
        names that do not fit it, and if a library for the format is not installed."""
        without_compression = replace(self, framing=self.framing.without_compression)
        decoder: Decoder
        decoder = format_decoder = _MAKE_DECODER[self.schema.format](without_compression)
        names = format_decoder.fields.names
        columns = self.names.schema("The schema of the payloads", format_decoder.fields)
        check_names("The schema of the payloads", columns.names)
        for name in self.names.renamed:
            if name not in names and not self.is_json:
                raise ConfigError(
                    f"rename: the payloads have no field {name!r}; they have {', '.join(names)}."
                )
        if columns.names != names:
            decoder = _RenamingDecoder(format_decoder, columns)
        return TolerantDecoder(
            decoder,
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
        """Return the decoding of JSON payloads with another schema, of which all fields are
        selected."""
        return replace(self, schema=replace(self.schema, text=ddl), fields=())

    @property
    def needs(self) -> list[str]:
        """The columns of a batch that the decoder reads beside the payload."""
        in_headers = self.framing.needs_headers or self.schema.format == "cloudevents"
        columns = ["headers"] if in_headers else []
        return columns + (["seq"] if self.schema.format == "debezium" else [])

    def schema_of(self, key: SchemaKey) -> PayloadSchema:
        """Return the schema that a payload was written with.

        `key`: what the payload names. Raises SchemaNotFoundError; and SchemaEvolved (within
        BatchError) if there is a newer version of the reader's schema, and the query is to end
        then.
        """
        if self.lookup is None or key == SchemaKey(message=key.message):  # it names none
            return self.schema
        with raise_batch_errors():
            return self._look_up_schema(self.lookup, key)

    def _look_up_schema(self, lookup: SchemaLookup, key: SchemaKey) -> PayloadSchema:
        """Ask a registry for the schema that a payload names. Raises SchemaEvolved if a newer
        version than the reader's is to end the query, and there is one."""
        format_ = registry_format(self.schema.format)
        # `newest`: of the schema that is watched, as far as it matters here; 0: none is.
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
        """Return the fields that the user has selected, or all. `names`: the fields of the schema.
        Raises ConfigError for a selected one that is not among them."""
        for name in self.fields:
            if name not in names:
                raise ConfigError(
                    f"fields: the schema has no field {name!r}; it has {', '.join(names)}."
                )
        return list(self.fields) or names

    def select_fields(self, fields: pa.Schema) -> pa.Schema:
        """Return the selected ones of a schema's fields; see `check_fields`."""
        return pa.schema([fields.field(name) for name in self.check_fields(fields.names)])


def check_ids(framing: Framing, lookup: SchemaLookup | None) -> None:
    """Raise ConfigError if the framing names schemas by numbers, and the registry has names
    only."""
    if framing.has_id and not getattr(lookup, "has_ids", True):
        raise ConfigError(
            f"framing {framing.name}: its frames name schemas by ids, and a registry over NATS has "
            "only names: use framing nats, or a registry with an https URL."
        )


@dataclass(frozen=True)
class _RenamingDecoder:
    """Decodes as another decoder does, and gives the fields other names."""

    decoder: Decoder
    fields: pa.Schema
    """The fields, in the order of the decoder's, with their names."""

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the schema of `decode_batch` for a batch with these columns."""
        return with_fields(columns, self.fields)

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what the other decoder does, with other names for the fields."""
        decoded = self.decoder.decode_batch(batch)
        return pa.RecordBatch.from_arrays(decoded.columns, schema=self.decoded_schema(batch.schema))


def _make_avro_decoder(decoding: Decoding) -> PayloadDecoder:
    """Create the decoder of payloads in Avro: each is read by the schema that it was written
    with."""
    reader = decoding.schema
    fields = decoding.select_fields(avro_schema.fields_of(reader))

    def decoder_of(key: SchemaKey) -> SchemaDecoder:
        return AvroDecoder(decoding.schema_of(key), reader, fields.names)

    return PayloadDecoder(fields, decoding.framing, decoder_of)


def _make_protobuf_decoder(decoding: Decoding) -> PayloadDecoder:
    """Create the decoder of payloads in Protobuf, all of which are one message; it refuses payloads
    that name another one."""
    schema = protobuf_schema.message_of(decoding.schema)
    if decoding.lookup is not None:  # whose schemas are .proto files
        protobuf_schema.check_compiler()
    messages = ProtobufDecoder(schema, decoding.fields or None)
    if len(messages.fields) < len(decoding.fields):  # the schema lacks a selected one
        decoding.check_fields(protobuf_schema.field_names(schema))

    def decoder_of(key: SchemaKey) -> SchemaDecoder:
        """Return the one decoder, if a payload names its message or none. Raises Undecodable."""
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
    """Return the format of the data of CloudEvents by the text of its schema."""
    # Of these, only a .proto file always has a semicolon.
    return "protobuf" if ";" in text else "avro" if _AVRO_RECORD.match(text) else "json"


def _make_cloudevents_decoder(decoding: Decoding) -> CloudEventDecoder:
    """Create the decoder of CloudEvents, and if there is a schema of their data, the decoder of
    that in it. Raises ConfigError."""
    if decoding.framing.name != "none":
        raise ConfigError("CloudEvents have no frame: leave framing out.")
    text, unframe = decoding.schema.text, decoding.framing.unframe
    if not text:
        return CloudEventDecoder(unframe)
    if (format_ := data_format(text)) == "json":
        data_fields = decoding.select_fields(columns_of(text))
        return CloudEventDecoder(unframe, JsonDecoder(data_fields), "json")
    of_data = replace(
        decoding,
        schema=replace(decoding.schema, format=format_),
        framing=Framing(compression="none", may_be_framed=False),
        lookup=None,
    )
    make = _make_avro_decoder if format_ == "avro" else _make_protobuf_decoder
    return CloudEventDecoder(unframe, make(of_data), format_)


def _make_json_decoder(decoding: Decoding) -> JsonDecoder:
    """Create the decoder of payloads in JSON. Raises ConfigError if there is no schema."""
    if not decoding.schema.text:
        raise UnusableSchema(
            "Payloads in JSON become columns by a schema: give it, in Spark's DDL or as JSON "
            "Schema, the file that has it, or its name in a registry."
        )
    fields = decoding.select_fields(json_columns_of(decoding.schema.text))
    return JsonDecoder(fields, framing=decoding.framing)


def _make_debezium_decoder(decoding: Decoding) -> DebeziumDecoder:
    """Create the decoder of Debezium's events, in JSON or Avro as the schema says."""
    try:
        events = parse_schema(decoding.schema.text)
    except ValueError as error:
        raise UnusableSchema(f"The schema cannot be used: {error}.") from None
    fields = decoding.select_fields(events.columns)
    try:
        placeholders = Placeholders(decoding.unavailable_value)
    except ValueError as error:
        raise ConfigError(f"unavailableValue: {error}.") from None
    if not events.is_avro:
        framing = decoding.framing
        return DebeziumDecoder(fields, events.schema, framing, placeholders=placeholders)
    envelope = replace(decoding, schema=replace(decoding.schema, format="avro"), fields=())
    avro = _make_avro_decoder(envelope)
    return DebeziumDecoder(fields, events.schema, avro=avro, placeholders=placeholders)


_FormatDecoder: TypeAlias = PayloadDecoder | JsonDecoder | CloudEventDecoder | DebeziumDecoder
_MAKE_DECODER: Final[Mapping[str, Callable[[Decoding], _FormatDecoder]]] = {
    "avro": _make_avro_decoder,
    "protobuf": _make_protobuf_decoder,
    "json": _make_json_decoder,
    "cloudevents": _make_cloudevents_decoder,
    "debezium": _make_debezium_decoder,
}
