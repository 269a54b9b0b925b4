"""Decoded deliveries as Arrow record batches of one constant schema.

| column | Arrow type | null | |
|---|---|---|---|
| stream | string | no | name of the stream |
| subject | string | no | subject that the message was published to |
| seq | int64 | no | stream sequence |
| timestamp | timestamp[us, UTC] | no | when the stream stored it (nanoseconds are cut) |
| data | binary | no | payload |
| headers | list<struct<key: string, value: string>> | yes | in order; null when none |

A stream that is a Key-Value bucket may be read with other columns:

| column | Arrow type | null | |
|---|---|---|---|
| bucket | string | no | name of the bucket |
| key | string | no | the key |
| value | binary | yes | null when deleted |
| revision | int64 | no | stream sequence |
| created | timestamp[us, UTC] | no | when the server stored it |
| operation | string | no | PUT, DEL or PURGE |

Text that is not UTF-8 (a subject or header of a careless publisher) comes with U+FFFD in place of
the bad bytes, so that one message cannot stop a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from jetspark.buckets import (
    MARKER_REASON,
    OPERATION,
    STREAM_PREFIX,
    Operation,
    has_operation,
    operation_of,
)
from jetspark.wire.headers import VERSION
from jetspark.wire.kernel import Deliveries

_HEADER = pa.struct(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string(), nullable=False)]
)
SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field(
            "headers",
            pa.list_(pa.field("element", _HEADER, nullable=False)),
            nullable=True,
        ),
    ]
)
"""The schema of every batch with all columns."""

COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)

BUCKET_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.binary(), nullable=True),
        pa.field("revision", pa.int64(), nullable=False),
        pa.field("created", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("operation", pa.string(), nullable=False),
    ]
)
"""The schema of every batch of a bucket with all its columns."""

BUCKET_COLUMNS: tuple[str, ...] = tuple(BUCKET_SCHEMA.names)

WITH_PAYLOAD = frozenset({"data", "headers", "value"})
"""Columns for which a server has to send payloads, or headers as they are."""

_FIELDS = {field.name: field for field in (*SCHEMA, *BUCKET_SCHEMA)}

_BUILD: dict[str, Callable[[str, Deliveries], Any]] = {
    "stream": lambda stream, rows: pa.repeat(stream, len(rows)),
    "subject": lambda _, rows: _text(rows.subjects),
    "seq": lambda _, rows: pa.array(sequences(rows), pa.int64()),
    "timestamp": lambda _, rows: _times(rows.times),
    "data": lambda _, rows: pa.array(rows.data, pa.binary()),
    "headers": lambda _, rows: _headers(rows.headers),
    "bucket": lambda stream, rows: pa.repeat(stream.removeprefix(STREAM_PREFIX), len(rows)),
    # $KV.<bucket>.<key>; a mirror's entries have the bucket of their origin.
    "key": lambda _, rows: _text([subject.split(b".", 2)[-1] for subject in rows.subjects]),
    "value": lambda _, rows: pa.array(_values(rows), pa.binary()),
    "revision": lambda _, rows: pa.array(sequences(rows), pa.int64()),
    "created": lambda _, rows: _times(rows.times),
    "operation": lambda _, rows: pa.array(map(_operation, rows.headers), pa.string()),
}


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The schema of batches with these columns, in this order."""
    return pa.schema([_FIELDS[name] for name in columns])


def to_batch(stream: str, rows: Deliveries, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """One record batch of all rows."""
    return pa.RecordBatch.from_arrays(
        [_BUILD[name](stream, rows) for name in columns], schema=schema_of(columns)
    )


def sequences(rows: Deliveries) -> list[int]:
    """Stream sequences as numbers."""
    # One call of a C decoder for the whole column is three times faster than int() for each.
    return msgspec.json.decode(b"[" + b",".join(rows.sequences) + b"]", type=list[int])


def _times(column: list[bytes]) -> Any:
    nanoseconds = pa.array(column, pa.string()).cast(pa.int64())
    return nanoseconds.view(pa.timestamp("ns", tz="UTC")).cast(
        pa.timestamp("us", tz="UTC"), safe=False
    )


def _text(column: Sequence[bytes]) -> Any:
    try:
        return pa.array(column, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([one.decode("utf-8", "replace") for one in column], pa.string())


def _headers(column: list[bytes | None]) -> Any:
    kind = SCHEMA.field("headers").type
    if not any(column):
        return pa.nulls(len(column), kind)
    offsets: list[int | None] = []
    keys: list[bytes] = []
    values: list[bytes] = []
    for block in column:
        before = len(keys)
        for line in header_lines(block) if block is not None else ():
            key, colon, value = line.partition(b":")
            if colon and key:
                keys.append(key)
                values.append(value.strip(b" \t"))
        # In Arrow a null list is marked by a null in its own offset.
        offsets.append(before if len(keys) > before else None)
    offsets.append(len(keys))
    pairs = pa.StructArray.from_arrays([_text(keys), _text(values)], fields=list(_HEADER))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=kind)


def _operation(block: bytes | None) -> str:
    """What the headers of a bucket's entry say was done."""
    if block is None or not has_operation(block):
        return Operation.PUT
    said = dict(line.decode("utf-8", "replace").partition(":")[::2] for line in header_lines(block))
    told = ((said.get(name) or "").strip() or None for name in (OPERATION, MARKER_REASON))
    return operation_of(*told)


def _values(rows: Deliveries) -> list[bytes | None]:
    return [
        data if block is None or _operation(block) == Operation.PUT else None
        for data, block in zip(rows.data, rows.headers, strict=True)
    ]


def header_lines(block: bytes) -> list[bytes]:
    """The lines of a header block behind its version line."""
    if not block.startswith(VERSION):
        return []
    return block.split(b"\r\n")[1:-2]
