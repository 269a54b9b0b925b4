"""Payloads in a format, by its schema: what clients, commands and Spark's sink have in common.

Spark's rows are encoded many at a time. A value of a client goes the same way, as one row, so that
the types are the same; it costs more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, partial
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from jetspark.errors import CodecError, ConfigError
from jetspark.payloads.avro_encoder import AvroEncoder
from jetspark.payloads.cloudevents import CloudEventEncoder, JsonEncoder
from jetspark.payloads.ddl import spark_type_name
from jetspark.payloads.decoder import PAYLOAD, REASON, Undecodable
from jetspark.payloads.decoding import Decoding, check_ids, data_format
from jetspark.payloads.encoder import Encoder, Pairs, check_names, fit_column, misfit_error
from jetspark.payloads.framing import COMPRESSIONS, BadFrame, Framing
from jetspark.payloads.json_decoder import JsonDecoder
from jetspark.payloads.json_schema import columns_of
from jetspark.payloads.protobuf_encoder import ProtobufEncoder
from jetspark.payloads.protobuf_schema import message_of, path_of
from jetspark.payloads.schema import PayloadSchema, SchemaLookup, name_schema_file
from jetspark.payloads.schema_sources import find_schema
from jetspark.payloads.tolerant import CORRUPT, Decoder
from jetspark.wire.headers import Headers, HeadersLike

FORMATS: Final = ("avro", "protobuf", "json", "cloudevents")
_PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


class Codec:
    """Payloads in "avro", "protobuf", "json" or "cloudevents".

    `schema`: as text; `schema_file`: the file with it; `schema_name`, `schema_version`: of one in
    the registry of `lookup`, a result of `jetspark.registry.lookup.schema_lookup`, by default the
    latest. JSON and CloudEvents need none. `message`: Protobuf's. `framing`, `compression`:
    docs/guide-payloads.md; by default payloads are written without compression, and read with that
    of their headers. The registry is asked in the calling thread: here, and once for each other
    schema that a payload names. Raises ConfigError, and as the registry.
    """

    def __init__(
        self,
        format: str,
        *,
        schema: str | None = None,
        schema_file: str | None = None,
        lookup: SchemaLookup | None = None,
        schema_name: str | None = None,
        schema_version: int | None = None,
        message: str | None = None,
        framing: str = "none",
        compression: str | None = None,
    ) -> None:
        """See the class. Finds the schema and checks the options, so that errors are raised
        here."""
        if format not in FORMATS:
            raise ConfigError(f"The codecs are {', '.join(FORMATS)}: there is no {format!r}.")
        wrapping = Framing(framing, compression or "header", with_message=format == "protobuf")
        self._framing = wrapping.checked()
        check_ids(self._framing, lookup)
        self._schema = find_schema(
            format, schema, schema_file, lookup, schema_name, schema_version, message
        )
        self._file, self._lookup, self._name = schema_file, lookup, schema_name
        self._compression = compression or "none"
        if self._schema.text:
            _ = self._decoder  # a schema that cannot be used is refused here

    # -- writing -------------------------------------------------------------------------------

    @cached_property
    def envelope(self) -> tuple[bytes, Pairs]:
        """The bytes in front of each payload, and the headers of each message."""
        if self._compression not in COMPRESSIONS:
            raise ConfigError(f"must be {', '.join(COMPRESSIONS)}.", option="compression")
        schema, wrapping = self._schema, replace(self._framing, compression=self._compression)
        path = path_of(schema) if schema.format == "protobuf" else ()
        head, headers = wrapping.envelope(schema, self._name, path)
        if schema.format == "cloudevents":
            headers = [*headers, ("Content-Type", "application/cloudevents+json")]
        return head, headers

    def encoder(self) -> Callable[[pa.RecordBatch], list[bytes]]:
        """Return a function that encodes rows as payloads. It raises ConfigError, which names the
        field, for a value that does not fit."""
        return partial(self._encode_rows, self._make_encoder())

    def _make_encoder(self) -> Encoder:
        """Create the encoder of the schema. Raises ConfigError for a schema, a framing or a
        compression that cannot be used for writing."""
        _ = self.envelope  # which may be refused, too
        with name_schema_file(self._file):
            return _encoder_of(self._schema)

    def _encode_rows(self, encoder: Encoder, rows: pa.RecordBatch) -> list[bytes]:
        """Return the payload of each row, with its frame and compression. Raises ConfigError for a
        column that the schema does not have, and for a value that does not fit its field."""
        if (fields := encoder.fields) is not None:
            check_names(names := rows.schema.names, fields.names)
            schema = pa.schema([fields.field(name) for name in names])
            columns = list(map(fit_column, rows.columns, schema.types, names))
            rows = pa.record_batch(columns, schema=schema) if columns else rows
        try:
            return self._frame_and_compress(encoder.encode_rows(rows))
        except Undecodable as error:
            raise ConfigError(str(error)) from None

    def _frame_and_compress(self, payloads: list[bytes]) -> list[bytes]:
        """Put the bytes of a frame in front of each payload, and compress both together."""
        if head := self.envelope[0]:
            payloads = [head + payload for payload in payloads]
        if self._compression == "none":
            return payloads
        return [pa.compress(payload, codec=self._compression, asbytes=True) for payload in payloads]

    # -- values --------------------------------------------------------------------------------

    def encode(
        self, value: Any, headers: HeadersLike | None = None, /, *, as_json: bool = False
    ) -> tuple[bytes, HeadersLike | None]:
        """Return the payload of a value, and the headers of its message: `headers` with the codec's
        own.

        A value is a dict of the schema's fields; in JSON without a schema, anything. `as_json`: it
        is the JSON of one. Raises CodecError, which names the field that does not fit, and
        ConfigError for a codec that can only decode.
        """
        encoder, type_ = self._value_encoder
        if own_headers := self.envelope[1]:
            headers = Headers(headers or ())
            headers.update(own_headers)
        convert: Any = msgspec.json.decode if as_json else _convert_value
        try:
            if (fields := encoder.fields) is None:
                builtins = msgspec.to_builtins(convert(value, type=type_))
                return self._frame_and_compress([_encode_any(builtins).encode()])[0], headers
            try:
                rows = _to_row(convert(value, type=type_), fields)
            except (msgspec.ValidationError, pa.ArrowInvalid):
                decoded = msgspec.json.decode(value) if as_json else value
                types = () if as_json else _PYTHON_TYPES
                kind = pa.struct(list(fields))
                raise _find_misfit(decoded, kind, name="", python_types=types) from None
            return self._encode_rows(encoder, rows)[0], headers
        except ConfigError as error:
            raise CodecError(str(error)) from None
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise CodecError(f"The value does not fit: {error}.") from None

    @cached_property
    def _value_encoder(self) -> tuple[Encoder, Any]:
        """The encoder of rows, and the type by which msgspec checks a value before it becomes a
        row; Any: every value is taken."""
        encoder = self._make_encoder()
        if encoder.fields is None:
            return encoder, Any
        return encoder, _python_type(pa.struct(list(encoder.fields)), required=True)

    def decode(self, payload: bytes, headers: Headers | None = None, /) -> Any:
        """Return the value of a payload: a dict of the schema's fields, or of JSON without a schema
        anything. Raises CodecError for a payload that does not decode, and as the registry."""
        pairs = [{"key": name, "value": text} for name, text in (headers or Headers()).items()]
        columns = [pa.array([payload], pa.binary()), pa.array([pairs], _PAIRS)]
        batch = pa.record_batch(columns, [PAYLOAD, "headers"])
        try:
            if self._schema.format == "json":
                payload_without_frame = self._framing.payload_of(batch)
                if not self._schema.text:
                    return msgspec.json.decode(payload_without_frame)
                batch = pa.record_batch([pa.array([payload_without_frame], pa.binary())], [PAYLOAD])
            width, batch = len(batch.columns), self._decoder.decode_batch(batch)  # fields follow
            if (reason := batch.column(REASON)[-1].as_py()) is not None:
                raise CodecError(reason)
            names = [name for name in batch.schema.names[width:] if name not in (CORRUPT, REASON)]
            fields = batch.select(names)
            return fields.to_pylist(maps_as_pydicts="strict")[0]
        except BadFrame as error:
            raise CodecError(str(error)) from None
        except (msgspec.MsgspecError, ValueError, KeyError, RecursionError) as error:
            raise CodecError(f"The payload is not {self._schema.format}: {error}.") from None

    @cached_property
    def _decoder(self) -> Decoder | JsonDecoder:
        """The decoder of batches. That of JSON takes payloads which are already without their
        frames. Raises ConfigError."""
        if self._schema.format == "json":
            return JsonDecoder(columns_of(self._schema.text))
        decoding = Decoding(self._schema, self._framing, lookup=self._lookup, keep_payload=True)
        return decoding.decoder()


def _encoder_of(schema: PayloadSchema) -> Encoder:
    """Return the encoder of rows for the format of a schema. Raises ConfigError for a schema that
    cannot be used."""
    match schema.format:
        case "avro":
            return AvroEncoder(schema)
        case "protobuf":
            return ProtobufEncoder(message_of(schema))
        case "cloudevents":
            inner = replace(schema, format=data_format(schema.text))
            return CloudEventEncoder(_encoder_of(inner) if schema.text else None, inner.format)
    return JsonEncoder(columns_of(schema.text) if schema.text else None)


_PYTHON_TYPES: Final = (bytes, date, datetime, Decimal)
"""Python's types, beside those of JSON."""
_convert_value = partial(msgspec.convert, builtin_types=_PYTHON_TYPES)
_encode_any = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _to_row(value: Any, fields: pa.Schema) -> pa.RecordBatch:
    """Return a value, as msgspec has converted it, as a batch of one row. Its columns are the
    fields that the value has."""
    # Unlike from_pylist this has a row without fields, too.
    members = msgspec.to_builtins(value, builtin_types=_PYTHON_TYPES)
    type_ = pa.struct([fields.field(name) for name in members])
    return pa.RecordBatch.from_struct_array(pa.array([members], type_))


