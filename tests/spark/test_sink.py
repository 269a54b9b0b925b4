"""df.write and df.writeStream on a real Spark and real servers."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import Read, Write, failure
from tests.support.cluster import Cluster
from tests.support.streams import Admin

from jetspark.errors import JetsparkError
from jetspark.spark.queries.start import source_options, start_writing
from jetspark.spark.stream_sink.options import parse_sink_options
from jetspark.spark.stream_sink.target import inspect_target
from jetspark.spark.stream_sink.writers import JetStreamBatchWriter


@pytest.fixture
def stream(admin: Admin) -> str:
    return admin.stream(under=".>")


@pytest.fixture
def exactly(needs_server: Callable[[str], None]) -> dict[str, str]:
    """The options of the strongest guarantee."""
    needs_server("2.12")
    return {"guarantee": "exactly-once", "prepareStream": "true"}


def numbers(spark: SparkSession, stream: str, count: int, parts: int = 3) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr(
        f"concat('{stream}.', id % 5) subject", "cast(id as string) data"
    )


Payloads = Callable[[str], Counter[str]]


@pytest.fixture
def payloads(read: Read) -> Payloads:
    """Those of a stream."""

    def found(stream: str) -> Counter[str]:
        rows = read(stream=stream, subjects=f"{stream}.>").selectExpr("cast(data as string) text")
        return Counter(row.text for row in rows.collect())

    return found


def wanted(count: int) -> Counter[str]:
    return Counter(str(number) for number in range(count))


def test_rows_become_messages_with_headers_and_can_be_written_again(
    spark: SparkSession, read: Read, write: Write, stream: str, admin: Admin
) -> None:
    rows = numbers(spark, stream, 100).selectExpr(
        "subject",
        "data",
        "CASE data % 3 WHEN 0 THEN null WHEN 1 THEN array() "
        "ELSE transform(array('n', 'o', 'n'), (key, i) -> struct(key, data || i value)) "
        "END headers",
    )
    write(rows, stream=stream)

    def found(table: DataFrame) -> list[Any]:
        columns = "cast(cast(data as string) as int) n", "headers"
        return table.selectExpr("subject", *columns).orderBy("n").collect()

    back = read(stream=stream)
    assert found(back) == found(rows)
    last = found(back)[98].headers
    assert [tuple(pair) for pair in last] == [("n", "980"), ("o", "981"), ("n", "982")]
    other = admin.stream()
    write(back.drop("subject"), stream=other, subject=other)
    assert admin.facts(other).messages == 100


def test_message_ids_make_a_second_write_harmless(
    spark: SparkSession, write: Write, payloads: Payloads, stream: str
) -> None:
    rows = numbers(spark, stream, 50).selectExpr("*", "data msg_id")
    for _ in range(2):
        write(rows, stream=stream, guarantee="effectively-once")
    assert payloads(stream) == wanted(50)


def test_a_transaction_is_written_once_and_refuses_other_rows(
    spark: SparkSession,
    write: Write,
    payloads: Payloads,
    stream: str,
    exactly: dict[str, str],
) -> None:
    once = {"stream": stream, "transactionId": "load-1", **exactly}
    for parts in (3, 1):
        write(numbers(spark, stream, 3000, parts), **once)
    others = numbers(spark, stream, 3000).selectExpr("subject", "concat(data, '!') data")
    assert "this write has other rows" in failure(lambda: write(others, **once))
    assert payloads(stream) == wanted(3000)


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
    admin: Admin, subject: str | None, payload: bytes, says: str
) -> None:
    stream = admin.stream(under=".>", max_msg_size=1000)
    options = parse_sink_options({"servers": admin.url, "stream": stream})
    # The server refuses what is larger.
    target = replace(inspect_target(options), max_message_bytes=10_000)
    writer = JetStreamBatchWriter(options, target)
    subjects = [f"{stream}.1", subject and subject.format(stream=stream)]
    rows = pa.record_batch({"subject": subjects, "data": [b"1", payload]})
    answer = pickle.loads(pickle.dumps(writer.write(iter([rows]))))  # the task does not fail
    with pytest.raises(JetsparkError, match=says):
        writer.commit([answer])


class Copy:
    """A streaming query that copies one stream to another."""

    def __init__(self, spark: SparkSession, admin: Admin, stream: str, home: Path) -> None:
        self.spark, self.server, self.stream, self.home = spark, admin.url, stream, home
        self.source = admin.stream()
        admin.fill((self.source, b"%d" % number) for number in range(900))

    def run(self, reading: dict[str, str], **writing: str) -> list[int]:
        """To the end of the source; the batches' numbers."""
        reader = self.spark.readStream.format("jetstream").option("servers", self.server)
        reader = reader.options(**source_options(reading, follow=False))
        reader = reader.options(stream=self.source, startingOffsets="earliest")
        rows = reader.load().selectExpr(f"concat('{self.stream}.', seq % 5) subject", "data")
        checkpoint = str(self.home / "checkpoint")
        writer = rows.writeStream.format("jetstream").option("servers", self.server)
        writer = writer.options(stream=self.stream, checkpointLocation=checkpoint, **writing)
        query = start_writing(self.spark, writer, checkpoint, None)
        query.awaitTermination(300)
        return [report["batchId"] for report in query.recentProgress if report["numInputRows"]]

    def forget_commit(self, batch: int) -> None:
        """As if Spark had died between the sink's commit and its own log."""
        for file in (self.home / "checkpoint" / "commits").glob(f"*{batch}*"):
            file.unlink()


