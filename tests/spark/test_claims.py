"""Streams that a query empties: work queues (soleReader), streams by interest (interestConsumer).

Each message is read exactly once, removed when the checkpoint has it, and never unread.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import ToParquet, failure
from tests.support.cluster import Cluster
from tests.support.driven_query import DrivenQuery
from tests.support.streams import Admin, numbered

from jetspark.connection.options import make_options
from jetspark.errors import ConfigError, DataLossError
from jetspark.server import NatsServer
from jetspark.spark.source.claims import SOLE_READER
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.stream_reader import JetStreamStreamReader
from jetspark.stream_writes.publish import StreamPublisher
from jetspark.wire import js_api


@dataclass(frozen=True)
class Mode:
    """A way to empty a stream. `refusal`: of a second query."""

    retention: str
    options: dict[str, str]
    claim: str
    refusal: str
    server: str

    def create(self, admin: Admin, name: str, subject: str = "", **config: Any) -> None:
        config = {"retention": self.retention, "allow_direct": True} | config
        admin.create(name, subject or f"{name}.>", **config)


QUEUE = Mode("workqueue", {"soleReader": "true"}, SOLE_READER, "read by another query", "2.11")
KEEPS = "keeps messages for another query"
INTEREST = Mode("interest", {"interestConsumer": "spark"}, "spark-claim", KEEPS, "2.14")
of_queue = pytest.mark.parametrize("mode", [QUEUE], ids=["queue"])
of_interest = pytest.mark.parametrize("mode", [INTEREST], ids=["interest"])


@pytest.fixture(params=[QUEUE, INTEREST], ids=["queue", "interest"])
def mode(request: pytest.FixtureRequest) -> Mode:
    found: Mode = request.param
    return found


@pytest.fixture(autouse=True)
def _needs(mode: Mode, needs_server: Callable[[str], None]) -> None:
    needs_server(mode.server)


@pytest.fixture
def stream(mode: Mode, admin: Admin, unique: Callable[[str], str]) -> str:
    mode.create(admin, name := unique("CLAIMED"))
    return name


Driven = Callable[..., DrivenQuery]


@pytest.fixture
def driven(shared_server: NatsServer, stream: str, mode: Mode) -> Driven:
    """Queries of this stream from its first message on."""

    def make(**options: str) -> DrivenQuery:
        query = DrivenQuery(shared_server.url, stream, **(mode.options | options))
        if mode is QUEUE and "startingOffsets" not in options:
            del query.options["startingOffsets"]
        return query

    return make


@pytest.fixture
def query(driven: Driven) -> DrivenQuery:
    return driven(startingOffsets="earliest")


def reader_of(query: DrivenQuery) -> JetStreamStreamReader:
    return JetStreamStreamReader(parse_options(query.options))


def planned_by(query: DrivenQuery) -> tuple[JetStreamStreamReader, Any, Any]:
    """A reader that has planned a batch, and where that begins and ends."""
    reader = reader_of(query)
    start = reader.initialOffset()
    return reader, start, reader.latestOffset(start, reader.getDefaultReadLimit())


def make_consumer(admin: Admin, stream: str, name: str, **config: Any) -> None:
    config |= {"name": name, "durable_name": name, "ack_policy": "explicit"}
    admin.call(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})


def fill_two(admin: Admin, stream: str, count: int) -> None:
    """Subjects a and b in turn."""
    admin.fill((f"{stream}.{'ab'[n % 2]}", b"") for n in range(count))


def stored(admin: Admin, stream: str) -> dict[str, int]:
    """Messages by the last token of their subject."""
    info = admin.call(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})["state"]["subjects"]
    return {subject.removeprefix(f"{stream}."): count for subject, count in info.items()}


def forget_consumer(query: DrivenQuery) -> None:
    """Take the name of the query's consumer out of its checkpoint."""
    assert query.checkpoint is not None
    document = json.loads(query.checkpoint)
    del document["consumer"]
    query.checkpoint = json.dumps(document)


# -- what is removed -----------------------------------------------------------------------------