def _find_misfit(
    value: Any, kind: pa.DataType, name: str, python_types: Iterable[type]
) -> ConfigError:
    """Return the error that says which value, inside of one that does not fit `kind`, is to blame:
    the innermost one, with its path.

    `name`: the path of `value`; `python_types`: types that are taken as they are, which is
    `_PYTHON_TYPES`, or none for JSON.
    """
    inner: Iterable[tuple[Any, pa.DataType, str]] = ()
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        check_names(value, kind.names, name and f"{name}.")
        path = f"{name}." if name else ""
        inner = ((value[f.name], f.type, f"{path}{f.name}") for f in kind if f.name in value)
    elif pa.types.is_list(kind) and isinstance(value, list | tuple):
        inner = ((part, kind.value_type, f"{name}[{at}]") for at, part in enumerate(value))
    elif pa.types.is_map(kind) and isinstance(value, Mapping):
        inner = ((part, kind.item_type, f"{name}[{key!r}]") for key, part in value.items())
    for part, type_, item_path in inner:
        try:
            converted = msgspec.convert(part, _python_type(type_), builtin_types=python_types)
            pa.array([msgspec.to_builtins(converted, builtin_types=_PYTHON_TYPES)], type_)
        except (msgspec.ValidationError, pa.ArrowInvalid):
            return _find_misfit(part, type_, item_path, python_types)
    # All that is in the value fits: it is to blame itself.
    return misfit_error(name, value, spark_type_name(kind))


