"""Ranges read through a snapshot: the rows and the guarantees of an ordinary read."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.conftest import MakeServer
from tests.ranges.test_backup import ordinary, spoil, various
from tests.support import ranges
from tests.support.cluster import Cluster
from tests.support.frame_proxy import FrameProxy
from tests.support.ranges import read, sequences
from tests.support.server_lines import server_of
from tests.support.streams import Admin, Row, numbered

import jetspark.errors as errors
from jetspark.connection.options import make_options
from jetspark.links.stream_api import StoredMessage, StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges import _snapshot_transfer, reader, stream_snapshot
from jetspark.ranges._snapshot_transfer import SnapshotTransfer
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange


@pytest.fixture
def newest(needs_server: Callable[[str], None]) -> None:
    needs_server("2.15")


whole = partial(ranges.whole, snapshot=True)


def dense(subject: str, count: int) -> list[Row]:
    """Messages of a thousand bytes that a snapshot cannot compress."""
    rng = random.Random(count)
    return [(subject, rng.randbytes(1000)) for _ in range(count)]


def filled(url: str, subject: str, rows: list[Row]) -> StreamFacts:
    """Of a new stream S with these messages."""
    with Admin(url) as admin:
        admin.create("S", subject)
        admin.fill(rows)
        return admin.facts("S")


@pytest.fixture
def no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that breaks off would be continued by another one or by a consumer, unseen."""

    def none(*_: object, **__: object) -> None:
        raise AssertionError("a consumer was created")

    monkeypatch.setattr(StreamAPI, "create_reader", none)
    monkeypatch.setattr(reader, "_MAX_SNAPSHOTS", 1)


@pytest.mark.parametrize("line", ["2.10", "2.12", "2.14", "2.15"])
def test_rows_are_those_of_an_ordinary_read(
    make_server: MakeServer, line: str, request: pytest.FixtureRequest
) -> None:
    server = make_server(binary=server_of(line))
    with Admin(server.url) as admin:
        admin.create("S", "S.>", max_msgs_per_subject=25)
        admin.fill(various("S", 9_000))
        spoil(admin, "S")
        expected = ordinary(server.url, admin, "S")
        facts = admin.facts("S")
    request.getfixturevalue("no_consumer")
    blocking = line != "2.15"
    assert read(server.url, whole(facts, blocking=blocking)).equals(expected)
    part = SequenceRange("S", 3000, 7000, facts.created, ("S.5",), snapshot=True, blocking=blocking)
    rows = [row for row in expected.to_pylist() if 3000 <= row["seq"] < 7000]
    assert read(server.url, part).to_pylist() == [row for row in rows if row["subject"] == "S.5"]


def test_servers_that_block_deletes_are_refused_unless_asked_for(make_server: MakeServer) -> None:
    server = make_server(binary=server_of("2.12"))
    facts = filled(server.url, "S.>", numbered("S.a", 10))
    with pytest.raises(errors.UnsupportedByServerError, match="without blocking deletes"):
        read(server.url, whole(facts))


@pytest.mark.usefixtures("newest", "no_consumer")
def test_the_server_begins_at_once(admin: Admin) -> None:
    """It waits for two seconds where it sees nobody who listens."""
    name = admin.stream(10)
    wanted = whole(admin.facts(name))

    def seconds() -> float:
        before = time.monotonic()
        assert read(admin.url, wanted).num_rows == 10
        return time.monotonic() - before

    assert min(seconds() for _ in range(3)) < 1.5


@pytest.mark.usefixtures("newest", "no_consumer")
def test_only_messages_of_the_range_come_and_the_rest_is_not_waited_for(admin: Admin) -> None:
    name = admin.stream()
    admin.fill(dense(name, 25_000))
    facts = admin.facts(name)
    wanted = SequenceRange(name, 1, 1001, facts.created, snapshot=True)
    assert read(admin.url, wanted)["seq"].to_pylist() == list(range(1, 1001))
    # The link is used again, with chunks in flight.
    assert read(admin.url, wanted).num_rows == 1000


@pytest.mark.full
@pytest.mark.usefixtures("newest")
def test_a_slow_reader_keeps_the_snapshot_alive(
    admin: Admin, no_consumer: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_snapshot_transfer, "MAX_UNREAD_BYTES", 1)
    name = admin.stream()
    admin.fill(dense(name, 40_000))
    batches = read_range(make_options(admin.url), whole(admin.facts(name)))
    rows = next(batches).num_rows
    time.sleep(6)  # the server gives up after five seconds without an ack
    rows += sum(batch.num_rows for batch in batches)
    assert rows == 40_000


@pytest.mark.full
@pytest.mark.usefixtures("newest")
def test_a_server_killed_while_it_sends_costs_no_row(make_server: MakeServer) -> None:
    server = make_server()
    facts = filled(server.url, "S.>", dense("S.a", 40_000))
    batches = read_range(make_options(server.url), whole(facts), ReadLimits(max_rows=1000))
    first = next(batches)
    server.kill()
    server.start()
    assert sequences([first, *batches]) == list(range(1, 40_001))


@pytest.mark.usefixtures("newest")
def test_a_purged_head_and_a_recreated_stream_are_errors(admin: Admin) -> None:
    name = admin.stream(1000)
    wanted = whole(admin.facts(name))
    admin.purge(name, seq=100)
    with pytest.raises(errors.DataLossError):
        read(admin.url, wanted)
    kept = read(admin.url, wanted, fail_on_data_loss=False)
    assert kept["seq"].to_pylist() == list(range(100, 1001))
    admin.call(f"STREAM.DELETE.{name}")
    admin.create(name, name)
    with pytest.raises(errors.StreamRecreatedError):
        read(admin.url, wanted)


