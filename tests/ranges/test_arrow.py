"""Rows of a bucket as Arrow's columns."""

from __future__ import annotations

import pytest

from jetspark.kv_rules import Operation
from jetspark.ranges import arrow
from jetspark.ranges.arrow import BUCKET_COLUMNS, to_batch
from jetspark.wire.kernel import Columns, Deliveries

BLOCKS = {
    b"$KV.b.put": None,
    b"$KV.b.told": b"NATS/1.0\r\nKV-Operation: PUT\r\n\r\n",
    b"$KV.b.deleted": b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n",
    b"$KV.b.expired": b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n",
}


def rows() -> Columns:
    rows = Deliveries()
    for seq, (subject, block) in enumerate(BLOCKS.items(), 1):
        rows.append(subject, seq, 1_700_000_000_000_000_000, block, b"v")
    return rows.take()


def test_bucket_columns_have_key_operation_and_value() -> None:
    batch = to_batch("KV_b", rows(), BUCKET_COLUMNS)
    assert batch.column("key").to_pylist() == ["put", "told", "deleted", "expired"]
    assert batch.column("operation").to_pylist() == ["PUT", "PUT", "DEL", "PURGE"]
    assert batch.column("value").to_pylist() == [b"v", b"v", None, None]
    assert to_batch("KV_b", rows(), ["value"]).column("value") == batch.column("value")


def test_a_header_block_is_read_once_for_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def read_operation(block: bytes) -> Operation:
        read.append(block)
        return Operation.PUT

    monkeypatch.setattr(arrow, "operation_in", read_operation)
    to_batch("KV_b", rows(), BUCKET_COLUMNS)
    assert read == [block or b"" for block in BLOCKS.values()]
