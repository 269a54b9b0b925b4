"""progressConsumer: the server's own tools show where a query is, and the query does not mind."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.chaos.reading_scene import eventually
from tests.conftest import MakeServer
from tests.support.streams import Admin, numbered

from jetspark.errors import ConfigError
from jetspark.server import NatsServer
from jetspark.spark.queries.start import source_options, start_writing
from jetspark.spark.source.offsets import StreamOffset
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.progress_consumer import DESCRIPTION, ProgressConsumer


@pytest.fixture
def stream(admin: Admin) -> str:
    name = admin.stream(under=".*")
    admin.fill([(f"{name}.{'ab'[n % 2]}", b"%d" % n) for n in range(100)])
    return name


def options(server: NatsServer, stream: str, **more: str) -> SourceOptions:
    return parse_options({"servers": server.url, "stream": stream, **more}).for_streaming()


def seen(admin: Admin, stream: str, name: str = "spark") -> tuple[int, int]:
    """What tools show of a consumer: the last delivered sequence, and what is unprocessed."""
    info = admin.call(f"CONSUMER.INFO.{stream}.{name}")
    return info["delivered"]["stream_seq"], info["num_pending"]


def test_a_progress_consumer_moves_and_counts_what_is_left(
    shared_server: NatsServer, admin: Admin, stream: str
) -> None:
    consumer = ProgressConsumer(options(shared_server, stream, subjects=f"{stream}.a"), "spark")
    created = admin.facts(stream).created
    for following, unread in ((1, 50), (41, 30), (101, 0), (11, 45)):
        consumer.show({stream: StreamOffset(created, following, 1)})
        assert seen(admin, stream) == (following - 1, unread)
    # Nothing on the way was taken for read by the stream.
    assert admin.facts(stream).messages == 100


def test_a_consumer_that_two_queries_share_shows_the_one_that_is_behind(
    shared_server: NatsServer, admin: Admin, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    fast, slow = (ProgressConsumer(options(shared_server, stream), "spark") for _ in range(2))
    for following in (11, 21, 31):
        slow.show({stream: StreamOffset("", following, 1)})
        fast.show({stream: StreamOffset("", 3 * following, 1)})
        if following > 11:
            assert seen(admin, stream) == (following - 1, 101 - following)
    assert [record.message for record in caplog.records if "shows another query" in record.message]
    assert len(caplog.records) == 1


def test_a_progress_consumer_that_was_removed_comes_back(
    shared_server: NatsServer, admin: Admin, stream: str
) -> None:
    consumer = ProgressConsumer(options(shared_server, stream), "spark")
    consumer.show({stream: StreamOffset("", 11, 1)})
    admin.call(f"CONSUMER.DELETE.{stream}.spark")
    consumer.show({stream: StreamOffset("", 21, 1)})
    assert seen(admin, stream) == (20, 80)


def test_a_consumer_of_another_purpose_is_not_changed(
    shared_server: NatsServer, admin: Admin, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"name": "spark", "durable_name": "spark", "ack_policy": "explicit"}
    admin.call(f"CONSUMER.CREATE.{stream}.spark", {"stream_name": stream, "config": config})
    consumer = ProgressConsumer(options(shared_server, stream), "spark")
    consumer.show({stream: StreamOffset("", 51, 1)})
    assert seen(admin, stream) == (0, 100)
    assert "The consumer 'spark' of stream" in caplog.text


def test_a_progress_consumer_that_cannot_be_moved_is_a_warning_and_rests(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    # JetStream's answers do not come: this user may not ask.
    server = make_server('authorization { users [ { user: u, password: p, permissions: '
                         '{ publish: "nothing" } } ] }')  # fmt: skip
    consumer = ProgressConsumer(options(server, "S", user="u", password="p"), "spark")
    with caplog.at_level(logging.WARNING, "jetspark.spark"):
        consumer.show({"S": StreamOffset("", 1, 1)})
        consumer.show({"S": StreamOffset("", 2, 1)})
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "The progress consumer spark was not moved: " in caplog.text


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"progressConsumer": "a.b"}, "a.b"),
        ({"progressConsumer": "c", "soleReader": "true"}, "cannot be used with sole_reader"),
        ({"progressConsumer": "c", "interestConsumer": "d"}, "would keep messages"),
    ],
)
def test_progress_consumer_refuses_options_that_do_not_fit(more: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_options({"stream": "S", **more}).for_streaming()
    with pytest.raises(ConfigError, match="progress_consumer is for readStream"):
        parse_options({"stream": "S", "progressConsumer": "c"}).for_batch()


def test_a_query_shows_what_it_has_finished(
    spark: SparkSession, admin: Admin, stream: str, tmp_path: Path
) -> None:
    def run(**more: str) -> list[dict[str, Any]]:
        source = {"servers": admin.url, "stream": stream, "startingOffsets": "earliest"}
        given = source_options(source | more, follow=False)
        reader = spark.readStream.format("jetstream").options(**given, progressConsumer="spark")
        rows = reader.load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        query = start_writing(spark, writer, str(tmp_path), None)
        query.awaitTermination(300)
        return [report for report in query.recentProgress if report["numInputRows"]]

    assert len(run(maxOffsetsPerTrigger="40")) == 3
    # Also the last batch, which Spark's own commit to the source would tell only the next time.
    assert seen(admin, stream) == (100, 0)
    assert admin.call(f"CONSUMER.INFO.{stream}.spark")["config"]["description"] == DESCRIPTION
    admin.fill(numbered(f"{stream}.a", 7))
    # The server counts for the consumer a moment after it has stored a message.
    eventually(lambda: seen(admin, stream) == (100, 7), "7 messages pending")
    # Whatever becomes of the consumer changes nothing of what is read.
    admin.call(f"CONSUMER.DELETE.{stream}.spark")
    assert [report["numInputRows"] for report in run()] == [7]
    assert seen(admin, stream) == (107, 0)