@of_queue
def test_what_the_checkpoint_has_is_removed(
    to_parquet: ToParquet, admin: Admin, stream: str, query: DrivenQuery
) -> None:
    to_parquet.options = query.options
    admin.fill(numbered(f"{stream}.a", 900))
    to_parquet.run(maxOffsetsPerTrigger="300")
    # The last batch is committed when the next one is planned.
    assert admin.facts(stream).first_seq == 601
    admin.fill(numbered(f"{stream}.a", 100))
    to_parquet.run()
    assert admin.facts(stream).first_seq == 901
    assert to_parquet.sequences() == list(range(1, 1001))
    to_parquet.home /= "second"  # a second query of the same DataFrame
    assert "read by another query" in failure(to_parquet.run)


@of_interest
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


@of_interest
def test_messages_from_before_the_interest_consumer_are_missed_and_no_later_ones(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    admin.fill(numbered(f"{stream}.a", 10))
    assert admin.facts(stream).messages == 0  # there was no consumer yet
    query.run()
    fill_two(admin, stream, 900)
    query.run(batches=3, limit=300)
    assert query.sequences == list(range(11, 911))
    # The last batch is released when the next one is planned.
    assert admin.facts(stream).first_seq == 611


@of_interest
def test_others_keep_their_messages(query: DrivenQuery, admin: Admin, stream: str) -> None:
    make_consumer(admin, stream, "other", filter_subject=f"{stream}.b")
    query.run()
    fill_two(admin, stream, 100)
    query.run(batches=2, limit=50)
    assert stored(admin, stream) == {"a": 25, "b": 50}
    assert query.sequences == list(range(1, 101))


def test_of_some_subjects_a_queue_keeps_the_others_and_interest_releases_them(
    driven: Driven, mode: Mode, admin: Admin, stream: str
) -> None:
    query = driven(subjects=f"{stream}.b")
    query.run()
    fill_two(admin, stream, 100)
    query.run(batches=2, limit=50)
    assert query.sequences == list(range(2, 101, 2))
    if mode is QUEUE:
        assert stored(admin, stream) == {"a": 50, "b": 25}
    else:
        assert admin.facts(stream).first_seq == 51


@of_queue
def test_with_an_older_checkpoint_the_query_may_have_removed_what_it_misses(
    driven: Driven, admin: Admin, stream: str
) -> None:
    query = driven()
    admin.fill(numbered(f"{stream}.a", 30))
    query.run(limit=10)
    older = query.checkpoint
    query.run(batches=2, limit=10)
    query.checkpoint = older
    with pytest.raises(DataLossError, match=r"11 to 20 .* or by this query itself, if its check"):
        query.run()


def test_of_a_stream_made_anew_nothing_is_removed_unread(
    query: DrivenQuery, mode: Mode, admin: Admin, stream: str
) -> None:
    query.run()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run()
    admin.call(f"STREAM.DELETE.{stream}")
    mode.create(admin, stream)
    if mode is INTEREST:
        query.run(failOnDataLoss="false")  # from here on it is kept
    admin.fill(numbered(f"{stream}.a", 20))
    query.run(batches=2, limit=10, failOnDataLoss="false")
    assert query.sequences == [*range(1, 11), *range(1, 21)]
    assert admin.facts(stream).first_seq == 11


@of_queue
@pytest.mark.parametrize("chosen", [False, True])
def test_a_query_that_began_with_an_empty_queue_removes_nothing_unread(
    driven: Driven, admin: Admin, stream: str, *, chosen: bool
) -> None:
    query = driven(**{"subjects": f"{stream}.a"} if chosen else {})
    query.run()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run(batches=2, limit=5)
    assert query.sequences == list(range(1, 11))
    assert admin.facts(stream).messages == 5


@of_queue
def test_batch_read_with_sole_reader_removes_nothing(
    spark: SparkSession, query: DrivenQuery, admin: Admin, stream: str
) -> None:
    admin.fill(numbered(f"{stream}.a", 10))
    del query.options["startingOffsets"]
    assert spark.read.format("jetstream").options(**query.options).load().count() == 10
    assert admin.facts(stream).messages == 10


IDLE = {"consumer_limits": {"inactive_threshold": 60_000_000_000}}


@pytest.mark.parametrize(
    ("mode", "change", "says"),
    [
        (QUEUE, {"retention": "limits"}, "has 'limits' and keeps what is read"),
        (QUEUE, {"retention": "interest"}, "has 'interest'"),
        (QUEUE, {"allow_direct": False}, "set its allow_direct"),
        (QUEUE, {"consumer": "c"}, "not its sole reader"),
        (INTEREST, {"retention": "limits"}, "has 'limits' and keeps what is read"),
        (INTEREST, {"retention": "workqueue"}, "has 'workqueue'"),
        (INTEREST, {"allow_direct": False}, "set its allow_direct"),
        (INTEREST, IDLE, "idle for 60 s"),
        (INTEREST, {"consumer": "spark"}, "has another purpose"),
    ],
    ids=lambda value: value.retention if isinstance(value, Mode) else "",
)
def test_a_stream_that_does_not_fit_the_option_is_refused_with_the_reason(
    query: DrivenQuery,
    mode: Mode,
    admin: Admin,
    unique: Callable[[str], str],
    change: dict[str, Any],
    says: str,
) -> None:
    consumer = (config := dict(change)).pop("consumer", None)
    mode.create(admin, name := unique("CLAIMED"), **config)
    if consumer is not None:
        make_consumer(admin, name, consumer)
    with pytest.raises(ConfigError, match=says):
        query.run(stream=name)


# -- one reader ----------------------------------------------------------------------------------


def test_a_second_query_is_refused_before_it_reads_and_may_follow_the_first(
    driven: Driven, mode: Mode, admin: Admin, stream: str
) -> None:
    first, second = driven(), driven()
    first.run()
    admin.fill(numbered(f"{stream}.a", 100))
    first.run(batches=2, limit=25)
    with pytest.raises(ConfigError, match=f"consumer rm {stream} {mode.claim}"):
        second.run()
    assert (second.checkpoint, second.sequences) == (None, [])
    admin.call(f"CONSUMER.DELETE.{stream}.{mode.claim}")
    second.run()  # the last batch of the first query was not removed yet
    assert second.sequences == list(range(26, 101))
    with pytest.raises(ConfigError, match=mode.refusal):
        first.run()
    assert admin.facts(stream).first_seq == 26
    if mode is INTEREST:
        third = driven(interestConsumer="third", startingOffsets="earliest")
        third.run()
        assert third.sequences == list(range(26, 101))


@pytest.mark.parametrize(
    ("mode", "subjects"),
    [(QUEUE, ""), (QUEUE, "ab"), (INTEREST, "")],
    ids=["queue", "queue, other subjects", "interest"],
)
def test_of_two_queries_that_begin_at_once_one_is_refused(
    driven: Driven, mode: Mode, admin: Admin, stream: str, subjects: str
) -> None:
    if mode is INTEREST:
        make_consumer(admin, stream, "other")
    fill_two(admin, stream, 100)
    chosen = [{"subjects": f"{stream}.{one}"} for one in subjects] or [{}, {}]
    first, second = (
        planned_by(driven(startingOffsets="earliest", **options)) for options in chosen
    )
    one, *positions = first
    other, *other_positions = second
    one.partitions(*positions)
    with pytest.raises(ConfigError, match=mode.refusal):
        other.partitions(*other_positions)
    if mode is QUEUE:
        one.commit(positions[1])
        with pytest.raises(ConfigError, match=mode.refusal):
            other.commit(other_positions[1])


@of_queue
def test_after_a_crash_before_the_first_commit_the_query_knows_its_claim(
    driven: Driven, admin: Admin, stream: str
) -> None:
    admin.fill(numbered(f"{stream}.a", 10))
    for claimed in (False, True):
        reader, start, end = planned_by(driven())
        if claimed:
            reader.partitions(start, end)
        admin.fill(numbered(f"{stream}.a", 10))
        again = reader_of(driven())
        planned = again.partitions(again.initialOffset(), json.loads(json.dumps(end)))
        assert [(one.start, one.end) for part in planned for one in part.ranges] == [
            (1, 21 if claimed else 11)
        ]
        assert again.latestOffset(end, again.getDefaultReadLimit()) != end
        admin.call(f"CONSUMER.DELETE.{stream}.{SOLE_READER}")


@of_interest
def test_a_query_that_died_in_its_start_begins_where_its_consumer_stands(
    driven: Driven, admin: Admin, stream: str
) -> None:
    query = driven(startingOffsets="latest")
    make_consumer(admin, stream, "other")
    admin.fill(numbered(f"{stream}.a", 10))
    reader_of(query).initialOffset()
    admin.fill(numbered(f"{stream}.a", 50))
    query.run()
    assert query.sequences == list(range(11, 61))


@of_interest
@pytest.mark.parametrize("logged", [False, True], ids=["at rest", "with a logged batch"])
def test_a_query_takes_no_consumer_that_keeps_messages_from_before_its_start(
    driven: Driven, admin: Admin, stream: str, *, logged: bool
) -> None:
    query = driven(startingOffsets="latest")
    reader_of(query).initialOffset()  # and dies, before Spark has logged an offset
    admin.fill(numbered(f"{stream}.a", 10))
    query.run(interestConsumer="another")
    admin.fill(numbered(f"{stream}.a", 10))
    forget_consumer(query)
    if logged:
        assert query.checkpoint is not None
        reader = reader_of(driven(interestConsumer="another"))
        start = json.loads(query.checkpoint)
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        del end["consumer"]
        with pytest.raises(ConfigError, match=r"from sequence 1 on.* began at 11,"):
            reader_of(query).partitions(start, end)
    with pytest.raises(ConfigError, match=r"from sequence 1 on.* began at 11,"):
        query.run()
    # As the error says, the query goes on with the name of before, and a new one reads the rest.
    query.run(batches=2, limit=5, interestConsumer="another")
    assert query.sequences == list(range(11, 21))
    assert admin.facts(stream).first_seq == 1
    new = driven(startingOffsets="latest")
    new.run()
    assert new.sequences == list(range(1, 21))


@of_interest
def test_a_query_goes_on_only_with_the_consumer_that_keeps_its_messages(
    query: DrivenQuery, driven: Driven, admin: Admin, stream: str
) -> None:
    query.run()
    reader_of(driven(interestConsumer="another")).initialOffset()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run(batches=2, limit=5)
    with pytest.raises(ConfigError, match=r"'another' has kept none for it: set .* to 'spark'"):
        query.run(interestConsumer="another", failOnDataLoss="false")
    forget_consumer(query)  # as if its name was not known
    query.run(interestConsumer="another")
    admin.fill(numbered(f"{stream}.a", 10))
    query.run(interestConsumer="another")
    assert query.sequences == list(range(1, 21))


@of_interest
def test_a_logged_batch_is_not_read_when_another_query_had_its_messages_removed(
    query: DrivenQuery, driven: Driven, admin: Admin, stream: str
) -> None:
    make_consumer(admin, stream, "other", filter_subject=f"{stream}.b")
    reader = reader_of(query)
    start = reader.initialOffset()
    admin.fill((f"{stream}.{subject}", b"") for subject in "baabab")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())  # and dies
    same_name = driven(startingOffsets="earliest")
    same_name.run(batches=2, limit=5)
    assert stored(admin, stream) == {"b": 3}
    renamed = reader_of(driven(startingOffsets="earliest", interestConsumer="another"))
    with pytest.raises(ConfigError, match="'another' has kept none for it"):
        renamed.partitions(renamed.initialOffset(), end)


