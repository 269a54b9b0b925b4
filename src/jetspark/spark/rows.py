"""Rows of a DataFrame as messages.

| column | type | |
|---|---|---|
| subject | string | subject to publish to; or the option `subject` for all rows |
| data | binary or string | payload; null is an empty payload |
| headers | array<struct<key, value>> (as the source has it) or map<string, string> | optional |
| msg_id | string | optional: Nats-Msg-Id, for guarantee effectively-once |

The source's own columns stream, seq and timestamp are allowed and ignored. Headers whose names
begin with "Nats-" are left out: they describe the message in its old stream, or are instructions
that the new server would follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
)

from jetspark.bulk.encoded_messages import EncodedMessage, header_block
from jetspark.errors import ConfigError
from jetspark.subjects import check_publish_subject, nearest_name, subject_matches

_WRITTEN = ("subject", "data", "headers", "msg_id")
_NOT_WRITTEN = ("stream", "seq", "timestamp")
_MSG_ID = "Nats-Msg-Id"
_OF_SERVER = "nats-"
_NO_HEADER = {"key": None, "value": None}


def check_columns(schema: StructType, *, subject: str | None, msg_id: bool) -> None:
    """Raises ConfigError for a DataFrame that cannot be written.

    `msg_id`: whether the column of that name is required; otherwise it is refused.
    """
    names = schema.fieldNames()
    for name in names:
        if name not in _WRITTEN and name not in _NOT_WRITTEN:
            near = {"value": "data", "topic": "subject", "key": "msg_id"}.get(
                name, nearest_name(name, _WRITTEN)
            )
            hint = f" Did you mean {near}?" if near else ""
            raise ConfigError(
                f"The column {name!r} cannot be written to a stream; the columns are "
                f"{', '.join(_WRITTEN)}.{hint} For example: "
                "select('subject', to_json(struct('*')).alias('data'))."
            )
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
    for name, fits, wanted in _TYPES:
        if name in names and not fits(schema[name].dataType):
            raise ConfigError(
                f"The column {name!r} must be {wanted}, not {schema[name].dataType.simpleString()}."
            )


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    return (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and [field.name for field in kind.elementType] == ["key", "value"]
        and all(isinstance(field.dataType, StringType) for field in kind.elementType)
    )


_TYPES: tuple[tuple[str, Callable[[DataType], bool], str], ...] = (
    ("subject", lambda kind: isinstance(kind, StringType), "string"),
    ("data", lambda kind: isinstance(kind, BinaryType | StringType), "binary or string"),
    ("headers", _is_headers, "map<string,string> or array<struct<key:string,value:string>>"),
    ("msg_id", lambda kind: isinstance(kind, StringType), "string"),
)


class RowEncoder:
    """Encodes the rows of one task as messages."""

    def __init__(
        self, stream: str, subjects: Iterable[str], *, subject: str | None, largest: int
    ) -> None:
        """`subjects`: those of the stream. `largest`: maximum bytes of a message."""
        self._stream = stream
        self._patterns = tuple(subjects)
        self._constant = subject
        self._largest = largest
        self._known: dict[str | None, bytes] = {}

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EncodedMessage]:
        """One message for each row, in order.

        Raises ConfigError for a row that cannot be sent (its subject, size or headers),
        BadSubjectError, BadHeaderError.
        """
        for batch in batches:
            yield from self._batch(batch)

    def _batch(self, batch: pa.RecordBatch) -> Iterator[EncodedMessage]:
        names = batch.schema.names
        rows = batch.num_rows
        known = self._known
        subjects: Iterable[str | None] = (
            batch.column("subject").to_pylist()
            if self._constant is None
            else (self._constant,) * rows
        )
        blocks: Iterable[bytes | None] = (None,) * rows
        if "headers" in names or "msg_id" in names:
            blocks = self._blocks(batch)
        for subject, block, data in zip(subjects, blocks, payloads(batch, "data"), strict=True):
            target = known.get(subject) or self._checked(subject)
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
        if len(self._known) > 100_000:  # bounds the memory for subjects that do not recur
            self._known.clear()
        encoded = self._known[subject] = subject.encode()
        return encoded

    def _blocks(self, batch: pa.RecordBatch) -> Iterator[bytes | None]:
        nothing = [None] * batch.num_rows
        names = batch.schema.names
        pairs = batch.column("headers").to_pylist() if "headers" in names else nothing
        ids = batch.column("msg_id").to_pylist() if "msg_id" in names else nothing
        for of_row, msg_id in zip(pairs, ids, strict=True):
            if "msg_id" in names and not msg_id:
                raise ConfigError("A row has no msg_id (null or empty).")
            yield _block(of_row, msg_id)


def payloads(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    """The values of a binary or string column as bytes."""
    column: Any = batch.column(name)
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.large_binary() if _is_large(column.type) else pa.binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _block(pairs: list[Any] | None, msg_id: str | None) -> bytes | None:
    """A row's header block: empty for an empty array; None for null, or when no header is left."""
    kept: list[tuple[str, str]] = []
    for pair in pairs or ():
        # PyArrow gives a struct as a dict, and an entry of a map as a tuple.
        name, value = pair if isinstance(pair, tuple) else (pair or _NO_HEADER).values()
        if name is None:
            raise ConfigError("A row has a header without a key (null).")
        if not name.casefold().startswith(_OF_SERVER):
            kept.append((name, value or ""))
    if msg_id is not None:
        kept.append((_MSG_ID, msg_id))
    return header_block(kept) if kept or pairs == [] else None