_PLAIN_TYPES: Final = {
    "bool": bool,
    "float": float,
    "double": float,
    "binary": bytes,
    "date32[day]": date,
}


def _python_type(kind: pa.DataType, *, required: bool = False) -> Any:
    """Return the type by which msgspec checks a value before Arrow takes it for `kind`. Arrow alone
    would take 3.5 for 3, a time in no zone for one in UTC, and leave unknown fields out.
    `required`: the value cannot be None."""
    types = pa.types
    if types.is_struct(kind):
        # A field's name need not be one in Python.
        names = {f"f{at}": field.name for at, field in enumerate(kind)}
        parts = [  # each may be missing
            (name, _python_type(field.type) | msgspec.UnsetType, msgspec.UNSET)
            for name, field in zip(names, kind, strict=True)
        ]
        type_: Any = msgspec.defstruct("Value", parts, rename=names, forbid_unknown_fields=True)
    elif types.is_list(kind):
        type_ = list[_python_type(kind.value_type)]  # type: ignore[misc]
    elif types.is_map(kind):
        type_ = dict[_python_type(kind.key_type, required=True), _python_type(kind.item_type)]  # type: ignore[misc]
    elif types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        type_ = Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    elif types.is_timestamp(kind):
        type_ = Annotated[datetime, msgspec.Meta(tz=kind.tz is not None)]
    else:
        type_ = _PLAIN_TYPES.get(str(kind), Decimal | int if types.is_decimal(kind) else str)
    return type_ if required else type_ | None
