"""Rows of a DataFrame as messages, and as entries of a Key-Value bucket.

| column | type | |
|---|---|---|
| subject | string | subject to publish to; or the option `subject` for all rows |
| data | binary or string | payload; null is an empty payload |
| headers | array<struct<key, value>> (as the source has it) or map<string, string> | optional |
| msg_id | string | optional: Nats-Msg-Id, for guarantee effectively-once |

| key | string | |
| value | binary or string | null deletes the key |
| operation | string | optional: PUT, DEL or PURGE; without it a null value is DEL |

The source's other columns are allowed and ignored. Headers whose names begin with "Nats-" are
left out: they describe the message in its old stream, or are instructions that the new server
would follow.

With `encode` all columns but `headers`, `subject` without that option, and `msg_id` with the
guarantee effectively-once are fields of the payload, in place of `data`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from jetspark.errors import ConfigError, named
from jetspark.kv_rules import OPERATION, Operation, check_key
from jetspark.nearest import nearest_name
from jetspark.payloads.codec import Codec
from jetspark.payloads.encoder import Pairs
from jetspark.stream_writes.encoded_messages import EncodedMessage, header_block
from jetspark.subjects import check_publish_subject, subject_matches

_MSG_ID = "Nats-Msg-Id"
_SERVER_HEADER_PREFIX = "nats-"
_NULL_HEADER = {"key": None, "value": None}


def encode_payloads(
    encoding: Codec, batches: Iterable[pa.RecordBatch], *, subject: str | None, msg_id: bool
) -> Iterator[pa.RecordBatch]:
    """Batches with a column `data`. Raises ConfigError for a row that does not fit."""
    not_payload = {"headers", *["subject"] * (subject is None), *["msg_id"] * msg_id}
    encode = encoding.encoder()
    for batch in batches:
        fields = [name for name in batch.schema.names if name not in not_payload]
        if not fields:
            raise ConfigError(f"No column is left for the payload, which {named('encode')} makes.")
        data = pa.array(encode(batch.select(fields)), pa.large_binary())
        yield batch.drop_columns(fields).append_column("data", data)


def check_columns(schema: StructType, *, subject: str | None, msg_id: bool) -> None:
    """Raise ConfigError for a DataFrame that cannot be written.

    `msg_id`: whether the column of that name is required; otherwise it is refused.
    """
    _check_columns(schema, "stream", _MESSAGE_COLUMNS, ("stream", "seq", "timestamp"))
    names = schema.fieldNames()
    if "data" not in names:
        raise ConfigError("A column 'data' (binary or string) is required: the payload.")
    if ("subject" in names) == (subject is not None):
        raise ConfigError(
            "Say the subject either in a column 'subject' or, for all rows, with the option "
            "'subject'" + (", not both." if subject is not None else ".")
        )
    if msg_id and "msg_id" not in names:
        raise ConfigError(
            "Guarantee effectively-once needs a column 'msg_id' that is the same for the same row "
            "whenever it is written, for example an order's number."
        )
    if not msg_id and "msg_id" in names:
        raise ConfigError("A column 'msg_id' is for guarantee effectively-once only: drop it.")


def check_bucket_columns(schema: StructType) -> None:
    """Raise ConfigError for a DataFrame that cannot be written to a bucket."""
    _check_columns(schema, "bucket", _ENTRY_COLUMNS, ("bucket", "revision", "created"))
    for name in ("key", "value"):
        if name not in schema.fieldNames():
            raise ConfigError(f"A column {name!r} is required to write to a bucket.")


def _check_columns(
    schema: StructType, target: str, written: Mapping[str, ColumnRule], ignored: Sequence[str]
) -> None:
    for field in schema:
        if field.name in ignored:
            continue
        if field.name not in written:
            near = _KAFKA_NAMES.get(field.name) if target == "stream" else None
            near = near or nearest_name(field.name, written)
            hint = f" Did you mean {near}?" if near else ""
            example = " For example: select('subject', to_json(struct('*')).alias('data'))."
            raise ConfigError(
                f"The column {field.name!r} cannot be written to a {target}; the columns are "
                f"{', '.join(written)}.{hint}{example if target == 'stream' else ''}"
            )
        fits, type_names = written[field.name]
        if not fits(field.dataType):
            type_name = field.dataType.simpleString()
            raise ConfigError(f"The column {field.name!r} must be {type_names}, not {type_name}.")


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    return (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and [field.name for field in kind.elementType] == ["key", "value"]
        and all(isinstance(field.dataType, StringType) for field in kind.elementType)
    )


ColumnRule: TypeAlias = tuple[Callable[[DataType], bool], str]
_TEXT: ColumnRule = lambda kind: isinstance(kind, StringType), "string"
_PAYLOAD: ColumnRule = lambda kind: isinstance(kind, BinaryType | StringType), "binary or string"
_MESSAGE_COLUMNS: Mapping[str, ColumnRule] = {
    "subject": _TEXT,
    "data": _PAYLOAD,
    "headers": (_is_headers, "map<string,string> or array<struct<key:string,value:string>>"),
    "msg_id": _TEXT,
}
_ENTRY_COLUMNS: Mapping[str, ColumnRule] = {"key": _TEXT, "value": _PAYLOAD, "operation": _TEXT}
_KAFKA_NAMES = {"value": "data", "topic": "subject", "key": "msg_id"}
"""Kafka's names of our columns."""


