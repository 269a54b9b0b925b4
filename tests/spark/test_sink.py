"""df.write and df.writeStream on a real Spark and real servers."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from tests.support.streams import Admin

from jetspark.errors import JetsparkError
from jetspark.spark.failures import explain
from jetspark.spark.queries import source_options, start_writing
from jetspark.spark.sink import JetStreamBatchWriter
from jetspark.spark.sink_options import look_at, parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.support.cluster import Cluster

    from jetspark.server import NatsServer


@pytest.fixture
def stream(admin: Admin, unique: Callable[[str], str]) -> str:
    name = unique("SINK")
    admin.create(name, f"{name}.>")
    return name


@pytest.fixture
def exactly(needs_server: Callable[[str], None]) -> dict[str, str]:
    """The options of the strongest guarantee."""
    needs_server("2.12")
    return {"guarantee": "exactly-once", "prepareStream": "true"}


def numbers(spark: SparkSession, stream: str, count: int, parts: int = 3) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr(
        f"concat('{stream}.', id % 5) subject", "cast(id as string) data"
    )


def write(rows: DataFrame, server: NatsServer, stream: str, **options: str) -> None:
    sink = rows.write.format("jetstream").options(servers=server.url, stream=stream, **options)
    sink.mode("append").save()


def payloads(spark: SparkSession, server: NatsServer, stream: str) -> Counter[str]:
    rows = (
        spark.read.format("jetstream")
        .options(servers=server.url, stream=stream, subjects=f"{stream}.>")
        .load()
    )
    return Counter(row.text for row in rows.selectExpr("cast(data as string) text").collect())


def wanted(count: int) -> Counter[str]:
    return Counter(str(number) for number in range(count))


def test_rows_become_messages_with_headers(
    spark: SparkSession, shared_server: NatsServer, stream: str
) -> None:
    rows = numbers(spark, stream, 100).selectExpr(
        "subject",
        "data",
        "CASE data % 3 WHEN 0 THEN null WHEN 1 THEN array() "
        "ELSE transform(array('n', 'o', 'n'), (key, i) -> struct(key, data || i value)) "
        "END headers",
    )
    write(rows, shared_server, stream)
    back = spark.read.format("jetstream").options(servers=shared_server.url, stream=stream).load()

    def found(table: DataFrame) -> list[Any]:
        return (
            table.selectExpr("subject", "cast(cast(data as string) as int) n", "headers")
            .orderBy("n")
            .collect()
        )

    assert found(back) == found(rows)
    last = found(back)[98].headers
    assert [tuple(pair) for pair in last] == [("n", "980"), ("o", "981"), ("n", "982")]


def test_what_was_read_can_be_written_again(
    spark: SparkSession, shared_server: NatsServer, stream: str, admin: Admin
) -> None:
    admin.create(f"{stream}_B", f"{stream}_B")
    write(numbers(spark, stream, 10), shared_server, stream)
    back = spark.read.format("jetstream").options(servers=shared_server.url, stream=stream).load()
    write(back.drop("subject"), shared_server, f"{stream}_B", subject=f"{stream}_B")
    assert admin.facts(f"{stream}_B").messages == 10


def test_message_ids_make_a_second_write_harmless(
    spark: SparkSession, shared_server: NatsServer, stream: str
) -> None:
    rows = numbers(spark, stream, 50).selectExpr("*", "data msg_id")
    for _ in range(2):
        write(rows, shared_server, stream, guarantee="effectively-once")
    assert payloads(spark, shared_server, stream) == wanted(50)


def test_a_transaction_is_written_once_and_refuses_other_rows(
    spark: SparkSession, shared_server: NatsServer, stream: str, exactly: dict[str, str]
) -> None:
    for parts in (3, 1):
        write(
            numbers(spark, stream, 3000, parts),
            shared_server,
            stream,
            transactionId="load-1",
            **exactly,
        )
    others = numbers(spark, stream, 3000).selectExpr("subject", "concat(data, '!') data")
    with pytest.raises(PySparkException) as caught:
        write(others, shared_server, stream, transactionId="load-1", **exactly)
    assert "this write has other rows" in str(explain(caught.value))
    assert payloads(spark, shared_server, stream) == wanted(3000)


@pytest.mark.parametrize(
    ("subject", "payload", "says"),
    [
        (None, b"2", "no subject"),
        ("elsewhere", b"2", "does not belong to the stream"),
        ("a b", b"2", "Bad subject"),
        ("{stream}.2", b"2" * 2000, "message size exceeds maximum allowed"),
    ],
)
def test_spark_does_not_write_again_because_of_a_row_that_cannot_be_stored(
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    subject: str | None,
    payload: bytes,
    says: str,
) -> None:
    stream = unique("SINK")
    admin.create(stream, f"{stream}.>", max_msg_size=1000)
    options = parse_sink_options({"servers": shared_server.url, "stream": stream})
    target = replace(look_at(options), largest=10_000)  # so that the server refuses what is larger
    writer = JetStreamBatchWriter(options, target)
    subjects = [f"{stream}.1", subject and subject.format(stream=stream)]
    rows = pa.record_batch({"subject": subjects, "data": [b"1", payload]})
    answer = pickle.loads(pickle.dumps(writer.write(iter([rows]))))  # the task does not fail
    with pytest.raises(JetsparkError, match=says):
        writer.commit([answer])


class Copy:
    """A streaming query that copies one stream to another."""

    def __init__(self, spark: SparkSession, server: NatsServer, stream: str, home: Path) -> None:
        self.spark, self.server, self.stream, self.home = spark, server, stream, home
        self.source = f"{stream}_FROM"

    def run(self, reading: dict[str, str], **writing: str) -> list[int]:
        """To the end of the source; the batches' numbers."""
        rows = (
            self.spark.readStream.format("jetstream")
            .options(servers=self.server.url, stream=self.source, startingOffsets="earliest")
            .options(**source_options(reading, follow=False))
            .load()
            .selectExpr(f"concat('{self.stream}.', seq % 5) subject", "data")
        )
        checkpoint = str(self.home / "checkpoint")
        writer = (
            rows.writeStream.format("jetstream")
            .options(servers=self.server.url, stream=self.stream, **writing)
            .option("checkpointLocation", checkpoint)
        )
        query = start_writing(self.spark, writer, checkpoint, None)
        query.awaitTermination(300)
        return [report["batchId"] for report in query.recentProgress if report["numInputRows"]]

    def forget_commit(self, batch: int) -> None:
        """As if Spark had died between the sink's commit and its own log."""
        for file in (self.home / "checkpoint" / "commits").glob(f"*{batch}*"):
            file.unlink()


