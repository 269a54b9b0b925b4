"""Rows of a DataFrame as messages, and as entries of a Key-Value bucket.

`written_columns` has the columns. Headers whose names begin with "Nats-" are left out: they
describe the message in its old stream, or are instructions that the new server would follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pyarrow as pa

from jetspark.errors import ConfigError, named
from jetspark.kv_rules import OPERATION, Operation, check_key
from jetspark.payloads.codec import Codec
from jetspark.payloads.encoder import Pairs
from jetspark.spark.stream_sink.options import SinkOptions
from jetspark.stream_writes.encoded_messages import EncodedMessage, header_block
from jetspark.subjects import check_publish_subject, subject_matches

_MSG_ID = "Nats-Msg-Id"
_SERVER_HEADER_PREFIX = "nats-"
_NULL_HEADER = {"key": None, "value": None}
_MAX_REMEMBERED_SUBJECTS = 100_000
"""A bound of the memory for subjects that do not recur."""


def encode_payloads(
    options: SinkOptions, encoding: Codec, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Encode rows to payloads, as the option `encode` says: all columns that are not for something
    else (subject, headers, message id) become fields of the payload, in a column `data`.

    Raises ConfigError for a row that does not fit the schema.
    """
    not_payload = {"headers"}
    if options.subject is None:
        not_payload.add("subject")
    if options.has_msg_ids:
        not_payload.add("msg_id")
    encode = encoding.encoder()
    for batch in batches:
        fields = [name for name in batch.schema.names if name not in not_payload]
        if not fields:
            raise ConfigError(f"No column is left for the payload, which {named('encode')} makes.")
        data = pa.array(encode(batch.select(fields)), pa.large_binary())
        yield batch.drop_columns(fields).append_column("data", data)


@dataclass
class RowEncoder:
    """Encodes the rows of one task as messages of a stream, after checks of each."""

    stream: str
    patterns: Sequence[str]
    """The stream's subjects."""
    _: KW_ONLY
    subject: str | None
    """The subject of all rows; None if they have a column for it."""
    max_bytes: int
    """Most bytes of a message, including headers."""
    headers: Pairs = ()
    """Headers of every message, beside the row's."""
    _encoded_subjects: dict[str | None, bytes] = field(default_factory=dict, init=False)
    """Subjects that were checked, as bytes."""

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EncodedMessage]:
        """Yield a message for each row, in order.

        Raises ConfigError, BadSubjectError or BadHeaderError for a row that cannot be a message.
        """
        for batch in batches:
            yield from self._encode_batch(batch)

    def _encode_batch(self, batch: pa.RecordBatch) -> Iterator[EncodedMessage]:
        """Yield the message of each row in a batch: subject, header block or None, and payload.

        Raises the errors of `messages`.
        """
        subjects = [self.subject] * batch.num_rows
        if self.subject is None:
            subjects = batch.column("subject").to_pylist()
        for subject, block, data in zip(
            subjects, self._header_blocks(batch), _column_as_bytes(batch, "data"), strict=True
        ):
            encoded_subject = self._encoded_subjects.get(subject) or self._encode_subject(subject)
            payload = data or b""
            size = len(payload) + (0 if block is None else len(block))
            if size > self.max_bytes:
                raise ConfigError(
                    f"A row for the subject {subject!r} has {size} bytes; the server and this "
                    f"guarantee take {self.max_bytes} at most."
                )
            yield encoded_subject, block, payload

    def _encode_subject(self, subject: str | None) -> bytes:
        """Check that the stream takes messages of a subject; return and remember it as bytes."""
        if subject is None:
            raise ConfigError("A row has no subject (null).")
        check_publish_subject(subject)
        if not any(subject_matches(pattern, subject) for pattern in self.patterns):
            raise ConfigError(
                f"The subject {subject!r} does not belong to the stream {self.stream!r}, which "
                f"listens to {', '.join(self.patterns)}."
            )
        if len(self._encoded_subjects) > _MAX_REMEMBERED_SUBJECTS:
            self._encoded_subjects.clear()  # they do not seem to recur
        encoded = self._encoded_subjects[subject] = subject.encode()
        return encoded

    def _header_blocks(self, batch: pa.RecordBatch) -> Iterable[bytes | None]:
        """The header block of each row of a batch: its headers as NATS sends them, or None."""
        names = batch.schema.names
        headers = msg_ids = [None] * batch.num_rows
        if not self.headers and not {"headers", "msg_id"} & {*names}:
            return headers
        if "headers" in names:
            headers = batch.column("headers").to_pylist()
        if "msg_id" in names:
            msg_ids = batch.column("msg_id").to_pylist()
            if not all(msg_ids):
                raise ConfigError("A row has no msg_id (null or empty).")
        return (
            _encode_headers(pairs, msg_id, self.headers)
            for pairs, msg_id in zip(headers, msg_ids, strict=True)
        )