class RowEncoder:
    """Encodes the rows of one task as messages."""

    def __init__(
        self,
        stream: str,
        subjects: Iterable[str],
        *,
        subject: str | None,
        max_bytes: int,
        headers: Pairs = (),
    ) -> None:
        """`subjects`: the stream's. `max_bytes`: maximum bytes of a message. `headers`: of all."""
        self._headers = headers
        self._stream = stream
        self._patterns = tuple(subjects)
        self._constant = subject
        self._largest = max_bytes
        self._encoded_subjects: dict[str | None, bytes] = {}

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EncodedMessage]:
        """A message for each row, in order. Raises ConfigError, BadSubjectError, BadHeaderError."""
        for batch in batches:
            yield from self._batch(batch)

    def _batch(self, batch: pa.RecordBatch) -> Iterator[EncodedMessage]:
        names = batch.schema.names
        rows = batch.num_rows
        checked_subjects = self._encoded_subjects
        subjects: Iterable[str | None] = (
            batch.column("subject").to_pylist()
            if self._constant is None
            else (self._constant,) * rows
        )
        blocks: Iterable[bytes | None] = (None,) * rows
        if "headers" in names or "msg_id" in names or self._headers:
            blocks = self._blocks(batch)
        for subject, block, data in zip(
            subjects, blocks, column_as_bytes(batch, "data"), strict=True
        ):
            target = checked_subjects.get(subject) or self._checked(subject)
            payload = data or b""
            size = len(payload) + (0 if block is None else len(block))
            if size > self._largest:
                raise ConfigError(
                    f"A row for the subject {subject!r} has {size} bytes; the server and this "
                    f"guarantee take {self._largest} at most."
                )
            yield target, block, payload

    def _checked(self, subject: str | None) -> bytes:
        if subject is None:
            raise ConfigError("A row has no subject (null).")
        check_publish_subject(subject)
        if not any(subject_matches(pattern, subject) for pattern in self._patterns):
            raise ConfigError(
                f"The subject {subject!r} does not belong to the stream {self._stream!r}, which "
                f"listens to {', '.join(self._patterns)}."
            )
        if (
            len(self._encoded_subjects) > 100_000
        ):  # bounds the memory for subjects that do not recur
            self._encoded_subjects.clear()
        encoded = self._encoded_subjects[subject] = subject.encode()
        return encoded

    def _blocks(self, batch: pa.RecordBatch) -> Iterator[bytes | None]:
        nothing = [None] * batch.num_rows
        names = batch.schema.names
        pairs = batch.column("headers").to_pylist() if "headers" in names else nothing
        ids = batch.column("msg_id").to_pylist() if "msg_id" in names else nothing
        for of_row, msg_id in zip(pairs, ids, strict=True):
            if "msg_id" in names and not msg_id:
                raise ConfigError("A row has no msg_id (null or empty).")
            yield _encode_headers(of_row, msg_id, self._headers)


def column_as_bytes(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    """The values of a binary or string column as bytes."""
    column: Any = batch.column(name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    values: list[bytes | None] = column.to_pylist()
    return values


def _encode_headers(
    pairs: list[Any] | None, msg_id: str | None, extra_headers: Pairs
) -> bytes | None:
    """A row's header block: empty for an empty array; None for null, or when no header is left."""
    headers = [*extra_headers]
    extra_names = [name.casefold() for name, _ in extra_headers]
    for pair in pairs or ():
        # PyArrow gives a struct as a dict, and an entry of a map as a tuple.
        name, value = pair if isinstance(pair, tuple) else (pair or _NULL_HEADER).values()
        if name is None:
            raise ConfigError("A row has a header without a key (null).")
        if (
            not name.casefold().startswith(_SERVER_HEADER_PREFIX)
            and name.casefold() not in extra_names
        ):
            headers.append((name, value or ""))
    if msg_id is not None:
        headers.append((_MSG_ID, msg_id))
    return header_block(headers) if headers or pairs == [] else None


_HEADERS_OF_OPERATION = {
    Operation.PUT: None,
    Operation.DEL: header_block([(OPERATION, Operation.DEL)]),
    Operation.PURGE: header_block([(OPERATION, Operation.PURGE), ("Nats-Rollup", "sub")]),
}


class EntryEncoder:
    """Encodes the rows of one task as entries."""

    def __init__(self, bucket: str, *, max_bytes: int) -> None:
        """`max_bytes`: maximum bytes of a value, including headers."""
        self._bucket = bucket
        self._largest = max_bytes

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EncodedMessage]:
        """An entry for each row, in order. Raises ConfigError, and BadNameError for a key."""
        for batch in batches:
            keys = batch.column("key").to_pylist()
            operations: list[str | None] = [None] * batch.num_rows
            if "operation" in batch.schema.names:
                operations = batch.column("operation").to_pylist()
            for key, value, operation in zip(
                keys, column_as_bytes(batch, "value"), operations, strict=True
            ):
                yield self._message(key, value, operation)

    def _message(
        self, key: str | None, value: bytes | None, operation: str | None
    ) -> EncodedMessage:
        if key is None:
            raise ConfigError("A row has no key (null).")
        check_key(key)
        applied = operation or (Operation.DEL if value is None else Operation.PUT)
        if applied not in _HEADERS_OF_OPERATION:
            raise ConfigError(
                f"The operation of key {key!r} is {applied!r}, not PUT, DEL or PURGE."
            )
        if applied == Operation.PUT and value is None:
            raise ConfigError(f"The row for key {key!r} is a PUT without a value (null).")
        payload = value if applied == Operation.PUT and value is not None else b""
        if len(payload) > self._largest:
            raise ConfigError(
                f"The value of key {key!r} has {len(payload)} bytes; the bucket takes "
                f"{self._largest} at most."
            )
        return (
            f"$KV.{self._bucket}.{key}".encode(),
            _HEADERS_OF_OPERATION[Operation(applied)],
            payload,
        )