@pytest.fixture
def copy(
    spark: SparkSession, shared_server: NatsServer, stream: str, admin: Admin, tmp_path: Path
) -> Copy:
    copy = Copy(spark, shared_server, stream, tmp_path)
    admin.create(copy.source, copy.source)
    admin.fill((copy.source, b"%d" % number) for number in range(900))
    return copy


@pytest.mark.full
def test_a_query_writes_each_row_once_though_its_last_batch_comes_again(
    copy: Copy, admin: Admin, exactly: dict[str, str]
) -> None:
    assert copy.run({"maxOffsetsPerTrigger": "300"}, **exactly) == [0, 1, 2]
    copy.forget_commit(2)
    # The batch comes back in other partitions.
    assert copy.run({"maxOffsetsPerTrigger": "300", "minPartitions": "3"}, **exactly) == [2]
    admin.fill((copy.source, b"%d" % number) for number in range(900, 1000))
    assert copy.run({}, **exactly) == [3]
    assert payloads(copy.spark, copy.server, copy.stream) == wanted(1000)


def test_a_lost_checkpoint_stops_an_exactly_once_query_until_it_adopts(
    copy: Copy, exactly: dict[str, str]
) -> None:
    copy.run({}, **exactly)
    shutil.rmtree(copy.home / "checkpoint")
    with pytest.raises(PySparkException) as caught:
        copy.run({}, **exactly)
    said = str(explain(caught.value))
    assert f"the rows that the query with the checkpoint {copy.home}/checkpoint wrote" in said
    assert payloads(copy.spark, copy.server, copy.stream) == wanted(900)
    copy.run({}, adoptLedger="true", **exactly)
    assert payloads(copy.spark, copy.server, copy.stream).total() == 1800


