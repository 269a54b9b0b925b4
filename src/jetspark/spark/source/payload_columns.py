"""Payloads as columns of DataFrames, and what does not fit in `_corrupt_record`.

The source makes the columns while it reads, with the decoders of `payloads`; `decode_json` makes
those of rows that come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from jetspark.errors import ConfigError, named
from jetspark.payloads.ddl import arrow_fields, schema_in_ddl
from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.field_names import FieldNames
from jetspark.payloads.framing import Framing
from jetspark.payloads.json_decoder import JsonDecoder
from jetspark.payloads.json_schema import json_columns_of
from jetspark.payloads.tolerant import CORRUPT, Decoder, TolerantDecoder, decode_in_parts
from jetspark.ranges.arrow import COLUMNS, schema_of
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.versions import in_arrow, of_arrow

METADATA_COLUMNS = ("stream", "subject", "seq", "timestamp", "headers")
"""Columns of a message that are not its payload."""
_PAYLOADS = ("data", "value")
"""The payload's column in a stream's rows, and in a bucket's."""
_SCHEMA_OPTIONS = ("decode", "schema", "schemafile", "schemaname", "schemaversion", "fields")


def json_decoder(
    ddl: str,
    option: str,
    names: FieldNames | None = None,
    payload: str = "data",
    framing: Framing | None = None,
    *,
    keep_payload: bool = False,
    keep_unframed: bool = False,
) -> Decoder:
    """A decoder of JSON payloads into the columns of `ddl`.

    `option`: the name of the schema's option, for messages; `names`: what columns are called;
    `payload`: the payload's column; `framing`: what is around payloads; the others are those of
    `TolerantDecoder`. Raises ConfigError.
    """
    fields = arrow_fields(ddl, option)
    columns = (names or FieldNames()).schema(option, fields)
    fields_by_column = dict(zip(columns.names, fields.names, strict=True))
    inner_framing = None if framing is None else framing.without_compression
    return TolerantDecoder(
        JsonDecoder(columns, fields_by_column, inner_framing, payload),
        framing or Framing(compression="none"),
        payload,
        keep_payload=keep_payload,
        keep_unframed=keep_unframed,
        is_text=True,
    )


def json_columns(
    ddl: str, option: str, columns: Iterable[str], names: FieldNames | None = None
) -> list[str]:
    """The names of the columns of rows whose JSON payloads have the fields of `ddl`, without the
    payload. `columns`: of the source. Raises ConfigError."""
    payload, metadata = payload_of(columns, option)
    names = names or names_beside(payload, metadata)
    return [*metadata, *names.check(option, arrow_fields(ddl, option).names), CORRUPT]


def with_json_options(options: Mapping[str, str], ddl: str) -> dict[str, str]:
    """The source's options, changed to decode JSON payloads with this schema."""
    reading = {name: value for name, value in options.items() if not _is_of_schema(name)}
    return {**reading, "decode": "json", "schema": ddl}


def _is_of_schema(name: str) -> bool:
    """Whether an option of a source says which schema the payloads have."""
    return name.casefold() in _SCHEMA_OPTIONS or name.casefold().startswith("registry")


def check_only_schema(options: Iterable[str]) -> None:
    """Raise ConfigError if options of a source say, beside `json_schema`, what payloads are."""
    for name in options:
        if _is_of_schema(name):
            raise ConfigError(
                f"Give either {named('json_schema')} or {name}: both say what the payloads are."
            )


def payload_ddl(decoding: Decoding | None) -> str | None:
    """The schema of JSON payloads in DDL; None for other formats."""
    if decoding is None or not decoding.is_json:
        return None
    fields = json_columns_of(decoding.schema.text)
    return schema_in_ddl(decoding.select_fields(fields))


def decoded_columns(options: SourceOptions) -> list[str]:
    """The names of the columns of decoded rows, without the reason of undecodable ones."""
    _, metadata = payload_of(options.columns, "decode")
    return [*metadata, *_decoded_fields(options).names, CORRUPT]


def timestamp_fields(options: SourceOptions) -> list[str]:
    """Names of the decoded fields that are timestamps."""
    return [field.name for field in _decoded_fields(options) if pa.types.is_timestamp(field.type)]


def _decoded_fields(options: SourceOptions) -> pa.Schema:
    """The columns that decoding adds, but those of undecodable payloads."""
    if options.decoding is None:
        return pa.schema([])
    decoded = options.decoding.decoder().decoded_schema(schema_of(("data",)))
    return pa.schema([field for field in decoded if field.name not in ("data", CORRUPT, REASON)])


def decode_json(source: DataFrame, ddl: str, option: str) -> DataFrame:
    """The source's rows, of any format, with the fields of a schema in place of the payload.

    `option`: the name of the schema's option, for messages. Raises ConfigError.
    """
    payload, metadata = payload_of(source.columns, option)
    # Each task makes a decoder of its own.
    make_decoder = partial(json_decoder, ddl, option, names_beside(payload, metadata), payload)
    schema = of_arrow(make_decoder().decoded_schema(in_arrow(source.schema)))
    return source.mapInArrow(partial(_decode_batches, make_decoder), schema)


def names_beside(payload: str, metadata: Iterable[str]) -> FieldNames:
    """Names of fields that differ from those of the source's columns."""
    return FieldNames(taken=COLUMNS if payload == "data" else (*metadata, payload))


def _decode_batches(
    make_decoder: Callable[[], Decoder], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches of one task, decoded."""
    yield from decode_in_parts(make_decoder(), batches)


def payload_of(columns: Iterable[str], option: str) -> tuple[str, list[str]]:
    """The payload's column, and the other columns. Raises ConfigError."""
    names = list(columns)
    payload = next((name for name in _PAYLOADS if name in names), None)
    if payload is None:
        raise ConfigError(
            f"{option}: the rows have no payload (a column data, or value of a bucket); there are "
            f"{', '.join(names)}."
        )
    return payload, [name for name in names if name != payload]