@pytest.mark.usefixtures("newest")
async def test_a_lost_answer_leaves_time_for_another_attempt(make_server: MakeServer) -> None:
    server = make_server()
    facts = filled(server.url, "S", numbered("S", 1000))
    async with FrameProxy(server.port) as proxy:
        fault = proxy.arm(1, "drop", wanted=lambda frame: b".answer " in frame[:200])
        limits = ReadLimits(timeout=6)
        rows = await asyncio.to_thread(read, proxy.url, whole(facts), limits=limits)
    assert fault.hit is not None
    assert rows["seq"].to_pylist() == list(range(1, 1001))


@pytest.mark.full
@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "recreated"])
@pytest.mark.parametrize("strict", [True, False])
async def test_a_stream_that_goes_while_it_is_sent(
    make_server: MakeServer, again: bool, strict: bool
) -> None:
    """What came before is kept where the loss is allowed."""
    gone = errors.StreamRecreatedError if again else errors.StreamNotFoundError
    server = make_server()
    chunks = 0
    with Admin(server.url) as admin:
        admin.create("S", "S")
        admin.fill(dense("S", 8_000))
        wanted = whole(admin.facts("S"))

        def going(frame: bytes) -> bool:
            nonlocal chunks
            is_chunk = b".chunk " in frame[:200]
            chunks += is_chunk
            if not is_chunk or chunks != 4:
                return False
            admin.call("STREAM.DELETE.S")
            if again:
                admin.create("S", "S")
                admin.fill(dense("S", 10))
            return True

        async with FrameProxy(server.port) as proxy:
            proxy.arm(1, "drop", wanted=going)
            limits = ReadLimits(max_rows=1 << 20, max_bytes=1 << 30, timeout=8)
            reading = asyncio.to_thread(
                read, proxy.url, wanted, limits=limits, fail_on_data_loss=strict
            )
            if strict:
                with pytest.raises(gone):
                    await reading
                return
            found = (await reading)["seq"].to_pylist()
    assert 2_000 < len(found) < 8_000
    assert found == list(range(1, len(found) + 1))


@pytest.mark.full
@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("earliest", [False, True])
def test_a_head_that_is_purged_while_it_is_sent_is_an_error(admin: Admin, earliest: bool) -> None:
    name = admin.stream()
    admin.fill(dense(name, 80_000))
    wanted = whole(admin.facts(name), from_earliest=earliest)
    batches = read_range(make_options(admin.url), wanted, ReadLimits(max_rows=1000))
    next(batches)
    admin.purge(name, seq=75_000)
    with pytest.raises(errors.DataLossError):
        list(batches)


@pytest.mark.usefixtures("newest")
def test_without_the_permission_nothing_else_is_tried(make_server: MakeServer) -> None:
    server = make_server(
        "accounts { A { jetstream: enabled, users: [{user: all, password: x}, {user: some, "
        'password: x, permissions: {publish: {deny: "$JS.API.STREAM.SNAPSHOT.>"}}}] } }'
    )
    with Admin(server.url.replace("nats://", "nats://all:x@")) as admin:
        admin.create("S", "S.>")
        admin.fill(numbered("S.a", 100))
        facts = admin.facts("S")
    with pytest.raises(errors.PermissionsError, match=r"STREAM\.SNAPSHOT"):
        list(read_range(make_options(server.url, user="some", password="x"), whole(facts)))


@pytest.mark.usefixtures("newest", "no_consumer")
async def test_the_answer_may_come_behind_the_snapshot(make_server: MakeServer) -> None:
    """The server sends them from two queues."""
    server = make_server()
    facts = filled(server.url, "S", numbered("S", 100))
    async with FrameProxy(server.port) as proxy:
        fault = proxy.arm(1, "late", delay=0.3, wanted=lambda frame: b".answer " in frame[:80])
        rows = await asyncio.wait_for(asyncio.to_thread(read, proxy.url, whole(facts)), 20)
    assert fault.hit is not None
    assert rows["seq"].to_pylist() == list(range(1, 101))


@pytest.mark.usefixtures("newest")
def test_an_error_in_the_thread_of_a_snapshot_is_raised(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(SnapshotTransfer, "_on_chunk", broken)
    server = make_server()
    facts = filled(server.url, "S", numbered("S", 100))
    with pytest.raises(LookupError, match="a bug"):
        read(server.url, whole(facts))


def replicated(cluster: Cluster, name: str) -> tuple[str, SequenceRange]:
    """Of a new stream with 2,000 messages."""
    with Admin(cluster.urls[0]) as admin:
        admin.create(name, name, num_replicas=3)
        admin.fill_new(numbered(name, 2_000))
        return admin.url, whole(admin.facts(name))


@pytest.mark.usefixtures("newest", "no_consumer")
def test_over_three_servers(nats_cluster: Cluster, unique: Callable[[str], str]) -> None:
    url, wanted = replicated(nats_cluster, unique("REPLICATED"))
    assert read(url, wanted)["seq"].to_pylist() == list(range(1, 2_001))


@pytest.mark.usefixtures("newest")
def test_a_snapshot_of_another_stream_than_the_leaders_is_not_read(
    nats_cluster: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server sends it that does not know yet that the stream was recreated."""
    asked = []

    def another(*about: Any) -> StoredMessage:
        asked.append(about)
        return StoredMessage(1, b"", b"", "s", "2026-01-01T00:00:00Z")

    monkeypatch.setattr(stream_snapshot, "linearizable_read", another)
    url, wanted = replicated(nats_cluster, unique("ANOTHER"))
    rows = read(url, wanted)  # by a consumer in the end
    assert rows["seq"].to_pylist() == list(range(1, 2_001))
    assert len(asked) == 3
