"""Ranges read from a real server: complete, in order, and honest about what is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.chaos.proxy import Proxy
from tests.conftest import MakeServer
from tests.support.ranges import read, sequences, whole
from tests.support.streams import Admin, Row, numbered

import jetspark.errors as errors
from jetspark.connection.options import make_options
from jetspark.links.link import BlockingLink
from jetspark.links.link_pool import pool
from jetspark.links.stream_api import CreatedConsumer, StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges import _stream_head
from jetspark.ranges.arrow import SCHEMA
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange, slice_bounds
from jetspark.server import NatsServer
from jetspark.wire.kernel import Deliveries

SMALL = ReadLimits(max_rows=500, pull_messages=1_000)
FEW = ReadLimits(max_rows=100, pull_messages=200)


@pytest.fixture
def filled(nats_server: NatsServer) -> StreamFacts:
    """Of a stream with 20,000 messages on a server that may die."""
    with Admin(nats_server.url) as admin:
        admin.create("S", "s")
        admin.fill(numbered("s", 20_000, size=500))
        return admin.facts("S")


def test_every_column_of_every_message(admin: Admin) -> None:
    name = admin.stream(under=".>")
    admin.fill(
        [
            (f"{name}.a", b"plain"),
            (f"{name}.b", b"", [("X", "1"), ("x", "two"), ("X", "ü")]),
            (f"{name}.c", b"with\r\nCRLF\r\nMSG a 1 5\r\n"),
            (f"{name}.d", bytes(range(256))),
        ]
    )
    table = read(admin.url, whole(admin.facts(name)))
    assert table.schema.equals(SCHEMA)
    assert table["stream"].to_pylist() == [name] * 4
    assert table["subject"].to_pylist() == [f"{name}.{token}" for token in "abcd"]
    assert table["seq"].to_pylist() == [1, 2, 3, 4]
    assert table["data"].to_pylist() == [
        b"plain", b"", b"with\r\nCRLF\r\nMSG a 1 5\r\n", bytes(range(256)),
    ]  # fmt: skip
    assert table["headers"].to_pylist() == [
        None,
        [{"key": "X", "value": "1"}, {"key": "x", "value": "two"}, {"key": "X", "value": "ü"}],
        None,
        None,
    ]
    stored = admin.call(f"STREAM.MSG.GET.{name}", {"seq": 2})["message"]["time"]
    assert table["timestamp"].to_pylist()[1].isoformat()[:26] == stored[:26]


def test_a_long_range_comes_in_order_and_nothing_twice(admin: Admin) -> None:
    name = admin.stream(60_000)
    limits = ReadLimits(max_rows=7_000, pull_messages=500)
    batches = list(read_range(make_options(admin.url), whole(admin.facts(name)), limits))
    assert max(batch.num_rows for batch in batches) <= 7_000
    table = pa.Table.from_batches(batches)
    assert table["seq"].to_pylist() == list(range(1, 60_001))
    assert table["data"].to_pylist() == [b"%d" % number for number in range(1, 60_001)]


def test_messages_of_one_megabyte_are_cut_by_bytes(admin: Admin) -> None:
    name = admin.stream()
    payloads = [bytes([number]) * (1024 * 1024 - 1000) for number in range(40)]
    for payload in payloads:
        admin.fill([(name, payload)])
    limits = ReadLimits(max_bytes=4 * 1024 * 1024)
    batches = list(read_range(make_options(admin.url), whole(admin.facts(name)), limits))
    assert max(batch.num_rows for batch in batches) == 4
    assert [data for batch in batches for data in batch["data"].to_pylist()] == payloads


def test_deleted_messages_are_gaps_also_at_the_end(admin: Admin) -> None:
    name = admin.stream(1000)
    gone = {5, 6, 7, 500, 997, 998, 999, 1000}
    admin.delete_messages(name, *gone)
    facts = admin.facts(name)
    wanted = SequenceRange(name, 1, 1001, facts.created)
    expected = [number for number in range(1, 1001) if number not in gone]
    assert read(admin.url, wanted)["seq"].to_pylist() == expected
    for start, end in ((997, 1001), (100, 200)):  # nothing but gaps; in the middle
        found = read(admin.url, SequenceRange(name, start, end, facts.created))["seq"].to_pylist()
        assert found == [number for number in expected if start <= number < end]


def test_range_with_max_msgs_per_subject_has_the_last_messages(admin: Admin) -> None:
    name = admin.stream(under=".*", max_msgs_per_subject=2)
    admin.fill([(f"{name}.{number % 10}", b"%d" % number) for number in range(1, 1001)])
    table = read(admin.url, SequenceRange(name, 1, 1001, admin.facts(name).created))
    assert table["seq"].to_pylist() == list(range(981, 1001))


@pytest.mark.parametrize("patterns", [("{}.a",), ("{}.a", "{}.b.>")])
def test_range_read_returns_the_chosen_subjects(
    admin: Admin, needs_server: Callable[[str], None], patterns: tuple[str, ...]
) -> None:
    if len(patterns) > 1:
        needs_server("2.10")  # several filters of one consumer
    name = admin.stream(under=".>")
    tokens = ["a", "b.x", "c"]
    admin.fill([(f"{name}.{tokens[number % 3]}", b"") for number in range(300)])
    subjects = tuple(pattern.format(name) for pattern in patterns)
    table = read(admin.url, whole(admin.facts(name), subjects=subjects))
    wanted = {f"{name}.a", f"{name}.b.x"} if len(patterns) == 2 else {f"{name}.a"}
    assert set(table["subject"].to_pylist()) == wanted
    assert table.num_rows == 100 * len(patterns)


def test_range_of_a_stream_with_consumer_limits_is_read(admin: Admin) -> None:
    name = admin.stream(10, consumer_limits={"inactive_threshold": 10**10})
    assert read(admin.url, whole(admin.facts(name))).num_rows == 10


def test_range_is_read_from_a_server_that_limits_every_pull_request(
    make_server: MakeServer,
) -> None:
    server = make_server("jetstream { limits { max_request_batch: 100 } }")
    server.start()
    with Admin(server.url) as admin:
        admin.create("S", "s")
        admin.fill(numbered("s", 1000))
        assert read(server.url, whole(admin.facts("S"))).num_rows == 1000


def test_an_empty_range_sends_no_request() -> None:
    assert list(read_range(make_options("nats://127.0.0.1:1"), SequenceRange("S", 5, 5, ""))) == []


def test_a_purged_head_is_data_loss(admin: Admin, caplog: Any) -> None:
    name = admin.stream(100)
    wanted = whole(admin.facts(name))
    admin.purge(name, seq=41)
    with pytest.raises(errors.DataLossError, match="1 to 40 were removed by a purge") as caught:
        read(admin.url, wanted)
    assert (caught.value.first, caught.value.last) == (1, 40)
    with caplog.at_level(logging.WARNING):
        table = read(admin.url, wanted, fail_on_data_loss=False)
    assert table["seq"].to_pylist() == list(range(41, 101))
    assert "1 to 40 were removed" in caplog.text


def test_range_from_earliest_begins_at_the_first_stored_message(admin: Admin) -> None:
    name = admin.stream(100, max_msgs=100)
    wanted = whole(admin.facts(name), from_earliest=True)
    admin.purge(name, seq=41)
    assert read(admin.url, wanted)["seq"].to_pylist() == list(range(41, 101))
    admin.fill(numbered(name, 120))
    with pytest.raises(errors.DataLossError, match="at sequence 121 now: sequences 1 to 100 were"):
        read(admin.url, wanted)
    assert read(admin.url, wanted, fail_on_data_loss=False).num_rows == 0


@pytest.mark.parametrize("earliest", [False, True])
@pytest.mark.parametrize("limited", [False, True])
def test_what_is_removed_while_it_is_read_is_data_loss(
    admin: Admin, earliest: bool, limited: bool
) -> None:
    name = admin.stream(max_msgs=5_000 if limited else -1)
    admin.fill(numbered(name, 6_000 if limited else 5_000, size=1000))
    wanted = whole(admin.facts(name), from_earliest=earliest)
    batches = read_range(make_options(admin.url), wanted, FEW)
    first = next(batches)["seq"].to_pylist()
    if limited:
        admin.fill(numbered(name, 4_000, size=1000))
    else:
        admin.purge(name, seq=4_001)
    with pytest.raises(errors.DataLossError, match="removed") as caught:
        list(batches)
    assert first[0] == wanted.start
    assert first[-1] < caught.value.first <= caught.value.last


def limited(admin: Admin, earliest: bool) -> tuple[list[Row], SequenceRange]:
    """What a stream of three subjects has, which takes no more, and a range of one subject."""
    name = admin.stream(under=".*", max_msgs=6_000)
    rows: list[Row] = [(f"{name}.{number % 3}", b"." * 1000) for number in range(6_000)]
    admin.fill(rows)
    return rows, whole(admin.facts(name), subjects=(f"{name}.1",), from_earliest=earliest)


@pytest.mark.parametrize("earliest", [False, True])
def test_limits_behind_a_reader_are_no_data_loss_even_with_gaps(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, earliest: bool
) -> None:
    """Gaps of a filter and of deleted messages are not those of the head, which follows."""
    rows, wanted = limited(admin, earliest)
    for name in ("_CHECK_INTERVAL", "_MIN_REST_FACTOR"):
        monkeypatch.setattr(_stream_head, name, 0)
    found: list[int] = []
    more = 3
    for batch in read_range(make_options(admin.url), wanted, FEW):
        found += batch["seq"].to_pylist()
        if more and len(found) > 400 * (4 - more):  # at sequence 1,200, 2,400, 3,600
            more -= 1
            admin.fill(rows[:700])
    assert (found, more) == (list(range(2, 6_001, 3)), 0)


def test_a_head_that_overtakes_a_reader_of_some_subjects_is_data_loss(admin: Admin) -> None:
    rows, wanted = limited(admin, earliest=True)
    batches = read_range(make_options(admin.url), wanted, FEW)
    next(batches)
    admin.fill(rows[:5_000])
    with pytest.raises(errors.DataLossError, match="removed"):
        list(batches)


def test_messages_purged_after_they_were_read_are_no_data_loss(admin: Admin) -> None:
    name = admin.stream(5_000, size=1000)
    limits = ReadLimits(max_rows=2_000, pull_messages=500)
    batches = read_range(make_options(admin.url), whole(admin.facts(name)), limits)
    first = next(batches)
    admin.purge(name, seq=1_001)
    assert sequences([first, *batches]) == list(range(1, 5_001))


def test_recreated_stream_ends_a_range_read(admin: Admin) -> None:
    name = admin.stream(10)
    wanted = whole(admin.facts(name))
    admin.call(f"STREAM.DELETE.{name}")
    with pytest.raises(errors.StreamNotFoundError, match=f'Stream "{name}" not found'):
        read(admin.url, wanted)
    admin.create(name, name)
    admin.fill(numbered(name, 10))
    with pytest.raises(errors.StreamRecreatedError, match="it was recreated, so"):
        read(admin.url, wanted)
    assert read(admin.url, wanted, fail_on_data_loss=False).num_rows == 0


def test_stream_that_ends_before_the_range_is_data_loss(admin: Admin) -> None:
    name = admin.stream(10)
    wanted = SequenceRange(name, 1, 21, admin.facts(name).created)
    with pytest.raises(errors.DataLossError, match="lost acknowledged messages") as caught:
        read(admin.url, wanted)
    assert (caught.value.first, caught.value.last) == (11, 20)
    table = read(admin.url, wanted, fail_on_data_loss=False)
    assert table["seq"].to_pylist() == list(range(1, 11))


def test_a_deleted_consumer_is_replaced(admin: Admin) -> None:
    name = admin.stream(20_000, size=500)
    rows: list[int] = []
    for index, batch in enumerate(
        read_range(make_options(admin.url), whole(admin.facts(name)), SMALL)
    ):
        rows += batch["seq"].to_pylist()
        if index in (0, 5):
            for consumer in admin.call(f"CONSUMER.NAMES.{name}")["consumers"]:
                admin.call(f"CONSUMER.DELETE.{name}.{consumer}")
    assert rows == list(range(1, 20_001))


def test_a_server_killed_while_reading_costs_nothing(
    nats_server: NatsServer, filled: StreamFacts
) -> None:
    rows: list[int] = []
    for index, batch in enumerate(read_range(make_options(nats_server.url), whole(filled), SMALL)):
        rows += batch["seq"].to_pylist()
        if index == 3:
            nats_server.kill()
            nats_server.start()
    assert rows == list(range(1, 20_001))


def test_a_server_that_stays_away_ends_the_read(
    nats_server: NatsServer, filled: StreamFacts
) -> None:
    limits = replace(SMALL, timeout=4)
    batches = read_range(make_options(nats_server.url), whole(filled), limits)
    next(batches)
    nats_server.kill()
    with pytest.raises(errors.IncompleteRangeError, match="made no progress"):
        list(batches)


def test_a_paused_server_is_noticed_and_waited_for(
    nats_server: NatsServer, filled: StreamFacts
) -> None:
    limits = replace(SMALL, heartbeat=0.1, timeout=4)
    batches = read_range(make_options(nats_server.url, connect_timeout=0.5), whole(filled), limits)
    next(batches)
    nats_server.pause()
    try:
        with pytest.raises(errors.IncompleteRangeError):
            list(batches)
    finally:
        nats_server.resume()


def test_right_after_an_ack_a_lagging_replica_never_shortens_a_range(
    nats_cluster: Any, unique: Callable[[str], str]
) -> None:
    name = unique("REPLICAS")
    url = ",".join(nats_cluster.urls)
    with Admin(nats_cluster.urls[0]) as admin:
        admin.create(name, name, num_replicas=3)
        created = admin.facts(name).created
        last = 0
        for _ in range(60):
            first = last + 1
            last = admin.fill(numbered(name, 20))
            table = read(url, SequenceRange(name, first, last + 1, created))
            assert table["seq"].to_pylist() == list(range(first, last + 1))


def test_a_consumer_without_pending_messages_does_not_end_the_range(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = admin.stream(100)
    answers: list[int] = []
    real = StreamAPI.create_reader

    def lagging(self: StreamAPI, *arguments: Any, **options: Any) -> CreatedConsumer:
        made = real(self, *arguments, **options)
        answers.append(made.pending)
        return made._replace(pending=0) if len(answers) < 3 else made

    monkeypatch.setattr(StreamAPI, "create_reader", lagging)
    table = read(admin.url, whole(admin.facts(name)))
    assert table["seq"].to_pylist() == list(range(1, 101))
    assert answers == [100, 100, 100]


def test_a_delivery_lost_on_the_way_is_read_again(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = admin.stream(5_000)
    lost: list[int] = []
    real = BlockingLink.deliveries

    def losing(self: BlockingLink, decoder: Any, into: Deliveries, deadline: float) -> Any:
        had = len(into)
        others = real(self, decoder, into, deadline)
        if len(into) > had + 10 and not lost:
            # One of the rows that came just now: those before them are accounted for.
            lost.append(into.sequences()[had + 5])
            into.keep([row for row in range(len(into)) if row != had + 5])
        return others

    monkeypatch.setattr(BlockingLink, "deliveries", losing)
    table = read(admin.url, whole(admin.facts(name)))
    assert lost
    assert table["seq"].to_pylist() == list(range(1, 5_001))


@pytest.mark.parametrize("change", [b"\r\nMXG ", b"\r\n+"])
def test_bytes_that_are_no_frame_end_the_link_and_cost_nothing(
    admin: Admin, shared_server: NatsServer, change: bytes
) -> None:
    name = admin.stream(3000)

    def spoil(data: bytes) -> bytes:
        return data.replace(b"\r\nMSG ", change, 1) if b"$JS.ACK" in data else data

    with Proxy(shared_server.port) as proxy:
        proxy.corrupt(spoil)
        found = read(proxy.url, whole(admin.facts(name)))["seq"].to_pylist()
        assert proxy.corrupted == 1
        pool.close()
    assert found == [*range(1, 3001)]


def test_a_large_message_may_take_longer_than_the_server_may_be_silent(
    admin: Admin, shared_server: NatsServer
) -> None:
    name = admin.stream()
    admin.fill([(name, b"1"), (name, b"x" * 1_000_000), (name, b"3")])
    with Proxy(shared_server.port) as proxy:
        proxy.slow(300_000)
        table = read(proxy.url, whole(admin.facts(name)), ReadLimits(heartbeat=0.7))
        pool.close()
    assert [len(data) for data in table["data"].to_pylist()] == [1, 1_000_000, 1]


def test_the_consumer_of_an_abandoned_read_is_removed_soon(admin: Admin) -> None:
    name = admin.stream(20_000, size=500)
    batches = read_range(make_options(admin.url), whole(admin.facts(name)), SMALL)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    config = admin.call(f"CONSUMER.LIST.{name}")["consumers"][0]["config"]
    assert config["inactive_threshold"] <= 60 * 10**9
    # And the link with deliveries still under way is not used again.
    assert read(admin.url, whole(admin.facts(name))).num_rows == 20_000


@given(
    sizes=st.lists(st.integers(0, 50), max_size=60),
    max_rows=st.integers(1, 20),
    max_bytes=st.integers(1, 100),
)
def test_cutting_keeps_every_row_and_both_limits(
    sizes: list[int], max_rows: int, max_bytes: int
) -> None:
    offsets = list(accumulate(sizes, initial=0))
    pieces = list(slice_bounds(offsets, ReadLimits(max_rows=max_rows, max_bytes=max_bytes)))
    position = 0
    for start, count in pieces:
        assert start == position
        assert 1 <= count <= max_rows
        assert count == 1 or sum(sizes[start : start + count]) <= max_bytes
        position += count
    assert position == len(sizes)