@of_interest
def test_a_logged_batch_that_another_query_has_released_meanwhile_is_a_loss(
    query: DrivenQuery, driven: Driven, admin: Admin, stream: str
) -> None:
    make_consumer(admin, stream, "other", filter_subject=f"{stream}.b")
    reader = reader_of(query)
    start = reader.initialOffset()
    admin.fill((f"{stream}.{subject}", b"") for subject in "baabab")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())  # and dies, without a claim
    driven(startingOffsets="earliest").run(batches=2, limit=5)  # by the same consumer
    assert stored(admin, stream) == {"b": 3}  # so the stream still begins where the batch does
    admin.call(f"CONSUMER.DELETE.{stream}.{INTEREST.claim}")  # that query was given up
    with pytest.raises(
        DataLossError, match="stands before sequence 6, but the query has read only"
    ):
        reader_of(query).partitions(start, end)
    query.options["failOnDataLoss"] = "false"
    partitions = reader_of(query).partitions(start, end)
    batches = [rows for part in partitions for rows in reader.read(part)]
    assert [seq for rows in batches for seq in rows.column("seq").to_pylist()] == [1, 4, 6]


@of_interest
def test_a_new_query_warns_once_of_the_consumer_that_it_leaves(
    query: DrivenQuery, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        return [text for text in caplog.messages if f"nats consumer rm {stream} spark" in text]

    query.run()
    assert len(warnings()) == 1
    query.run()
    assert len(warnings()) == 1


@of_interest
def test_a_consumer_made_again_keeps_only_what_the_query_has_not_read(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    make_consumer(admin, stream, "other")
    admin.fill(numbered(f"{stream}.a", 10))
    query.options["startingOffsets"] = "latest"
    reader, *_ = planned_by(query)
    admin.call(f"CONSUMER.DELETE.{stream}.spark")
    admin.fill(numbered(f"{stream}.a", 10))
    start = reader.initialOffset()
    reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    info = admin.call(f"CONSUMER.INFO.{stream}.spark")
    assert info["delivered"]["stream_seq"] == 10


@of_queue
def test_a_logged_batch_is_not_read_without_the_option(
    driven: Driven, admin: Admin, stream: str
) -> None:
    admin.fill(numbered(f"{stream}.a", 10))
    query = driven()
    _, start, end = planned_by(query)
    del query.options["soleReader"]
    with pytest.raises(ConfigError, match="set 'soleReader'"):
        reader_of(query).partitions(start, end)


@of_queue
def test_nobody_else_can_read_the_queue(driven: Driven, admin: Admin, stream: str) -> None:
    driven(subjects=f"{stream}.a").run()
    admin.fill(numbered(f"{stream}.a", 10))
    for more in ({}, {"filter_subject": f"{stream}.a"}, {"filter_subject": f"{stream}.b"}):
        config = {"name": "c", "ack_policy": "explicit", **more}
        body = msgspec.json.encode({"stream_name": stream, "config": config})
        answer = admin.link.request(f"$JS.API.CONSUMER.CREATE.{stream}.c", body, 10)
        assert b"on workqueue stream" in answer.payload
    pull = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{SOLE_READER}"
    answer = admin.link.request(pull, b'{"batch": 1, "no_wait": true}', 10)
    assert b"404" in (answer.headers or b"")


@pytest.mark.full
def test_over_three_servers_and_a_changing_leader(
    nats_cluster: Cluster, mode: Mode, unique: Callable[[str], str]
) -> None:
    name, url = unique("CLAIMED"), nats_cluster.servers[0].url
    with Admin(url) as admin, StreamPublisher(make_options(url), name, timeout=60) as publisher:
        mode.create(admin, name, name, num_replicas=3)
        query = DrivenQuery(url, name, **mode.options)
        query.run()
        second = DrivenQuery(nats_cluster.servers[1].url, name, **mode.options)
        for _ in range(2):
            publisher.send((name.encode(), None, b"") for _ in range(100))
            publisher.flush()
            query.run(batches=9, limit=50)
            # What was sent again for want of an answer may be there twice.
            assert query.sequences == list(range(1, admin.facts(name).last_seq + 1))
            admin.api.call(js_api.STREAM_LEADER_STEPDOWN, None, stream=name)
            with pytest.raises(ConfigError, match=mode.refusal):
                second.run()
            moved = SOLE_READER if mode is QUEUE else "spark"
            admin.api.call(js_api.CONSUMER_LEADER_STEPDOWN, None, stream=name, consumer=moved)
        assert len(query.sequences) >= 200


@pytest.mark.parametrize(
    ("mode", "gone", "says"),
    [
        (QUEUE, SOLE_READER, "may have taken messages from sequence 11 on"),
        (INTEREST, "spark", "messages from sequence 11 on may have been removed"),
    ],
    ids=["queue", "interest"],
)
def test_a_consumer_that_is_gone_stops_the_query_until_allowed(
    query: DrivenQuery, mode: Mode, admin: Admin, stream: str, gone: str, says: str
) -> None:
    query.run()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run()
    admin.call(f"CONSUMER.DELETE.{stream}.{gone}")
    with pytest.raises(DataLossError, match=says):
        query.run()
    admin.fill(numbered(f"{stream}.a", 5))  # by interest, for nobody
    query.run(failOnDataLoss="false")
    admin.fill(numbered(f"{stream}.a", 5))
    query.run()
    kept = range(1, 21) if mode is QUEUE else [*range(1, 11), *range(16, 21)]
    assert query.sequences == list(kept)


@of_interest
def test_a_consumer_that_has_moved_stops_the_query(
    query: DrivenQuery, admin: Admin, stream: str
) -> None:
    query.run()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run()
    admin.call(f"CONSUMER.RESET.{stream}.spark", {"seq": 15})
    with pytest.raises(DataLossError, match="before sequence 15, but the query has read only up"):
        query.run()


@of_queue
def test_a_checkpoint_of_before_takes_the_claim(driven: Driven, admin: Admin, stream: str) -> None:
    query = driven()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run()
    admin.call(f"CONSUMER.DELETE.{stream}.{SOLE_READER}")
    assert query.checkpoint is not None
    document = json.loads(query.checkpoint)
    del document["query"]
    query.checkpoint = json.dumps(document)
    query.run()  # without a message
    with pytest.raises(ConfigError, match="read by another query"):
        driven().run()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run()
    assert query.sequences == list(range(1, 21))
    assert admin.facts(stream).first_seq == 11


@of_queue
@pytest.mark.parametrize(
    "start",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": "51"},
    ],
)
def test_a_start_that_would_skip_waiting_messages_is_refused(
    driven: Driven, admin: Admin, stream: str, start: dict[str, str]
) -> None:
    admin.fill(numbered(f"{stream}.a", 100))
    query = driven(**start)
    with pytest.raises(ConfigError, match=r"from sequence 1 on.*begin at 'earliest', or remove"):
        query.run()
    assert query.checkpoint is None
    assert admin.facts(stream).messages == 100
    admin.purge(stream)
    if start != {"startingOffsets": "51"}:
        query.run()
        admin.fill(numbered(f"{stream}.a", 10))
        query.run()
        assert query.sequences == list(range(101, 111))


@of_queue
def test_messages_of_other_subjects_may_wait_before_the_start_and_stay(
    driven: Driven, admin: Admin, stream: str
) -> None:
    admin.fill(numbered(f"{stream}.b", 50))
    admin.fill(numbered(f"{stream}.a", 50))
    query = driven(startingOffsets="51", subjects=f"{stream}.a")
    query.run(batches=2, limit=25)
    assert query.sequences == list(range(51, 101))
    assert admin.facts(stream).messages == 75


@pytest.mark.parametrize(
    ("mode", "before", "now"),
    [(QUEUE, "a", ""), (INTEREST, "a", ""), (INTEREST, "", "a"), (INTEREST, "a", "b")],
    ids=["queue", "interest, all", "interest, fewer", "interest, others"],
)
def test_a_query_that_goes_on_with_other_subjects_is_refused(
    query: DrivenQuery, mode: Mode, admin: Admin, stream: str, before: str, now: str
) -> None:
    subjects = {"": ">", "a": f"{stream}.a", "b": f"{stream}.b"}
    says = rf"subjects {stream}.a until now" if mode is QUEUE else "not kept for it"
    query.run(subjects=subjects[before])
    fill_two(admin, stream, 100)
    query.run(limit=50, subjects=subjects[before])
    kept = admin.facts(stream)
    with pytest.raises(ConfigError, match=f"{says}.* give the same 'subjects' as before"):
        query.run(subjects=subjects[now])
    assert admin.facts(stream).messages == kept.messages
    query.run(subjects=subjects[before])
    assert query.sequences == list(range(1, 101, 2 if before else 1))
