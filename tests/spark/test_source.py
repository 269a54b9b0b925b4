"""format("jetstream") in a real Spark against a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.conftest import MakeServer
from tests.spark.conftest import Read, ToParquet, failure
from tests.support.ports import free_port
from tests.support.streams import Admin, numbered

from jetspark.spark.failures import explain
from jetspark.spark.queries.progress import LagListener, QueryLag, total_lag
from jetspark.spark.queries.start import start_query
from jetspark.spark.versions import HAS_LIMITS


@pytest.fixture
def stream(admin: Admin) -> str:
    """A stream of 1,000 numbered messages on ten subjects."""
    name = admin.stream(under=".*")
    admin.fill([(f"{name}.{number % 10}", b"%d" % number) for number in range(1, 1001)])
    return name


@pytest.fixture
def query(to_parquet: ToParquet, admin: Admin, stream: str) -> ToParquet:
    to_parquet.options = {"servers": admin.url, "stream": stream, "startingOffsets": "earliest"}
    return to_parquet


def sequences(rows: DataFrame) -> list[int]:
    return sorted(row.seq for row in rows.select("seq").collect())


# -- batch -----------------------------------------------------------------------------------


def test_a_stream_is_a_dataframe_without_registration_and_a_view(
    spark: SparkSession, read: Read, admin: Admin, stream: str
) -> None:
    rows = read(stream=stream)
    assert rows.columns == ["stream", "subject", "seq", "timestamp", "data", "headers"]
    found = rows.selectExpr("seq", "subject", "cast(data as string) as text").orderBy("seq")
    assert [tuple(row) for row in found.collect()] == [
        (number, f"{stream}.{number % 10}", str(number)) for number in range(1, 1001)
    ]
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING jetstream "
        f"OPTIONS (servers '{admin.url}', stream '{stream}')"
    )
    assert spark.sql("SELECT max(seq) AS last FROM orders").collect()[0]["last"] == 1000


def test_partitions_by_number_and_by_size(read: Read, stream: str) -> None:
    def partitions(**options: str) -> int:
        rows = read(stream=stream, **options)
        assert sequences(rows) == list(range(1, 1001))
        return rows.rdd.getNumPartitions()

    assert partitions() == 1
    assert partitions(minPartitions="3") == 3
    assert partitions(maxRecordsPerPartition="300") == 4


def test_batch_read_selects_offsets_times_and_subjects(
    read: Read, admin: Admin, stream: str
) -> None:
    subjects = f"{stream}.1,{stream}.2"
    rows = read(stream=stream, startingOffsets="101", endingOffsets="201", subjects=subjects)
    assert sequences(rows) == [n for n in range(101, 201) if n % 10 in (1, 2)]
    begin, end = (time_of(admin, stream, sequence) for sequence in (301, 601))
    rows = read(stream=stream, startingTimestamp=begin, endingTimestamp=end)
    assert sequences(rows) == list(range(301, 601))
    late = read(stream=stream, startingTimestamp="2999-01-01T00:00:00Z")
    assert "has no message at or after 2999-01-01T00:00:00Z" in failure(late.collect)


def time_of(admin: Admin, stream: str, sequence: int) -> str:
    return str(admin.call(f"STREAM.MSG.GET.{stream}", {"seq": sequence})["message"]["time"])


@pytest.mark.full
def test_partitions_share_their_workers_connections(read: Read, make_server: MakeServer) -> None:
    port = free_port("127.0.0.1")
    server = make_server(f"http: 127.0.0.1:{port}\n")
    with Admin(server.url) as admin:
        admin.create("S", "s")
        admin.fill(numbered("s", 400))

    def connections() -> int:
        with urlopen(f"http://127.0.0.1:{port}/varz", timeout=60) as answer:
            return int(json.load(answer)["total_connections"])

    before = connections()
    assert read(servers=server.url, stream="S", maxRecordsPerPartition="10").count() == 400
    # 40 partitions; two workers, and the processes that plan.
    assert connections() - before <= 10


def test_columns_are_chosen_and_large_messages_headers_and_nothing_arrive(
    read: Read, admin: Admin
) -> None:
    name = admin.stream()
    assert read(stream=name).count() == 0
    payload = bytes(range(256)) * 4000
    admin.fill([(name, payload, [("a", "1"), ("a", "2")]), (name, b"")])
    whole = read(stream=name)
    first, last = whole.orderBy("seq").collect()
    assert bytes(first.data) == payload
    assert [tuple(pair) for pair in first.headers] == [("a", "1"), ("a", "2")]
    assert last.headers is None
    for columns in ("seq", "data,seq", "headers", "timestamp,subject,stream"):
        rows = read(stream=name, columns=columns)
        assert rows.columns == columns.split(",")
        assert rows.collect() == whole.select(*columns.split(",")).collect()


def test_what_is_lost_fails_the_read_or_is_left_out(read: Read, admin: Admin, stream: str) -> None:
    # A DataFrame is a snapshot: its range was planned before the purge.
    strict = read(stream=stream, startingOffsets="1")
    lenient = read(stream=stream, startingOffsets="1", failOnDataLoss="false")
    admin.purge(stream, seq=11)
    assert "sequences 1 to 10 were removed" in failure(strict.collect)
    assert sequences(lenient) == list(range(11, 1001))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"straem": "X"}, "Unknown option 'straem' for format jetstream; did you mean 'stream'?"),
        ({"servers": "nats://127.0.0.1:1"}, "No server at nats://127.0.0.1:1: "),
        ({"stream": "NO_SUCH_STREAM_HERE"}, 'Stream "NO_SUCH_STREAM_HERE" not found on nats://'),
        ({"startingOffsets": "5000"}, "Option 'startingOffsets' is 5000, but stream"),
        ({"endingOffsets": "x"}, "Option 'endingOffsets' must be latest or a sequence"),
        ({"subjects": "elsewhere"}, "Option 'subjects': no message under 'elsewhere' is in 'S_"),
        (
            {"credsFile": "/none"},
            "Option 'credsFile' '/none' cannot be read: No such file",
        ),
        ({"path": "x"}, "Option 'path' is for files: load() without one, and 'stream'"),
    ],
)
def test_mistakes_are_one_sentence(
    read: Read, stream: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        read(**{"stream": stream} | options).collect()
    error = explain(caught.value)
    assert str(error).startswith(sentence)
    assert "\n" not in str(error)
    # What Spark shows by itself: a few lines of its own worker and ours around the sentence.
    assert str(caught.value).count("\n") < 12, caught.value


def test_a_mistake_in_a_streaming_query_is_the_last_thing_that_is_said(
    spark: SparkSession, admin: Admin, stream: str, tmp_path: Path
) -> None:
    options = {"stream": stream, "startingOffsets": "earliest", "endingOffsets": "5"}
    rows = spark.readStream.format("jetstream").options(servers=admin.url, **options).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException) as caught:
        writer.start().awaitTermination()
    assert str(explain(caught.value)).startswith("Option 'endingOffsets' is for trigger(availableN")
    assert "UnboundLocalError" not in str(caught.value)


@pytest.mark.full
def test_a_run_ends_where_it_is_told_and_again_writes_nothing_more(
    to_parquet: ToParquet, admin: Admin
) -> None:
    one, two = admin.stream(1000), admin.stream(50)

    def read(**options: str) -> tuple[list[int], list[int]]:
        to_parquet.run(**options)
        rows = to_parquet.table()
        first, second = (sequences(rows.where(f"stream = '{name}'")) for name in (one, two))
        return first, second

    to_parquet.options = {
        "servers": admin.url,
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
    time = time_of(admin, one, 601)
    times = {"endingTimestamp": f'{{"{one}": "{time}", "{two}": "2999-01-01T00:00:00Z"}}'}
    assert read(**times) == read(**times) == (list(range(101, 601)), list(range(1, 51)))
    assert "ends at sequence 50" in failure(lambda: read(endingOffsets="52"))
    assert read() == (list(range(101, 1006)), list(range(1, 51)))


def test_an_end_before_the_start_is_told(to_parquet: ToParquet, admin: Admin) -> None:
    to_parquet.options = {"servers": admin.url, "stream": admin.stream(10)}
    for start in ("7", "latest"):
        error = failure(partial(to_parquet.run, startingOffsets=start, endingOffsets="5"))
        assert "before it begins" in error


def test_streams_that_forget_what_is_acked_are_refused(read: Read, admin: Admin) -> None:
    for retention in ("workqueue", "interest"):
        name = admin.stream(retention=retention)
        assert f"has retention '{retention}'" in failure(read(stream=name).count)


def test_several_streams_by_name_and_by_pattern(read: Read, admin: Admin) -> None:
    one, two = admin.stream(30), admin.stream(70)

    def counts(**options: str) -> dict[str, int]:
        rows = read(**options)
        return {row.stream: row["count"] for row in rows.groupBy("stream").count().collect()}

    assert counts(streams=f"{one},{two}") == {one: 30, two: 70}
    assert counts(streamPattern=f"({one}|{two})") == {one: 30, two: 70}
    given = f'{{"{one}": 21, "{two}": "earliest"}}'
    assert counts(streams=f"{one},{two}", startingOffsets=given) == {one: 10, two: 70}
    error = failure(lambda: counts(streamPattern="NOBODY.*"))
    assert error.startswith("No stream matches 'streamPattern' 'NOBODY.*', a regular expression ")


# -- streaming -------------------------------------------------------------------------------


@pytest.mark.full
def test_runs_go_on_where_the_last_one_ended(query: ToParquet, admin: Admin, stream: str) -> None:
    batches = query.run(maxOffsetsPerTrigger="400")
    assert [progress["numInputRows"] for progress in batches] == [400, 400, 200]
    assert query.run() == []
    admin.fill(numbered(f"{stream}.x", 50))
    assert [progress["numInputRows"] for progress in query.run()] == [50]
    assert query.sequences() == list(range(1, 1051))


@pytest.mark.skipif(not HAS_LIMITS, reason="Spark does not ask for the streams' ends")
def test_the_progress_shows_the_lag_and_a_listener_follows_it(
    spark: SparkSession, query: ToParquet, stream: str
) -> None:
    told: list[QueryLag] = []
    listener = LagListener(told.append)
    spark.streams.addListener(listener)
    try:
        batches = query.run(maxOffsetsPerTrigger="400")
        assert [total_lag(progress) for progress in batches] == [600, 200, 0]
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
    to_parquet: ToParquet, admin: Admin, unique: Callable[[str], str]
) -> None:
    query, prefix = to_parquet, unique("PATTERN")
    query.options = {"servers": admin.url, "streamPattern": f"{prefix}_.*"}
    for name in ("A", "B"):
        admin.create(f"{prefix}_{name}", f"{prefix}.{name}")
        admin.fill(numbered(f"{prefix}.{name}", 20))
        query.run(startingOffsets="earliest" if name == "A" else "latest")
    counts = query.table().groupBy("stream").count().collect()
    assert {row.stream: row["count"] for row in counts} == {f"{prefix}_A": 20, f"{prefix}_B": 20}


def test_max_bytes_per_trigger_limits_a_batch(query: ToParquet, admin: Admin, stream: str) -> None:
    size = admin.facts(stream).bytes
    batches = query.run(maxBytesPerTrigger=str(size // 4 + 1))
    assert 4 <= len(batches) <= 5
    assert query.sequences() == list(range(1, 1001))


@contextmanager
def running(
    spark: SparkSession, admin: Admin, stream: str, folder: Path, **options: str
) -> Iterator[StreamingQuery]:
    """A query that goes on until the end of the block."""
    reader = spark.readStream.format("jetstream").options(servers=admin.url, stream=stream)
    rows = reader.options(startingOffsets="earliest", **options).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder))
    query = start_query(writer.start)
    try:
        yield query
    finally:
        query.stop()


@pytest.mark.full
def test_a_minimum_holds_a_batch_back_until_the_delay_is_over(
    spark: SparkSession, admin: Admin, stream: str, tmp_path: Path
) -> None:
    how = {"minOffsetsPerTrigger": "100", "maxTriggerDelay": "6s"}
    with running(spark, admin, stream, tmp_path, **how) as query:
        began: dict[int, datetime] = {}
        added = False
        deadline = time.monotonic() + 300
        while 5 not in began:
            assert time.monotonic() < deadline
            for report in query.recentProgress:
                began[report["numInputRows"]] = datetime.fromisoformat(report["timestamp"])
            if not added and 1000 in began:
                admin.fill(numbered(f"{stream}.x", 5))
                added = True
            query.awaitTermination(0.1)  # type: ignore[arg-type]
        assert began[5] - began[1000] > timedelta(seconds=3)


@pytest.mark.full
def test_a_recreated_stream_stops_the_query_until_allowed(
    query: ToParquet, admin: Admin, stream: str
) -> None:
    query.run()
    admin.call(f"STREAM.DELETE.{stream}")
    admin.create(stream, f"{stream}.*")
    admin.fill(numbered(f"{stream}.x", 10))
    assert "it was recreated, so" in failure(query.run)
    query.run(failOnDataLoss="false")
    assert query.sequences() == sorted([*range(1, 1001), *range(1, 11)])


def test_an_idle_query_makes_no_batches(
    spark: SparkSession, admin: Admin, stream: str, tmp_path: Path
) -> None:
    with running(spark, admin, stream, tmp_path) as query:
        query.processAllAvailable()
        query.processAllAvailable()
        admin.fill(numbered(f"{stream}.x", 5))
        query.processAllAvailable()
        batches = {p["batchId"]: p["numInputRows"] for p in query.recentProgress}
        assert batches.pop(0) == 1000
        assert batches.pop(1) == 5
        assert not any(batches.values())
