"""Snapshots of last messages while others write and servers die."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Admin

from jetspark.bulk.ranges import ReadLimits, SequenceRange
from jetspark.bulk.snapshot import read_snapshot
from jetspark.connection.options import make_options
from jetspark.errors import StreamRecreatedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from tests.conftest import MakeServer

    from jetspark.server import NatsServer

KEYS = 3000
SMALL = ReadLimits(max_rows=200, pull_messages=100)


def bucket(server: NatsServer) -> SequenceRange:
    with Admin(server.url) as admin:
        admin.create("KV_b", "$KV.b.>", max_msgs_per_subject=3)
        admin.fill((f"$KV.b.k{n % KEYS}", b"%d" % n) for n in range(2 * KEYS))
        facts = admin.facts("KV_b")
    return SequenceRange("KV_b", 1, facts.last_seq + 1, facts.created, (">",))


def snapshot(server: NatsServer, wanted: SequenceRange) -> Iterator[pa.RecordBatch]:
    options = make_options(server.url)
    return read_snapshot(options, wanted, SMALL, columns=["key", "value", "revision"])


def check(batches: list[pa.RecordBatch]) -> None:
    keys = [key for batch in batches for key in batch.column("key").to_pylist()]
    assert len(keys) == len(set(keys)), "a key came twice"
    assert set(keys) >= {f"k{n}" for n in range(KEYS)}, "a key is missing"
    for batch in batches:
        values = map(int, batch.column("value").to_pylist())
        assert all(value >= KEYS for value in values), "an older value"


def test_every_key_once_while_others_write(make_server: MakeServer) -> None:
    server = make_server()
    wanted = bucket(server)
    stop = threading.Event()

    def write() -> None:
        with Admin(server.url) as admin:
            number = 2 * KEYS
            while not stop.is_set():
                admin.fill((f"$KV.b.k{n % KEYS}", b"%d" % n) for n in range(number, number + 500))
                number += 500

    writer = threading.Thread(target=write)
    writer.start()
    try:
        check(list(snapshot(server, wanted)))
    finally:
        stop.set()
        writer.join()


def test_every_key_once_though_the_server_dies(make_server: MakeServer) -> None:
    server = make_server()
    wanted = bucket(server)
    batches = []
    for number, batch in enumerate(snapshot(server, wanted)):
        batches.append(batch)
        if number in (2, 7):
            server.kill()
            server.restart()
            with Admin(server.url) as admin:
                # Came already, or not yet: in either case once.
                admin.fill((f"$KV.b.k{n % KEYS}", b"%d" % (3 * KEYS + n)) for n in range(KEYS))
    check(batches)


def test_a_recreated_bucket_is_not_the_same(make_server: MakeServer) -> None:
    server = make_server()
    wanted = bucket(server)
    with Admin(server.url) as admin:
        admin.call("STREAM.DELETE.KV_b")
    bucket(server)
    with pytest.raises(StreamRecreatedError, match="it was recreated, so"):
        list(snapshot(server, wanted))
