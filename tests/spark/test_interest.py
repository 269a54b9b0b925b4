"""interestConsumer: streams by interest keep what the query has not read, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.driven_query import DrivenQuery
from tests.support.streams import Admin, numbered

from jetspark.bulk.publish import StreamPublisher
from jetspark.connection.options import make_options
from jetspark.errors import ConfigError, DataLossError
from jetspark.spark.options import parse_options
from jetspark.spark.stream import JetStreamStreamReader
from jetspark.wire import js_api

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.conftest import ToParquet
    from tests.support.cluster import Cluster

    from jetspark.server import NatsServer


@pytest.fixture(autouse=True)
def _needs_reset(needs_server: Callable[[str], None]) -> None:
    needs_server("2.14")


@pytest.fixture
def stream(admin: Admin, unique: Callable[[str], str]) -> str:
    name = unique("INTEREST")
    admin.create(name, f"{name}.>", retention="interest", allow_direct=True)
    return name


@pytest.fixture
def query(shared_server: NatsServer, stream: str) -> DrivenQuery:
    return DrivenQuery(shared_server.url, stream, interestConsumer="spark")


def make_consumer(admin: Admin, stream: str, name: str, **config: Any) -> None:
    config |= {"name": name, "durable_name": name, "ack_policy": "explicit"}
    admin.call(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})


def test_messages_from_before_the_interest_consumer_are_missed_and_no_later_ones(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    admin.fill(numbered(f"{stream}.a", 10))
    assert admin.facts(stream).messages == 0  # there was no consumer yet
    query.run()
    admin.fill((f"{stream}.{'ab'[n % 2]}", b"") for n in range(900))
    query.run(batches=3, limit=300)
    assert query.sequences == list(range(11, 911))
    # The last batch is released when the next one is planned.
    assert admin.facts(stream).first_seq == 611


def test_others_keep_their_messages(query: DrivenQuery, admin: Admin, stream: str) -> None:
    make_consumer(admin, stream, "other", filter_subject=f"{stream}.b")
    query.run()
    admin.fill((f"{stream}.{'ab'[n % 2]}", b"") for n in range(100))
    query.run(batches=2, limit=50)
    left = admin.call(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})["state"]["subjects"]
    assert left == {f"{stream}.a": 25, f"{stream}.b": 50}
    assert query.sequences == list(range(1, 101))


def test_only_some_subjects_are_read_and_all_are_released(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    query.options["subjects"] = f"{stream}.b"
    query.run()
    admin.fill((f"{stream}.{'ab'[n % 2]}", b"") for n in range(100))
    query.run(batches=2, limit=50)
    assert query.sequences == list(range(2, 101, 2))
    assert admin.facts(stream).first_seq == 51


@pytest.mark.parametrize(("before", "now"), [("a", ""), ("", "a"), ("a", "b")])
def test_a_query_that_goes_on_with_other_subjects_is_refused(
    query: DrivenQuery, admin: Admin, stream: str, before: str, now: str
) -> None:
    subjects = {"": ">", "a": f"{stream}.a", "b": f"{stream}.b"}
    query.run(subjects=subjects[before])
    admin.fill((f"{stream}.{'ab'[n % 2]}", b"") for n in range(100))
    query.run(limit=50, subjects=subjects[before])
    kept = admin.facts(stream)
    with pytest.raises(ConfigError, match=r"not kept for it.* give the same 'subjects' as before"):
        query.run(subjects=subjects[now])
    assert admin.facts(stream).messages == kept.messages
    query.run(subjects=subjects[before])
    assert query.sequences == list(range(1, 101, 2 if before else 1))


def test_a_consumer_that_has_moved_stops_the_query(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    query.run()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run()
    admin.call(f"CONSUMER.RESET.{stream}.spark", {"seq": 15})
    with pytest.raises(DataLossError, match="before sequence 15, but the query has read only up"):
        query.run()


def test_a_consumer_that_is_gone_stops_the_query_until_allowed(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    query.run()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run()
    admin.call(f"CONSUMER.DELETE.{stream}.spark")
    with pytest.raises(DataLossError, match="messages from sequence 11 on may have been removed"):
        query.run()
    admin.fill(numbered(f"{stream}.a", 5))  # for nobody
    query.run(failOnDataLoss="false")
    admin.fill(numbered(f"{stream}.a", 5))
    query.run()
    assert query.sequences == [*range(1, 11), *range(16, 21)]


def test_a_stream_made_anew_keeps_what_was_not_read_of_it(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    query.run()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run()
    admin.call(f"STREAM.DELETE.{stream}")
    admin.create(stream, f"{stream}.>", retention="interest", allow_direct=True)
    query.run(failOnDataLoss="false")
    admin.fill(numbered(f"{stream}.a", 20))
    query.run(batches=2, limit=10, failOnDataLoss="false")
    assert query.sequences == [*range(1, 11), *range(1, 21)]
    assert admin.facts(stream).first_seq == 11


def test_a_query_that_died_in_its_start_begins_where_its_consumer_stands(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    query.options["startingOffsets"] = "latest"
    make_consumer(admin, stream, "other")
    admin.fill(numbered(f"{stream}.a", 10))
    JetStreamStreamReader(parse_options(query.options)).initialOffset()
    admin.fill(numbered(f"{stream}.a", 50))
    query.run()
    assert query.sequences == list(range(11, 61))


def test_a_second_query_is_refused_before_it_reads_and_may_follow_the_first(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    query.run()
    admin.fill(numbered(f"{stream}.a", 100))
    query.run(batches=2, limit=25)
    second = DrivenQuery(query.options["servers"], stream, interestConsumer="spark")
    with pytest.raises(ConfigError, match=f"consumer rm {stream} spark-claim; this one then"):
        second.run()
    assert second.checkpoint is None
    admin.call(f"CONSUMER.DELETE.{stream}.spark-claim")
    second.run()
    assert second.sequences == list(range(26, 101))  # what the first had not released
    with pytest.raises(ConfigError, match="keeps messages for another query"):
        query.run()
    third = DrivenQuery(query.options["servers"], stream, interestConsumer="third")
    third.run()
    assert third.sequences == list(range(26, 101))


def test_of_two_queries_that_begin_at_once_one_is_refused(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    make_consumer(admin, stream, "other")
    admin.fill(numbered(f"{stream}.a", 10))
    one, other = (JetStreamStreamReader(parse_options(query.options)) for _ in range(2))
    starts = [one.initialOffset(), other.initialOffset()]
    ends = [
        reader.latestOffset(start, reader.getDefaultReadLimit())
        for reader, start in zip((one, other), starts, strict=True)
    ]
    one.partitions(starts[0], ends[0])
    with pytest.raises(ConfigError, match="keeps messages for another query"):
        other.partitions(starts[1], ends[1])


def test_over_three_servers_and_a_changing_leader(
    nats_cluster: Cluster, unique: Callable[[str], str]
) -> None:
    name, url = unique("INTEREST"), nats_cluster.servers[0].url
    with Admin(url) as admin, StreamPublisher(make_options(url), name, timeout=60) as publisher:
        admin.create(name, name, retention="interest", allow_direct=True, num_replicas=3)
        query = DrivenQuery(url, name, interestConsumer="spark")
        query.run()
        for _ in range(3):
            publisher.send((name.encode(), None, b"") for _ in range(100))
            publisher.flush()
            query.run(batches=9, limit=50)
            # What was sent again for want of an answer may be there twice.
            assert query.sequences == list(range(1, admin.facts(name).last_seq + 1))
            admin.api.call(js_api.STREAM_LEADER_STEPDOWN, None, stream=name)
            admin.api.call(js_api.CONSUMER_LEADER_STEPDOWN, None, stream=name, consumer="spark")
        assert len(query.sequences) >= 300


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"retention": "limits"}, "has 'limits' and keeps what is read"),
        ({"retention": "workqueue"}, "has 'workqueue'"),
        ({"allow_direct": False}, "set its allow_direct"),
        ({"consumer_limits": {"inactive_threshold": 60_000_000_000}}, "idle for 60 s"),
        ({"others": True}, "has another purpose"),
    ],
)
def test_a_stream_that_does_not_fit_the_option_is_refused_with_the_reason(
    query: DrivenQuery,
    admin: Admin,
    unique: Callable[[str], str],
    change: dict[str, Any],
    says: str,
) -> None:
    name = unique("INTEREST")
    config = {"retention": "interest", "allow_direct": True} | change
    others = config.pop("others", False)
    admin.create(name, name, **config)
    if others:
        make_consumer(admin, name, "spark")
    with pytest.raises(ConfigError, match=says):
        query.run(stream=name)


def test_a_query_of_sparks_reads_and_releases(
    to_parquet: ToParquet, admin: Admin, stream: str, query: DrivenQuery
) -> None:
    make_consumer(admin, stream, "other")
    admin.fill(numbered(f"{stream}.a", 100))
    to_parquet.options = query.options
    to_parquet.run(maxOffsetsPerTrigger="50")
    assert to_parquet.sequences() == list(range(1, 101))
    info = admin.call(f"CONSUMER.INFO.{stream}.spark")
    assert info["delivered"]["stream_seq"] == 50
    assert admin.facts(stream).messages == 100  # the other one has not read them
