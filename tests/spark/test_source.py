"""format("jetstream") in a real Spark against a real server."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from tests.support.ports import free_port
from tests.support.streams import Admin, numbered

from jetspark.errors import JetsparkError
from jetspark.spark.failures import explain
from jetspark.spark.lag import LagListener, QueryLag, lag_of
from jetspark.spark.queries import start_query
from jetspark.spark.versions import HAS_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeServer
    from tests.spark.conftest import ToParquet

    from jetspark.server import NatsServer


@pytest.fixture
def stream(admin: Admin, unique: Callable[[str], str]) -> str:
    """A stream of 1,000 numbered messages on ten subjects."""
    name = unique("SPARK")
    admin.create(name, f"{name}.*")
    admin.fill([(f"{name}.{number % 10}", b"%d" % number) for number in range(1, 1001)])
    return name


@pytest.fixture
def query(to_parquet: ToParquet, shared_server: NatsServer, stream: str) -> ToParquet:
    base = {"servers": shared_server.url, "stream": stream, "startingOffsets": "earliest"}
    to_parquet.options = base
    return to_parquet


def load(spark: SparkSession, url: str, stream: str, **options: str) -> DataFrame:
    return spark.read.format("jetstream").options(servers=url, stream=stream, **options).load()


def sequences(rows: DataFrame) -> list[int]:
    return sorted(row.seq for row in rows.select("seq").collect())


def failure(function: Callable[[], object]) -> JetsparkError:
    with pytest.raises(PySparkException) as caught:
        function()
    return explain(caught.value)


# -- batch -----------------------------------------------------------------------------------


def test_a_stream_is_a_dataframe_without_registration(
    spark: SparkSession, shared_server: NatsServer, stream: str
) -> None:
    rows = load(spark, shared_server.url, stream)
    assert rows.columns == ["stream", "subject", "seq", "timestamp", "data", "headers"]
    found = rows.selectExpr("seq", "subject", "cast(data as string) as text").orderBy("seq")
    assert [tuple(row) for row in found.collect()] == [
        (number, f"{stream}.{number % 10}", str(number)) for number in range(1, 1001)
    ]


def test_partitions_by_number_and_by_size(
    spark: SparkSession, shared_server: NatsServer, stream: str
) -> None:
    def partitions(**options: str) -> int:
        rows = load(spark, shared_server.url, stream, **options)
        assert sequences(rows) == list(range(1, 1001))
        return rows.rdd.getNumPartitions()

    assert partitions() == 1
    assert partitions(minPartitions="3") == 3
    assert partitions(maxRecordsPerPartition="300") == 4


def test_batch_read_selects_offsets_and_subjects(
    spark: SparkSession, shared_server: NatsServer, stream: str
) -> None:
    rows = load(
        spark, shared_server.url, stream,
        startingOffsets="101", endingOffsets="201", subjects=f"{stream}.1,{stream}.2",
    )  # fmt: skip
    assert sequences(rows) == [n for n in range(101, 201) if n % 10 in (1, 2)]


@pytest.mark.full
def test_partitions_share_their_workers_connections(
    spark: SparkSession, make_server: MakeServer
) -> None:
    port = free_port("127.0.0.1")
    server = make_server(f"http: 127.0.0.1:{port}\n")
    with Admin(server.url) as admin:
        admin.create("S", "s")
        admin.fill(numbered("s", 400))

    def connections() -> int:
        with urlopen(f"http://127.0.0.1:{port}/varz", timeout=60) as answer:
            return int(json.load(answer)["total_connections"])

    before = connections()
    assert load(spark, server.url, "S", maxRecordsPerPartition="10").count() == 400
    # 40 partitions; two workers, and the processes that plan.
    assert connections() - before <= 10


def test_an_empty_stream_is_an_empty_dataframe(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, unique: Callable[[str], str]
) -> None:
    name = unique("EMPTY")
    admin.create(name, name)
    assert load(spark, shared_server.url, name).count() == 0


def test_a_large_message_and_headers_arrive(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, unique: Callable[[str], str]
) -> None:
    name = unique("LARGE")
    admin.create(name, name)
    payload = bytes(range(256)) * 4000
    admin.fill([(name, payload, [("a", "1"), ("a", "2")]), (name, b"")])
    first, last = load(spark, shared_server.url, name).orderBy("seq").collect()
    assert bytes(first.data) == payload
    assert [tuple(pair) for pair in first.headers] == [("a", "1"), ("a", "2")]
    assert last.headers is None


def test_sql_view_reads_the_stream(
    spark: SparkSession, shared_server: NatsServer, stream: str
) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING jetstream "
        f"OPTIONS (servers '{shared_server.url}', stream '{stream}')"
    )
    assert spark.sql("SELECT max(seq) AS last FROM orders").collect()[0]["last"] == 1000


def test_what_is_lost_fails_the_read_or_is_left_out(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, stream: str
) -> None:
    # A DataFrame is a snapshot: its range was planned before the purge.
    strict = load(spark, shared_server.url, stream, startingOffsets="1")
    lenient = load(spark, shared_server.url, stream, startingOffsets="1", failOnDataLoss="false")
    admin.purge(stream, seq=11)
    assert "sequences 1 to 10 were removed" in str(failure(strict.collect))
    assert sequences(lenient) == list(range(11, 1001))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"straem": "X"}, "Unknown option 'straem' for format jetstream; did you mean 'stream'?"),
        ({"servers": "nats://127.0.0.1:1"}, "No server at nats://127.0.0.1:1: "),
        ({"stream": "NO_SUCH_STREAM_HERE"}, 'Stream "NO_SUCH_STREAM_HERE" not found on nats://'),
        ({"startingOffsets": "5000"}, "Option 'startingOffsets' is 5000, but stream"),
        ({"endingOffsets": "x"}, "Option 'endingOffsets' must be latest or a sequence"),
        ({"subjects": "elsewhere"}, "Option 'subjects': no message under 'elsewhere' is in 'SPARK"),
        ({"credsFile": "/none"}, "credsFile '/none' cannot be read: No such file or directory."),
        ({"path": "x"}, "Option 'path' is for files: load() without one, and the option 'stream'"),
    ],
)
def test_mistakes_are_one_sentence(
    spark: SparkSession,
    shared_server: NatsServer,
    stream: str,
    options: dict[str, str],
    sentence: str,
) -> None:
    base = {"servers": shared_server.url, "stream": stream}
    with pytest.raises(PySparkException) as caught:
        spark.read.format("jetstream").options(**(base | options)).load().collect()
    error = explain(caught.value)
    assert str(error).startswith(sentence)
    assert "\n" not in str(error)
    # What Spark shows by itself: a few lines of its own worker and ours around the sentence.
    assert str(caught.value).count("\n") < 12, caught.value


def test_a_mistake_in_a_streaming_query_is_the_last_thing_that_is_said(
    spark: SparkSession, shared_server: NatsServer, stream: str, tmp_path: Path
) -> None:
    options = {"servers": shared_server.url, "stream": stream, "endingOffsets": "5"}
    options["startingOffsets"] = "earliest"
    rows = spark.readStream.format("jetstream").options(**options).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException) as caught:
        writer.start().awaitTermination()
    assert str(explain(caught.value)).startswith("Option 'endingOffsets' is for trigger(availableN")
    assert "UnboundLocalError" not in str(caught.value)


@pytest.mark.full
def test_a_run_ends_where_it_is_told_and_again_writes_nothing_more(
    to_parquet: ToParquet, shared_server: NatsServer, admin: Admin
) -> None:
    one, two = admin.stream(1000), admin.stream(50)

    def time_of(sequence: int) -> str:
        return str(admin.call(f"STREAM.MSG.GET.{one}", {"seq": sequence})["message"]["time"])

    def read(**options: str) -> tuple[list[int], list[int]]:
        to_parquet.run(**options)
        rows = to_parquet.table().select("stream", "seq").collect()
        return sequences_of(rows, one), sequences_of(rows, two)

    def sequences_of(rows: list[Any], stream: str) -> list[int]:
        return sorted(row.seq for row in rows if row.stream == stream)

    to_parquet.options = {
        "servers": shared_server.url,
        "streams": f"{one},{two}",
        "startingOffsets": f'{{"{one}": 101, "{two}": "earliest"}}',
        "maxOffsetsPerTrigger": "70",
    }
    until = {"endingOffsets": f'{{"{one}": 301, "{two}": 11}}'}
    part = list(range(101, 301)), list(range(1, 11))
    assert read(**until) == part
    admin.fill(numbered(one, 5))
    assert read(**until) == part
    assert read(endingOffsets="5") == part  # before what is read already
    times = {"endingTimestamp": f'{{"{one}": "{time_of(601)}", "{two}": "2999-01-01T00:00:00Z"}}'}
    assert read(**times) == read(**times) == (list(range(101, 601)), list(range(1, 51)))
    assert "ends at sequence 50" in str(failure(lambda: read(endingOffsets="52")))
    assert read() == (list(range(101, 1006)), list(range(1, 51)))


def test_an_end_before_the_start_is_told(
    to_parquet: ToParquet, shared_server: NatsServer, admin: Admin
) -> None:
    to_parquet.options = {"servers": shared_server.url, "stream": admin.stream(10)}
    for start in ("7", "latest"):
        error = failure(partial(to_parquet.run, startingOffsets=start, endingOffsets="5"))
        assert "the ending position is before the starting position" in str(error)


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_streams_that_forget_what_is_acked_are_refused(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    retention: str,
) -> None:
    name = unique("QUEUE")
    admin.create(name, name, retention=retention)
    error = failure(lambda: load(spark, shared_server.url, name).count())
    assert f"has retention '{retention}'" in str(error)


def test_several_streams_by_name_and_by_pattern(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, unique: Callable[[str], str]
) -> None:
    one, two = unique("MANY_A"), unique("MANY_B")
    for name, count in ((one, 30), (two, 70)):
        admin.create(name, name)
        admin.fill(numbered(name, count))

    def counts(**options: str) -> dict[str, int]:
        rows = spark.read.format("jetstream").options(servers=shared_server.url, **options).load()
        return {row.stream: row["count"] for row in rows.groupBy("stream").count().collect()}

    assert counts(streams=f"{one},{two}") == {one: 30, two: 70}
    assert counts(streamPattern=f"({one}|{two})") == {one: 30, two: 70}
    given = f'{{"{one}": 21, "{two}": "earliest"}}'
    assert counts(streams=f"{one},{two}", startingOffsets=given) == {one: 10, two: 70}
    error = failure(lambda: counts(streamPattern="NOBODY.*"))
    assert str(error).startswith(
        "No stream matches streamPattern 'NOBODY.*', a regular expression "
    )


def test_from_a_time_to_a_time(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, stream: str
) -> None:
    def time_of(sequence: int) -> str:
        return str(admin.call(f"STREAM.MSG.GET.{stream}", {"seq": sequence})["message"]["time"])

    rows = load(
        spark, shared_server.url, stream,
        startingTimestamp=time_of(301), endingTimestamp=time_of(601),
    )  # fmt: skip
    assert sequences(rows) == list(range(301, 601))
    late = load(spark, shared_server.url, stream, startingTimestamp="2999-01-01T00:00:00Z")
    assert "has no message at or after 2999-01-01T00:00:00Z" in str(failure(late.collect))


def test_option_columns_selects_the_columns_to_read(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, unique: Callable[[str], str]
) -> None:
    name = unique("COLUMNS")
    admin.create(name, name)
    admin.fill([(name, b"payload", [("a", "1")])] * 3)
    for columns in ("seq", "data,seq", "headers", "timestamp,subject,stream"):
        rows = load(spark, shared_server.url, name, columns=columns)
        assert rows.columns == columns.split(",")
        assert rows.count() == 3
        whole = load(spark, shared_server.url, name).select(*columns.split(","))
        assert rows.collect() == whole.collect()


# -- streaming -------------------------------------------------------------------------------


@pytest.mark.full
def test_runs_go_on_where_the_last_one_ended(query: ToParquet, admin: Admin, stream: str) -> None:
    batches = query.run(maxOffsetsPerTrigger="400")
    assert [progress["numInputRows"] for progress in batches] == [400, 400, 200]
    assert query.run() == []
    admin.fill(numbered(f"{stream}.x", 50))
    assert [progress["numInputRows"] for progress in query.run()] == [50]
    assert query.sequences() == list(range(1, 1051))


with_ends = pytest.mark.skipif(not HAS_LIMITS, reason="Spark does not ask for the streams' ends")


@with_ends
def test_the_progress_shows_the_lag(query: ToParquet) -> None:
    batches = query.run(maxOffsetsPerTrigger="400")
    assert [lag_of(progress) for progress in batches] == [600, 200, 0]


@with_ends
def test_a_listener_follows_the_lag(spark: SparkSession, query: ToParquet, stream: str) -> None:
    told: list[QueryLag] = []
    listener = LagListener(told.append)
    spark.streams.addListener(listener)
    try:
        query.run(maxOffsetsPerTrigger="400")
        deadline = time.monotonic() + 120
        while len(told) < 3 or listener.latest:  # events come from a thread of Spark's
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        spark.streams.removeListener(listener)
    assert [one.lag for one in told if one.rows] == [{stream: 600}, {stream: 200}, {stream: 0}]


def test_latest_is_where_the_first_run_began_also_when_it_found_nothing(
    query: ToParquet, admin: Admin, stream: str
) -> None:
    assert query.run(startingOffsets="latest") == []
    admin.fill(numbered(f"{stream}.x", 50))
    query.run(startingOffsets="latest")
    assert query.sequences() == list(range(1001, 1051))


def test_a_pattern_finds_new_streams_and_reads_them_whole(
    to_parquet: ToParquet,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
) -> None:
    prefix = unique("PATTERN")
    query = to_parquet
    query.options = {"servers": shared_server.url, "streamPattern": f"{prefix}_.*"}
    for name in ("A", "B"):
        admin.create(f"{prefix}_{name}", f"{prefix}.{name}")
        admin.fill(numbered(f"{prefix}.{name}", 20))
        query.run(startingOffsets="earliest" if name == "A" else "latest")
    table = query.table()
    assert {row.stream: row["count"] for row in table.groupBy("stream").count().collect()} == {
        f"{prefix}_A": 20,
        f"{prefix}_B": 20,
    }


def test_max_bytes_per_trigger_limits_a_batch(query: ToParquet, admin: Admin, stream: str) -> None:
    size = admin.facts(stream).bytes
    batches = query.run(maxBytesPerTrigger=str(size // 4 + 1))
    assert 4 <= len(batches) <= 5
    assert query.sequences() == list(range(1, 1001))


@pytest.mark.full
def test_a_minimum_holds_a_batch_back_until_the_delay_is_over(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, stream: str, tmp_path: Path
) -> None:
    running = start_query(
        spark.readStream.format("jetstream")
        .options(servers=shared_server.url, stream=stream, startingOffsets="earliest")
        .options(minOffsetsPerTrigger="100", maxTriggerDelay="6s")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start
    )
    try:
        began: dict[int, datetime] = {}
        added = False
        deadline = time.monotonic() + 300
        while 5 not in began:
            assert time.monotonic() < deadline
            for report in running.recentProgress:
                began[report["numInputRows"]] = datetime.fromisoformat(report["timestamp"])
            if not added and 1000 in began:
                admin.fill(numbered(f"{stream}.x", 5))
                added = True
            running.awaitTermination(0.1)  # type: ignore[arg-type]
        assert began[5] - began[1000] > timedelta(seconds=3)
    finally:
        running.stop()


@pytest.mark.full
def test_a_recreated_stream_stops_the_query_until_allowed(
    query: ToParquet, admin: Admin, stream: str
) -> None:
    query.run()
    admin.call(f"STREAM.DELETE.{stream}")
    admin.create(stream, f"{stream}.*")
    admin.fill(numbered(f"{stream}.x", 10))
    assert "it was recreated, so" in str(failure(query.run))
    query.run(failOnDataLoss="false")
    assert query.sequences() == sorted([*range(1, 1001), *range(1, 11)])


def test_an_idle_query_makes_no_batches(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, stream: str, tmp_path: Path
) -> None:
    running = start_query(
        spark.readStream.format("jetstream")
        .options(servers=shared_server.url, stream=stream, startingOffsets="earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start
    )
    try:
        running.processAllAvailable()
        running.processAllAvailable()
        admin.fill(numbered(f"{stream}.x", 5))
        running.processAllAvailable()
        batches = {p["batchId"]: p["numInputRows"] for p in running.recentProgress}
        assert batches.pop(0) == 1000
        assert batches.pop(1) == 5
        assert not any(batches.values())
    finally:
        running.stop()