@pytest.fixture
def copy(spark: SparkSession, admin: Admin, stream: str, tmp_path: Path) -> Copy:
    return Copy(spark, admin, stream, tmp_path)


@pytest.mark.full
def test_a_query_writes_each_row_once_though_its_last_batch_comes_again(
    copy: Copy, admin: Admin, exactly: dict[str, str], payloads: Payloads
) -> None:
    assert copy.run({"maxOffsetsPerTrigger": "300"}, **exactly) == [0, 1, 2]
    copy.forget_commit(2)
    # The batch comes back in other partitions.
    assert copy.run({"maxOffsetsPerTrigger": "300", "minPartitions": "3"}, **exactly) == [2]
    admin.fill((copy.source, b"%d" % number) for number in range(900, 1000))
    assert copy.run({}, **exactly) == [3]
    assert payloads(copy.stream) == wanted(1000)


def test_a_lost_checkpoint_stops_an_exactly_once_query_until_it_adopts(
    copy: Copy, exactly: dict[str, str], payloads: Payloads
) -> None:
    copy.run({}, **exactly)
    shutil.rmtree(copy.home / "checkpoint")
    said = failure(lambda: copy.run({}, **exactly))
    assert f"the rows that the query with the checkpoint {copy.home}/checkpoint wrote" in said
    assert payloads(copy.stream) == wanted(900)
    copy.run({}, adoptLedger="true", **exactly)
    assert payloads(copy.stream).total() == 1800


def test_at_least_once_repeats_the_batch_that_comes_again(copy: Copy, payloads: Payloads) -> None:
    copy.run({})
    copy.forget_commit(0)
    copy.run({})
    found = payloads(copy.stream)
    assert found.keys() == wanted(900).keys()
    assert found.total() == 1800


@pytest.mark.full
def test_an_older_copy_of_the_checkpoint_is_stopped(copy: Copy, exactly: dict[str, str]) -> None:
    copy.run({"maxOffsetsPerTrigger": "300"}, **exactly)
    for batch in (1, 2):
        copy.forget_commit(batch)
        for file in (copy.home / "checkpoint" / "offsets").glob(f"*{batch}*"):
            file.unlink()
    said = failure(lambda: copy.run({"maxOffsetsPerTrigger": "300"}, **exactly))
    assert "the checkpoint is an older copy" in said


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({}, {"stream": "nope"}, "not found"),
        ({}, {"guarantee": "exactly-once", "transactionId": "t"}, "Set 'prepareStream'"),
        ({"no_ack": True}, {}, "does not acknowledge"),
        ({"sealed": True}, {}, "is sealed"),
        ({"retention": "interest"}, {"guarantee": "effectively-once"}, "while it has no consumer"),
    ],
)
def test_a_stream_that_does_not_fit_is_refused_before_a_row_is_written(
    spark: SparkSession,
    write: Write,
    admin: Admin,
    change: dict[str, Any],
    options: dict[str, str],
    says: str,
) -> None:
    sealed = change.pop("sealed", False)
    stream = admin.stream(under=".>", **change)
    if sealed:
        admin.api.update(admin.api.config(stream) | {"sealed": True})
    rows = numbers(spark, stream, 5)
    if options.get("guarantee") == "effectively-once":
        rows = rows.selectExpr("*", "data msg_id")
    assert says in failure(lambda: write(rows, **{"stream": stream} | options))


def test_overwriting_is_refused(spark: SparkSession, write: Write, stream: str) -> None:
    said = failure(lambda: write(numbers(spark, stream, 5), "overwrite", stream=stream))
    assert "can only be appended to" in said


@pytest.mark.full
def test_exactly_once_writes_to_a_cluster_of_three_servers(
    spark: SparkSession,
    read: Read,
    write: Write,
    nats_cluster: Cluster,
    unique: Callable[[str], str],
    exactly: dict[str, str],
) -> None:
    """Every replica may be asked, and none that lags may shorten what is read."""
    stream = unique("SINK")
    with Admin(nats_cluster.urls[0]) as admin:
        admin.create(stream, f"{stream}.>", num_replicas=3)
    options = {"servers": ",".join(nats_cluster.urls), "stream": stream}
    for number, expected in enumerate((2000, 4000, 4000)):
        load = {"transactionId": f"load-{number % 2}", **exactly}
        write(numbers(spark, stream, 2000), **options, **load)
        rows = read(**options, minPartitions="4", subjects=f"{stream}.>")
        assert rows.count() == expected