def test_at_least_once_repeats_the_batch_that_comes_again(copy: Copy) -> None:
    copy.run({})
    copy.forget_commit(0)
    copy.run({})
    found = payloads(copy.spark, copy.server, copy.stream)
    assert found.keys() == wanted(900).keys()
    assert found.total() == 1800


@pytest.mark.full
def test_an_older_copy_of_the_checkpoint_is_stopped(copy: Copy, exactly: dict[str, str]) -> None:
    copy.run({"maxOffsetsPerTrigger": "300"}, **exactly)
    for batch in (1, 2):
        copy.forget_commit(batch)
        for file in (copy.home / "checkpoint" / "offsets").glob(f"*{batch}*"):
            file.unlink()
    with pytest.raises(PySparkException) as caught:
        copy.run({"maxOffsetsPerTrigger": "300"}, **exactly)
    assert "the checkpoint is an older copy" in str(explain(caught.value))


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({}, {"stream": "nope"}, "not found"),
        ({}, {"guarantee": "exactly-once", "transactionId": "t"}, "Set the option 'prepareStream'"),
        ({"no_ack": True}, {}, "does not acknowledge"),
        ({"sealed": True}, {}, "is sealed"),
        ({"retention": "interest"}, {"guarantee": "effectively-once"}, "while it has no consumer"),
    ],
)
def test_a_stream_that_does_not_fit_is_refused_before_a_row_is_written(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    change: dict[str, Any],
    options: dict[str, str],
    says: str,
) -> None:
    stream = unique("SINK")
    sealed = change.pop("sealed", False)
    admin.create(stream, f"{stream}.>", **change)
    if sealed:
        admin.call(
            f"STREAM.UPDATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "sealed": True}
        )
    rows = numbers(spark, stream, 5)
    if options.get("guarantee") == "effectively-once":
        rows = rows.selectExpr("*", "data msg_id")
    with pytest.raises(PySparkException) as caught:
        write(rows, shared_server, **{"stream": stream} | options)
    assert says in str(explain(caught.value))


def test_overwriting_is_refused(
    spark: SparkSession, shared_server: NatsServer, stream: str
) -> None:
    sink = numbers(spark, stream, 5).write.format("jetstream").mode("overwrite")
    with pytest.raises(PySparkException) as caught:
        sink.options(servers=shared_server.url, stream=stream).save()
    assert "can only be appended to" in str(explain(caught.value))


@pytest.mark.full
def test_exactly_once_writes_to_a_cluster_of_three_servers(
    spark: SparkSession,
    nats_cluster: Cluster,
    unique: Callable[[str], str],
    exactly: dict[str, str],
) -> None:
    """Every replica may be asked, and none that lags may shorten what is read."""
    stream, servers = unique("SINK"), ",".join(nats_cluster.urls)
    with Admin(nats_cluster.urls[0]) as admin:
        admin.create(stream, f"{stream}.>", num_replicas=3)
    options = {"servers": servers, "stream": stream}
    for number in range(3):
        sink = numbers(spark, stream, 2000).write.format("jetstream").mode("append")
        sink.options(**options, **exactly, transactionId=f"load-{number % 2}").save()
        rows = spark.read.format("jetstream").options(**options, minPartitions="4")
        expected = 2000 if number == 0 else 4000
        assert rows.option("subjects", f"{stream}.>").load().count() == expected
