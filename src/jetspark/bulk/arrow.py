"""Decoded deliveries as Arrow record batches of one constant schema.

| column | Arrow type | null | |
|---|---|---|---|
| stream | string | no | name of the stream |
| subject | string | no | subject that the message was published to |
| seq | int64 | no | stream sequence |
| timestamp | timestamp[us, UTC] | no | when the stream stored it (nanoseconds are cut) |
| data | binary | no | payload |
| headers | list<struct<key: string, value: string>> | yes | in order; null when none |

Text that is not UTF-8 (a subject or header of a careless publisher) comes with U+FFFD in place of
the bad bytes, so that one message cannot stop a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

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

_BUILD: dict[str, Callable[[str, Deliveries], Any]] = {
    "stream": lambda stream, rows: pa.repeat(stream, len(rows)),
    "subject": lambda _, rows: _text(rows.subjects),
    "seq": lambda _, rows: pa.array(sequences(rows), pa.int64()),
    "timestamp": lambda _, rows: _times(rows.times),
    "data": lambda _, rows: pa.array(rows.data, pa.binary()),
    "headers": lambda _, rows: _headers(rows.headers),
}


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The schema of batches with these columns, in this order."""
    return pa.schema([SCHEMA.field(name) for name in columns])


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


def header_lines(block: bytes) -> list[bytes]:
    """The lines of a header block behind its version line."""
    if not block.startswith(VERSION):
        return []
    return block.split(b"\r\n")[1:-2]
