"""The columns that a DataFrame must have to be written to a stream, or to a Key-Value bucket.

| column | type | |
|---|---|---|
| subject | string | subject to publish to; or the option `subject` for all rows |
| data | binary or string | payload; null is an empty payload |
| headers | array<struct<key, value>> (as the source has it) or map<string, string> | optional |
| msg_id | string | optional: Nats-Msg-Id, for guarantee effectively-once |

| key | string | |
| value | binary or string | null deletes the key |
| operation | string | optional: PUT, DEL or PURGE; without it a null value is DEL |

The source's other columns are allowed and ignored. With `encode` all columns but `headers`,
`subject` without that option, and `msg_id` with the guarantee effectively-once are fields of the
payload, in place of `data`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from jetspark.errors import ConfigError, named
from jetspark.nearest import nearest_name
from jetspark.spark.stream_sink.options import SinkOptions
from jetspark.spark.stream_sink.row_encoders import encode_payloads
from jetspark.spark.versions import in_arrow


@dataclass(frozen=True)
class _ColumnRule:
    """The types that one column may have in rows that are written."""

    type_names: str
    """The allowed types, for the user."""
    allows: Callable[[DataType], bool]


def _is_headers_type(type_: DataType) -> bool:
    """Whether a column of headers may have this type: a map of texts, or the array of pairs that
    the source jetstream yields."""
    if isinstance(type_, MapType):
        return isinstance(type_.keyType, StringType) and isinstance(type_.valueType, StringType)
    return (
        isinstance(type_, ArrayType)
        and isinstance(type_.elementType, StructType)
        and [field.name for field in type_.elementType] == ["key", "value"]
        and all(isinstance(field.dataType, StringType) for field in type_.elementType)
    )


_TEXT = _ColumnRule("string", lambda type_: isinstance(type_, StringType))
_PAYLOAD = _ColumnRule("binary or string", lambda type_: isinstance(type_, BinaryType | StringType))
_HEADERS = _ColumnRule(
    "map<string,string> or array<struct<key:string,value:string>>", _is_headers_type
)
_MESSAGE_COLUMNS: Final = {
    "subject": _TEXT,
    "data": _PAYLOAD,
    "headers": _HEADERS,
    "msg_id": _TEXT,
}
_ENTRY_COLUMNS: Final = {"key": _TEXT, "value": _PAYLOAD, "operation": _TEXT}
_KAFKA_NAMES = {"value": "data", "topic": "subject", "key": "msg_id"}
"""Our names of columns by Kafka's."""


def check_written_columns(options: SinkOptions, schema: StructType) -> None:
    """Raise ConfigError if rows with these columns cannot be written to the options' stream or
    bucket."""
    if options.bucket is not None:
        _check_types(schema, "bucket", _ENTRY_COLUMNS, ("bucket", "revision", "created"))
        for name in ("key", "value"):
            if name not in schema.fieldNames():
                raise ConfigError(f"A column {name!r} is required to write to a bucket.")
        return
    if options.encoding is not None:
        # No rows are encoded here; that tells which columns are fields of the payload.
        rows = [pa.RecordBatch.from_pylist([], in_arrow(schema))]
        encoded = next(encode_payloads(options, options.encoding, rows)).schema.names
        kept = [field for field in schema if field.name in encoded and field.name != "data"]
        schema = StructType([*kept, StructField("data", BinaryType())])
    check_message_columns(schema, subject=options.subject, msg_id=options.has_msg_ids)


def check_message_columns(schema: StructType, *, subject: str | None, msg_id: bool) -> None:
    """Raise ConfigError if rows with these columns cannot be written as messages of a stream.

    `subject`: the option for the subject of all rows, None if a column has it. `msg_id`: whether a
    column of message ids is required, as for effectively-once; otherwise it is refused.
    """
    _check_types(schema, "stream", _MESSAGE_COLUMNS, ("stream", "seq", "timestamp"))
    names = schema.fieldNames()
    if "data" not in names:
        raise ConfigError("A column 'data' (binary or string) is required: the payload.")
    if ("subject" in names) == (subject is not None):
        raise ConfigError(
            "Say the subject either in a column 'subject' or, for all rows, in "
            f"{named('subject')}" + (", not both." if subject is not None else ".")
        )
    if msg_id and "msg_id" not in names:
        raise ConfigError(
            "Guarantee effectively-once needs a column 'msg_id' that is the same for the same row "
            "whenever it is written, for example an order's number."
        )
    if not msg_id and "msg_id" in names:
        raise ConfigError("A column 'msg_id' is for guarantee effectively-once only: drop it.")


def _check_types(
    schema: StructType, target: str, rules: Mapping[str, _ColumnRule], ignored: Sequence[str]
) -> None:
    """Raise ConfigError for a column that cannot be written, or that has a wrong type.

    `rules`: the types by column; `ignored`: columns of the source jetstream that are not written;
    `target`: "stream" or "bucket", for the message.
    """
    for field in schema:
        if field.name in ignored:
            continue
        if field.name not in rules:
            near = _KAFKA_NAMES.get(field.name) if target == "stream" else None
            near = near or nearest_name(field.name, rules)
            hint = f" Did you mean {near}?" if near else ""
            example = " For example: select('subject', to_json(struct('*')).alias('data'))."
            raise ConfigError(
                f"The column {field.name!r} cannot be written to a {target}; the columns are "
                f"{', '.join(rules)}.{hint}{example if target == 'stream' else ''}"
            )
        if not rules[field.name].allows(field.dataType):
            raise ConfigError(
                f"The column {field.name!r} must be {rules[field.name].type_names}, not "
                f"{field.dataType.simpleString()}."
            )