def _column_as_bytes(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    """The values of a binary or string column, as bytes; None for null."""
    column: Any = batch.column(name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    values: list[bytes | None] = column.to_pylist()
    return values


def _encode_headers(
    pairs: list[Any] | None, msg_id: str | None, common_headers: Pairs
) -> bytes | None:
    """Encode a row's headers as NATS sends them, without those for the server ("Nats-…").

    Returns None if the message has no headers; but a row with an empty array gets an empty block.
    `pairs`: the row's headers, None for null. `common_headers`: of every message; they replace the
    row's headers of these names.
    """
    headers = [*common_headers]
    common_names = [name.casefold() for name, _ in common_headers]
    for pair in pairs or ():
        # PyArrow gives a struct as a dict, and an entry of a map as a tuple.
        name, value = pair if isinstance(pair, tuple) else (pair or _NULL_HEADER).values()
        if name is None:
            raise ConfigError("A row has a header without a key (null).")
        folded = name.casefold()
        if not folded.startswith(_SERVER_HEADER_PREFIX) and folded not in common_names:
            headers.append((name, value or ""))
    if msg_id is not None:
        headers.append((_MSG_ID, msg_id))
    return header_block(headers) if headers or pairs == [] else None


_HEADERS_OF_OPERATION: dict[str, bytes | None] = {
    Operation.PUT: None,
    Operation.DEL: header_block([(OPERATION, Operation.DEL)]),
    Operation.PURGE: header_block([(OPERATION, Operation.PURGE), ("Nats-Rollup", "sub")]),
}


@dataclass(frozen=True)
class EntryEncoder:
    """Encodes the rows of one task as entries of a Key-Value bucket, after checks of each."""

    bucket: str
    _: KW_ONLY
    max_bytes: int
    """Most bytes of a value."""

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EncodedMessage]:
        """Yield the message of an entry for each row, in order.

        Raises ConfigError for a row that cannot be an entry, BadNameError for a bad key.
        """
        for batch in batches:
            keys = batch.column("key").to_pylist()
            operations: list[str | None] = [None] * batch.num_rows
            if "operation" in batch.schema.names:
                operations = batch.column("operation").to_pylist()
            yield from map(self._encode_entry, keys, _column_as_bytes(batch, "value"), operations)

    def _encode_entry(
        self, key: str | None, value: bytes | None, operation: str | None
    ) -> EncodedMessage:
        """Encode one row as the message that puts, deletes or purges its key.

        Without an operation, a null value deletes the key, and any other is put.
        """
        if key is None:
            raise ConfigError("A row has no key (null).")
        check_key(key)
        operation = operation or (Operation.DEL if value is None else Operation.PUT)
        if operation not in _HEADERS_OF_OPERATION:
            raise ConfigError(
                f"The operation of key {key!r} is {operation!r}, not PUT, DEL or PURGE."
            )
        if operation != Operation.PUT:
            value = b""  # a delete has no payload
        if value is None:
            raise ConfigError(f"The row for key {key!r} is a PUT without a value (null).")
        if len(value) > self.max_bytes:
            raise ConfigError(
                f"The value of key {key!r} has {len(value)} bytes; the bucket takes "
                f"{self.max_bytes} at most."
            )
        subject = f"$KV.{self.bucket}.{key}".encode()
        return subject, _HEADERS_OF_OPERATION[operation], value
