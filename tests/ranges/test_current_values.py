"""Snapshots of last messages while others write and servers die."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.conftest import MakeServer
from tests.support.cluster import Cluster
from tests.support.streams import Admin

from jetspark.connection.options import make_options
from jetspark.errors import StreamRecreatedError
from jetspark.links.stream_api import CreatedConsumer, StreamAPI
from jetspark.ranges.current_values import read_last_per_subject
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
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
    return read_last_per_subject(options, wanted, SMALL, columns=["key", "value", "revision"])


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


def test_recreated_bucket_ends_a_snapshot(make_server: MakeServer) -> None:
    server = make_server()
    wanted = bucket(server)
    with Admin(server.url) as admin:
        admin.call("STREAM.DELETE.KV_b")
    bucket(server)
    with pytest.raises(StreamRecreatedError, match="it was recreated, so"):
        list(snapshot(server, wanted))


def test_a_snapshot_is_read_on_the_leaders_server(
    nats_cluster: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that lags takes a former value for the last one; servers choose any replica."""
    made: list[str] = []
    real = StreamAPI.create_reader

    def noted(self: StreamAPI, *arguments: Any, **options: Any) -> CreatedConsumer:
        reader = real(self, *arguments, **options)
        made.append(reader.server)
        return reader

    monkeypatch.setattr(StreamAPI, "create_reader", noted)
    name, url = unique("KV"), nats_cluster.urls[0]
    with Admin(url) as admin:
        admin.create(name, f"{name}.>", max_msgs_per_subject=3, num_replicas=3)
        for _ in range(4):
            admin.fill_new([(f"{name}.k{n}", b"v") for n in range(5)])
            facts = admin.facts(name)
            wanted = SequenceRange(name, 1, facts.last_seq + 1, facts.created, (">",))
            batches = read_last_per_subject(make_options(url), wanted, SMALL, columns=["subject"])
            assert sum(batch.num_rows for batch in batches) == 5
            assert made[-1] == admin.facts(name).leader
