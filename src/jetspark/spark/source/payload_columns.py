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
from jetspark.options.names import spark_name
from jetspark.payloads.ddl import arrow_fields, schema_in_ddl
from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.field_names import FieldNames
from jetspark.payloads.framing import Framing
from jetspark.payloads.json_decoder import JsonDecoder
from jetspark.payloads.json_schema import json_columns_of
from jetspark.payloads.tolerant import CORRUPT, Decoder, TolerantDecoder, decode_in_parts
from jetspark.ranges.arrow import COLUMNS, schema_of
from jetspark.spark.source.options import SCHEMA_OPTIONS, SourceOptions
from jetspark.spark.versions import in_arrow, of_arrow

METADATA_COLUMNS = ("stream", "subject", "seq", "timestamp", "headers")
"""Columns of a message that are not its payload."""
_PAYLOADS = ("data", "value")
"""The payload's column in a stream's rows, and in a bucket's."""
_SCHEMA_OPTIONS = {
    spark_name(name).casefold(): name
    for name in ("decode", "fields", *SCHEMA_OPTIONS)
    if name.startswith(("decode", "fields", "schema", "registry"))
}
"""Options that say which schema the payloads have: names in Python by those in Spark, folded."""


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
    """Make a decoder of JSON payloads into columns; undecodable ones become bad records.

    `ddl`: the schema of the payloads, in Spark's DDL; `option`: the name of its option, for
    messages; `names`: what columns are called; `payload`: the payloads' column; `framing`: what is
    around payloads; the others are those of `TolerantDecoder`. Raises ConfigError.
    """
    fields = arrow_fields(ddl, option)
    columns = (names or FieldNames()).schema(option, fields)
    fields_by_column = dict(zip(columns.names, fields.names, strict=True))
    # TolerantDecoder decompresses, so the decoder inside it only removes frames.
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
    """The names of the columns that rows have once their JSON payloads are decoded: the source's
    without the payload, the schema's fields, and `_corrupt_record`.

    `ddl`: the schema; `option`: its option's name, for messages; `columns`: the source's; `names`:
    what fields are called as columns. Raises ConfigError.
    """
    payload, metadata = payload_of(columns, option)
    names = names or names_beside(payload, metadata)
    return [*metadata, *names.check(option, arrow_fields(ddl, option).names), CORRUPT]


def with_json_options(options: Mapping[str, str], ddl: str) -> dict[str, str]:
    """A source's options, changed so that it decodes JSON payloads with the schema `ddl`.

    Options for another schema are left out.
    """
    reading = {
        name: value for name, value in options.items() if name.casefold() not in _SCHEMA_OPTIONS
    }
    return {**reading, "decode": "json", "schema": ddl}


def check_only_schema(options: Iterable[str]) -> None:
    """Raise ConfigError if a source's options have a schema of payloads although the option
    `json_schema` also gives one."""
    for option in options:
        if (name := _SCHEMA_OPTIONS.get(option.casefold())) is not None:
            raise ConfigError(
                f"Give either {named('json_schema')} or {named(name)}: both say what the payloads "
                "are."
            )


def payload_ddl(decoding: Decoding | None) -> str | None:
    """The fields to which payloads are decoded, as Spark's DDL, if they are JSON; else None."""
    if decoding is None or not decoding.is_json:
        return None
    fields = json_columns_of(decoding.schema.text)
    return schema_in_ddl(decoding.select_fields(fields))


def decoded_columns(options: SourceOptions) -> list[str]:
    """The names of the columns of a source's decoded rows, without the payload's.

    The column with the reason why a payload cannot be decoded is not among them.
    """
    _, metadata = payload_of(options.columns, "decode")
    return [*metadata, *_decoded_fields(options).names, CORRUPT]


def timestamp_fields(options: SourceOptions) -> list[str]:
    """The names of the fields of payloads that a source decodes to timestamps."""
    return [field.name for field in _decoded_fields(options) if pa.types.is_timestamp(field.type)]


def _decoded_fields(options: SourceOptions) -> pa.Schema:
    """The columns that a source gets by decoding payloads, none without that option.

    The columns about payloads that cannot be decoded are left out.
    """
    if options.decoding is None:
        return pa.schema([])
    decoded = options.decoding.decoder().decoded_schema(schema_of(("data",)))
    return pa.schema([field for field in decoded if field.name not in ("data", CORRUPT, REASON)])


def decode_json(source: DataFrame, ddl: str, option: str) -> DataFrame:
    """Decode the JSON payloads of a DataFrame, from a source of any format, to columns.

    `ddl`: the schema of the payloads, whose fields replace the payload's column; `option`: the name
    of its option, for messages. Raises ConfigError.
    """
    payload, metadata = payload_of(source.columns, option)
    # Each task makes a decoder of its own; the one here is only for the schema.
    make_decoder = partial(json_decoder, ddl, option, names_beside(payload, metadata), payload)
    schema = of_arrow(make_decoder().decoded_schema(in_arrow(source.schema)))
    return source.mapInArrow(partial(_decode_batches, make_decoder), schema)


def names_beside(payload: str, metadata: Iterable[str]) -> FieldNames:
    """The rule by which fields of payloads are called, so that no field has a source column's name.

    `payload`, `metadata`: the source's columns. Rows of a stream always avoid all of a stream's
    columns, so that the names do not depend on which are selected.
    """
    return FieldNames(taken=COLUMNS if payload == "data" else (*metadata, payload))


def _decode_batches(
    make_decoder: Callable[[], Decoder], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decode the payloads in the batches of one task, with a decoder of its own."""
    yield from decode_in_parts(make_decoder(), batches)


def payload_of(columns: Iterable[str], option: str) -> tuple[str, list[str]]:
    """Find the column of the payload, `data` or for a bucket `value`; return it and all others.

    Raises ConfigError if there is none; `option`: the name of the option that needs it.
    """
    names = list(columns)
    payload = next((name for name in _PAYLOADS if name in names), None)
    if payload is None:
        raise ConfigError(
            f"{option}: the rows have no payload (a column data, or value of a bucket); there are "
            f"{', '.join(names)}."
        )
    return payload, [name for name in names if name != payload]
