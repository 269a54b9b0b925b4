"""Decoded deliveries as Arrow record batches of one constant schema: of messages or of a bucket.

docs/guide-spark.md explains the columns. A bucket's value is null for a deleted key; its operation
is PUT, DEL or PURGE. Nanoseconds are cut to microseconds. In a subject or header that is not UTF-8,
invalid bytes become U+FFFD, so that one malformed message cannot stop a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.kv_rules import STREAM_PREFIX, Operation, operation_in
from jetspark.ranges.sequence_range import ReadLimits, slice_bounds
from jetspark.ranges.subject_filter import SubjectFilter
from jetspark.wire.kernel import Columns, header_pairs

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
"""Columns that need payloads; for the others the server sends headers only."""

_FIELDS = {field.name: field for field in (*SCHEMA, *BUCKET_SCHEMA)}


class _Rows(Columns):
    """Decoded messages, and their operations, from which two columns of a bucket are derived."""

    @cached_property
    def operations(self) -> list[str]:
        """The operation of each entry: PUT, DEL or PURGE, by its headers."""
        return [operation_in(block) for block in _header_blocks(self)]


_COLUMN_BUILDERS: dict[str, Callable[[str, _Rows], Any]] = {
    "stream": lambda stream, rows: pa.repeat(stream, rows.rows),
    "subject": lambda _, rows: _string_array(_subjects(rows)),
    "seq": lambda _, rows: _fixed_width_array(pa.int64(), rows.rows, rows.sequences),
    "timestamp": lambda _, rows: _timestamps(rows),
    "data": lambda _, rows: _payloads(rows),
    "headers": lambda _, rows: _headers(rows),
    "bucket": lambda stream, rows: pa.repeat(stream.removeprefix(STREAM_PREFIX), rows.rows),
    # $KV.<bucket>.<key>; a mirror's entries have the bucket of their origin.
    "key": lambda _, rows: _string_array(
        [subject.split(b".", 2)[-1] for subject in _subjects(rows).to_pylist()]
    ),
    "value": lambda _, rows: _values(rows),
    "revision": lambda _, rows: _fixed_width_array(pa.int64(), rows.rows, rows.sequences),
    "created": lambda _, rows: _timestamps(rows),
    "operation": lambda _, rows: pa.array(rows.operations, pa.string()),
}


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The schema of batches with these columns, in this order."""
    return pa.schema([_FIELDS[name] for name in columns])


def to_batch(stream: str, rows: Columns, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """Make one record batch of all rows, which shares the memory of their payloads."""
    rows = _Rows(*rows)
    return pa.RecordBatch.from_arrays(
        [_COLUMN_BUILDERS[name](stream, rows) for name in columns], schema=schema_of(columns)
    )


def batches(
    stream: str,
    rows: Columns,
    subject_filter: SubjectFilter | None,
    columns: Sequence[str],
    limits: ReadLimits,
) -> Iterator[pa.RecordBatch]:
    """Divide decoded messages into record batches within the limits of rows and bytes.

    `subject_filter`: only the messages that it matches; None: all of them. No batch is empty.
    """
    batch = to_batch(stream, rows, columns)
    mask = subject_filter.mask(_subjects(rows)) if subject_filter else None
    payload_offsets = memoryview(rows.data_offsets).cast("B").cast("i")  # as 32-bit integers
    for start, count in slice_bounds(payload_offsets, limits):
        selected = batch.slice(start, count)
        if mask is not None:
            selected = selected.filter(mask.slice(start, count))
        if selected.num_rows:
            yield selected


def _fixed_width_array(type_: Any, length: int, values: Any) -> Any:
    """An array that shares the memory of `values`, the kernel's buffer of numbers or times."""
    return pa.Array.from_buffers(type_, length, [None, pa.py_buffer(values)])


def _timestamps(rows: Columns) -> Any:
    """When each message was stored, in microseconds, cut from nanoseconds."""
    nanoseconds = _fixed_width_array(pa.timestamp("ns", tz="UTC"), rows.rows, rows.times)
    return nanoseconds.cast(pa.timestamp("us", tz="UTC"), safe=False)


def _binary_array(length: int, offsets: Any, values: Any) -> Any:
    """An array of bytes that shares the memory of the kernel's buffers: offsets, and all bytes."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), length, buffers)


def _subjects(rows: Columns) -> Any:
    """The subject of each message, as bytes."""
    return _binary_array(rows.rows, rows.subject_offsets, rows.subjects)


def _payloads(rows: Columns) -> Any:
    """The payload of each message."""
    return _binary_array(rows.rows, rows.data_offsets, rows.data)


def _header_blocks(rows: Columns) -> list[bytes]:
    """The header block of each message, as bytes; empty for a message without headers."""
    if not memoryview(rows.headers).nbytes:
        return [b""] * rows.rows
    blocks: list[bytes] = _binary_array(rows.rows, rows.header_offsets, rows.headers).to_pylist()
    return blocks


def _string_array(column: Any) -> Any:
    """Convert an array or a list of bytes to an array of text; invalid UTF-8 becomes U+FFFD."""
    try:
        return pa.array(column, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        values = column if isinstance(column, list) else column.to_pylist()
        return pa.array([value.decode("utf-8", "replace") for value in values], pa.string())


def _headers(rows: Columns) -> Any:
    """The headers of each message as key-value pairs in order; null for a message without any."""
    list_type = SCHEMA.field("headers").type
    if not memoryview(rows.headers).nbytes:
        return pa.nulls(rows.rows, list_type)
    headers = header_pairs(rows.header_offsets, rows.headers)
    keys = _string_array(_binary_array(headers.pairs, headers.key_offsets, headers.keys))
    values = _string_array(_binary_array(headers.pairs, headers.value_offsets, headers.values))
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))
    list_offsets = _fixed_width_array(pa.int32(), rows.rows + 1, headers.list_offsets)
    block_offsets = _fixed_width_array(pa.int32(), rows.rows + 1, rows.header_offsets)
    has_no_block = pc.equal(block_offsets[1:], block_offsets[:-1])
    return pa.ListArray.from_arrays(list_offsets, pairs, type=list_type, mask=has_no_block)


def _values(rows: _Rows) -> Any:
    """The value of each entry of a bucket; null for a deleted key."""
    is_deleted = [operation != Operation.PUT for operation in rows.operations]
    if not any(is_deleted):
        return _payloads(rows)
    return pc.if_else(pa.array(is_deleted), pa.scalar(None, pa.binary()), _payloads(rows))
