"""Work queues with Spark as their only reader: read exactly once, and emptied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from tests.support.driven_query import DrivenQuery
from tests.support.streams import numbered

from jetspark.bulk import links
from jetspark.spark.failures import explain
from jetspark.spark.starting import begun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.streams import Admin

    from jetspark.server import NatsServer


@pytest.fixture(autouse=True)
def _needs_batches(needs_server: Callable[[str], None]) -> None:
    needs_server("2.11")


@pytest.fixture
def queue(admin: Admin, unique: Callable[[str], str]) -> str:
    name = unique("QUEUE")
    admin.create(name, f"{name}.>", retention="workqueue", allow_direct=True)
    return name


class Query:
    def __init__(self, spark: SparkSession, server: NatsServer, stream: str, home: Path) -> None:
        self.spark, self.home = spark, home
        self.options = {
            "servers": server.url,
            "stream": stream,
            "startingOffsets": "earliest",
            "soleReader": "true",
        }

    def run(self, **options: str) -> None:
        rows = self.spark.readStream.format("jetstream").options(**(self.options | options)).load()
        begun(
            rows.writeStream.format("parquet")
            .option("path", str(self.home / "table"))
            .option("checkpointLocation", str(self.home / "checkpoint"))
            .trigger(availableNow=True)
            .start
        ).awaitTermination(60)

    def sequences(self) -> list[int]:
        table = self.spark.read.parquet(str(self.home / "table"))
        return sorted(row.seq for row in table.select("seq").collect())


@pytest.fixture
def query(spark: SparkSession, shared_server: NatsServer, queue: str, tmp_path: Path) -> Query:
    return Query(spark, shared_server, queue, tmp_path)


def test_what_the_checkpoint_has_is_removed(query: Query, admin: Admin, queue: str) -> None:
    admin.fill(numbered(f"{queue}.a", 900))
    query.run(maxOffsetsPerTrigger="300")
    # The last batch is committed when the next one is planned.
    assert admin.facts(queue).first_seq == 601
    admin.fill(numbered(f"{queue}.a", 100))
    query.run()
    assert admin.facts(queue).first_seq == 901
    assert query.sequences() == list(range(1, 1001))


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
    links.close_idle()


def test_only_the_chosen_subjects_are_removed(query: Query, admin: Admin, queue: str) -> None:
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
