"""Work queues with Spark as their only reader: read exactly once, and emptied by nobody else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from tests.support.driven_query import DrivenQuery
from tests.support.streams import Admin, numbered

from jetspark.bulk.publish import StreamPublisher
from jetspark.connection.options import make_options
from jetspark.errors import ConfigError, DataLossError
from jetspark.spark.claims import SOLE_READER
from jetspark.spark.failures import explain
from jetspark.spark.options import parse_options
from jetspark.spark.stream import JetStreamStreamReader
from jetspark.wire import js_api

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from tests.spark.conftest import ToParquet
    from tests.support.cluster import Cluster

    from jetspark.server import NatsServer


@pytest.fixture(autouse=True)
def _needs_batches(needs_server: Callable[[str], None]) -> None:
    needs_server("2.11")


@pytest.fixture
def queue(admin: Admin, unique: Callable[[str], str]) -> str:
    name = unique("QUEUE")
    admin.create(name, f"{name}.>", retention="workqueue", allow_direct=True)
    return name


@pytest.fixture
def query(to_parquet: ToParquet, shared_server: NatsServer, queue: str) -> ToParquet:
    base = {"servers": shared_server.url, "stream": queue, "startingOffsets": "earliest"}
    to_parquet.options = base | {"soleReader": "true"}
    return to_parquet


def test_what_the_checkpoint_has_is_removed(query: ToParquet, admin: Admin, queue: str) -> None:
    admin.fill(numbered(f"{queue}.a", 900))
    query.run(maxOffsetsPerTrigger="300")
    # The last batch is committed when the next one is planned.
    assert admin.facts(queue).first_seq == 601
    admin.fill(numbered(f"{queue}.a", 100))
    query.run()
    assert admin.facts(queue).first_seq == 901
    assert query.sequences() == list(range(1, 1001))


def test_with_an_older_checkpoint_the_query_may_have_removed_what_it_misses(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str
) -> None:
    query = driven()
    admin.fill(numbered(f"{queue}.a", 30))
    query.run(limit=10)
    older = query.checkpoint
    query.run(batches=2, limit=10)
    query.checkpoint = older
    with pytest.raises(DataLossError, match=r"11 to 20 .* or by this query itself, if its check"):
        query.run()


def test_of_a_queue_made_anew_nothing_is_removed_unread(
    shared_server: NatsServer, admin: Admin, queue: str
) -> None:
    query = DrivenQuery(shared_server.url, queue, soleReader="true", failOnDataLoss="false")
    admin.fill(numbered(f"{queue}.a", 10))
    query.run()
    admin.call(f"STREAM.DELETE.{queue}")
    admin.create(queue, f"{queue}.>", retention="workqueue", allow_direct=True)
    admin.fill(numbered(f"{queue}.a", 20))
    query.run()
    assert query.sequences == [*range(1, 11), *range(1, 21)]


@pytest.mark.parametrize("chosen", [False, True])
def test_a_query_that_began_with_an_empty_queue_removes_nothing_unread(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str, *, chosen: bool
) -> None:
    query = driven(**{"subjects": f"{queue}.a"} if chosen else {})
    query.run()
    admin.fill(numbered(f"{queue}.a", 10))
    query.run(batches=2, limit=5)
    assert query.sequences == list(range(1, 11))
    assert admin.facts(queue).messages == 5


def test_only_the_chosen_subjects_are_removed(query: ToParquet, admin: Admin, queue: str) -> None:
    admin.fill((f"{queue}.{'ab'[n % 2]}", b"") for n in range(100))
    query.run(subjects=f"{queue}.a", maxOffsetsPerTrigger="50")
    left = admin.call(f"STREAM.INFO.{queue}", {"subjects_filter": ">"})["state"]["subjects"]
    assert left == {f"{queue}.a": 25, f"{queue}.b": 50}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"retention": "limits"}, "keeps what is read"),
        ({"retention": "interest"}, "'interest'"),
        ({"allow_direct": False}, "set its allow_direct"),
        ({"consumer": True}, "not its sole reader"),
    ],
)
def test_a_stream_that_does_not_fit_the_option_is_refused_with_the_reason(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    change: dict[str, Any],
    says: str,
) -> None:
    name = unique("QUEUE")
    config = {"retention": "workqueue", "allow_direct": True} | change
    with_consumer = config.pop("consumer", False)
    admin.create(name, name, **config)
    if with_consumer:
        consumer = {"durable_name": "c", "ack_policy": "explicit"}
        body = {"stream_name": name, "config": consumer}
        admin.call(f"CONSUMER.CREATE.{name}.c", body)
    rows = spark.read.format("jetstream").options(
        servers=shared_server.url, stream=name, soleReader="true"
    )
    with pytest.raises(PySparkException) as caught:
        rows.load().count()
    assert says in str(explain(caught.value))


def test_batch_read_with_sole_reader_removes_nothing(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, queue: str
) -> None:
    admin.fill(numbered(f"{queue}.a", 10))
    rows = spark.read.format("jetstream").options(
        servers=shared_server.url, stream=queue, soleReader="true"
    )
    assert rows.load().count() == 10
    assert admin.facts(queue).messages == 10


# -- one reader ----------------------------------------------------------------------------------


@pytest.fixture
def driven(shared_server: NatsServer, queue: str) -> Callable[..., DrivenQuery]:
    """Queries of this queue, which by default begin at its first message."""

    def make(**options: str) -> DrivenQuery:
        query = DrivenQuery(shared_server.url, queue, soleReader="true", **options)
        if "startingOffsets" not in options:
            del query.options["startingOffsets"]
        return query

    return make


def reader_of(query: DrivenQuery) -> JetStreamStreamReader:
    return JetStreamStreamReader(parse_options(query.options))


def test_a_second_query_is_refused_before_it_reads_and_may_follow_the_first(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str
) -> None:
    admin.fill(numbered(f"{queue}.a", 300))
    first, second = driven(), driven()
    first.run(batches=2, limit=100)
    with pytest.raises(ConfigError, match=f"consumer rm {queue} {SOLE_READER}"):
        second.run()
    assert second.checkpoint is None
    assert second.sequences == []
    admin.call(f"CONSUMER.DELETE.{queue}.{SOLE_READER}")
    second.run()  # the last batch of the first query was not removed yet
    assert second.sequences == list(range(101, 301))
    with pytest.raises(ConfigError, match="read by another query"):
        first.run()
    assert admin.facts(queue).first_seq == 101


@pytest.mark.parametrize("subjects", ["", "ab"])
def test_of_two_queries_that_begin_at_once_one_is_refused(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str, subjects: str
) -> None:
    admin.fill((f"{queue}.{'ab'[n % 2]}", b"") for n in range(100))
    chosen = [{"subjects": f"{queue}.{one}"} for one in subjects] or [{}, {}]
    one, other = (reader_of(driven(**options)) for options in chosen)
    starts = [one.initialOffset(), other.initialOffset()]
    ends = [
        reader.latestOffset(start, reader.getDefaultReadLimit())
        for reader, start in zip((one, other), starts, strict=True)
    ]
    one.partitions(starts[0], ends[0])
    with pytest.raises(ConfigError, match="read by another query"):
        other.partitions(starts[1], ends[1])
    one.commit(ends[0])
    with pytest.raises(ConfigError, match="read by another query"):
        other.commit(ends[1])


def test_after_a_crash_before_the_first_commit_the_query_knows_its_claim(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str
) -> None:
    admin.fill(numbered(f"{queue}.a", 10))
    for claimed in (False, True):
        reader = reader_of(driven())
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if claimed:
            reader.partitions(start, end)
        admin.fill(numbered(f"{queue}.a", 10))
        again = reader_of(driven())
        planned = again.partitions(again.initialOffset(), json.loads(json.dumps(end)))
        assert [(one.start, one.end) for part in planned for one in part.ranges] == [
            (1, 21 if claimed else 11)
        ]
        assert again.latestOffset(end, again.getDefaultReadLimit()) != end
        admin.call(f"CONSUMER.DELETE.{queue}.{SOLE_READER}")


def test_a_logged_batch_is_not_read_without_the_option(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str
) -> None:
    admin.fill(numbered(f"{queue}.a", 10))
    query = driven()
    reader = reader_of(query)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    del query.options["soleReader"]
    with pytest.raises(ConfigError, match="set the option 'soleReader'"):
        reader_of(query).partitions(start, end)


def test_nobody_else_can_read_the_queue(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str
) -> None:
    driven(subjects=f"{queue}.a").run()
    admin.fill(numbered(f"{queue}.a", 10))
    for more in ({}, {"filter_subject": f"{queue}.a"}, {"filter_subject": f"{queue}.b"}):
        config = {"name": "c", "ack_policy": "explicit", **more}
        body = msgspec.json.encode({"stream_name": queue, "config": config})
        answer = admin.link.request(f"$JS.API.CONSUMER.CREATE.{queue}.c", body, 10)
        assert b"on workqueue stream" in answer.payload
    pull = f"$JS.API.CONSUMER.MSG.NEXT.{queue}.{SOLE_READER}"
    answer = admin.link.request(pull, b'{"batch": 1, "no_wait": true}', 10)
    assert b"404" in (answer.headers or b"")


def test_over_three_servers_and_a_changing_leader(
    nats_cluster: Cluster, unique: Callable[[str], str]
) -> None:
    name, url = unique("QUEUE"), nats_cluster.servers[0].url
    with Admin(url) as admin, StreamPublisher(make_options(url), name, timeout=60) as publisher:
        admin.create(name, name, retention="workqueue", allow_direct=True, num_replicas=3)
        query = DrivenQuery(url, name, soleReader="true")
        query.run()
        second = DrivenQuery(nats_cluster.servers[1].url, name, soleReader="true")
        for _ in range(2):
            publisher.send((name.encode(), None, b"") for _ in range(100))
            publisher.flush()
            query.run(batches=9, limit=50)
            # What was sent again for want of an answer may be there twice.
            assert query.sequences == list(range(1, admin.facts(name).last_seq + 1))
            admin.api.call(js_api.STREAM_LEADER_STEPDOWN, None, stream=name)
            with pytest.raises(ConfigError, match="read by another query"):
                second.run()
            admin.api.call(js_api.CONSUMER_LEADER_STEPDOWN, None, stream=name, consumer=SOLE_READER)
        assert len(query.sequences) >= 200


def test_a_claim_that_is_gone_stops_the_query_until_allowed(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str
) -> None:
    query = driven()
    admin.fill(numbered(f"{queue}.a", 10))
    query.run()
    admin.call(f"CONSUMER.DELETE.{queue}.{SOLE_READER}")
    with pytest.raises(DataLossError, match="may have taken messages from sequence 11 on"):
        query.run()
    admin.fill(numbered(f"{queue}.a", 10))
    query.run(failOnDataLoss="false")
    query.run()
    assert query.sequences == list(range(1, 21))


def test_a_checkpoint_of_before_takes_the_claim(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str
) -> None:
    query = driven()
    admin.fill(numbered(f"{queue}.a", 10))
    query.run()
    admin.call(f"CONSUMER.DELETE.{queue}.{SOLE_READER}")
    assert query.checkpoint is not None
    document = json.loads(query.checkpoint)
    del document["query"]
    query.checkpoint = json.dumps(document)
    query.run()  # without a message
    with pytest.raises(ConfigError, match="read by another query"):
        driven().run()
    admin.fill(numbered(f"{queue}.a", 10))
    query.run()
    assert query.sequences == list(range(1, 21))
    assert admin.facts(queue).first_seq == 11


@pytest.mark.parametrize(
    "start",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": "51"},
        {
            "startingTimestamp": "2100-01-01T00:00:00Z",
            "startingOffsetsByTimestampStrategy": "latest",
        },
    ],
)
def test_a_start_that_would_skip_waiting_messages_is_refused(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str, start: dict[str, str]
) -> None:
    admin.fill(numbered(f"{queue}.a", 100))
    query = driven(**start)
    with pytest.raises(ConfigError, match=r"from sequence 1 on.*begin at 'earliest', or remove"):
        query.run()
    assert query.checkpoint is None
    assert admin.facts(queue).messages == 100
    admin.purge(queue)
    if start != {"startingOffsets": "51"}:
        query.run()
        admin.fill(numbered(f"{queue}.a", 10))
        query.run()
        assert query.sequences == list(range(101, 111))


def test_messages_of_other_subjects_may_wait_before_the_start_and_stay(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str
) -> None:
    admin.fill(numbered(f"{queue}.b", 50))
    admin.fill(numbered(f"{queue}.a", 50))
    query = driven(startingOffsets="51", subjects=f"{queue}.a")
    query.run(batches=2, limit=25)
    assert query.sequences == list(range(51, 101))
    assert admin.facts(queue).messages == 75


def test_a_query_that_goes_on_with_other_subjects_is_refused(
    driven: Callable[..., DrivenQuery], admin: Admin, queue: str
) -> None:
    admin.fill((f"{queue}.{'ab'[n % 2]}", b"") for n in range(60))
    query = driven(subjects=f"{queue}.a")
    query.run()
    del query.options["subjects"]
    with pytest.raises(ConfigError, match=rf"subjects {queue}.a until now, and with all subjects"):
        query.run()
    query.run(subjects=f"{queue}.a")
    left = admin.call(f"STREAM.INFO.{queue}", {"subjects_filter": ">"})["state"]["subjects"]
    assert left[f"{queue}.b"] == 30


def test_two_queries_of_one_dataframe_do_not_share_a_queue(query: ToParquet, admin: Admin) -> None:
    admin.fill(numbered(f"{query.options['stream']}.a", 300))
    query.run(maxOffsetsPerTrigger="100")
    query.home /= "second"
    with pytest.raises(PySparkException) as caught:
        query.run()
    assert "read by another query" in str(explain(caught.value))
