"""A stream that a running query reads is deleted: one rule, however it was chosen."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from tests.support.driven_query import DrivenQuery
from tests.support.streams import Admin, numbered

from jetspark.errors import ConfigError, StreamNotFoundError, StreamRecreatedError
from jetspark.server import NatsServer
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.stream_reader import JetStreamStreamReader


@pytest.fixture
def name(admin: Admin, unique: Callable[[str], str]) -> str:
    """Of one stream, or the beginning of two: …_A and …_B, five messages each."""
    name = unique("GONE")
    for stream in ("A", "B"):
        admin.create(f"{name}_{stream}", f"{name}.{stream}")
        admin.fill(numbered(f"{name}.{stream}", 5))
    return name


@pytest.fixture(params=["stream", "streams", "streamPattern"])
def query(request: pytest.FixtureRequest, name: str, shared_server: NatsServer) -> DrivenQuery:
    """A query that has read the five messages of each of its streams."""
    query = DrivenQuery(shared_server.url, "")
    chosen = {
        "stream": f"{name}_A",
        "streams": f"{name}_A,{name}_B",
        "streamPattern": f"{name}_[AB]",
    }
    del query.options["stream"]
    query.options[request.param] = chosen[request.param]
    query.run()
    return query


def test_a_deleted_stream_stops_the_query_with_what_to_do(
    query: DrivenQuery, admin: Admin, name: str
) -> None:
    admin.call(f"STREAM.DELETE.{name}_A")
    with pytest.raises(StreamNotFoundError, match=r"_A\" is gone.* Set '?fail\w+'? to false"):
        query.run()


def test_without_failing_the_query_goes_on_and_reads_what_comes_back(
    query: DrivenQuery, admin: Admin, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin.call(f"STREAM.DELETE.{name}_A")
    two = "stream" not in query.options
    read = sorted(query.sequences)
    if two:
        admin.fill(numbered(f"{name}.B", 2))
        read += [6, 7]
    with caplog.at_level(logging.WARNING, "jetspark.spark"):
        query.run(failOnDataLoss="false", batches=3)
    assert sorted(query.sequences) == sorted(read)
    # PySpark's loggers turn caplog.text into JSON, with its quotes escaped.
    assert sum('_A" is gone' in message for message in caplog.messages) == 1
    if two:  # what was accepted is in the checkpoint: strict runs go on
        admin.fill(numbered(f"{name}.B", 1))
        read.append(8)
    query.run()
    assert sorted(query.sequences) == sorted(read)
    admin.create(f"{name}_A", f"{name}.A")
    admin.fill(numbered(f"{name}.A", 3))
    with pytest.raises(StreamRecreatedError, match=r"'?fail\w+'? to false to read it from its"):
        query.run()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "jetspark.spark"):
        query.run(failOnDataLoss="false", batches=3)
    assert sorted(query.sequences) == sorted([*read, 1, 2, 3])
    assert caplog.text.count("It is read from its first message") == 1


def test_what_was_planned_of_a_deleted_stream_is_left_out_with_a_warning(
    admin: Admin, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    base = {"servers": admin.url, "stream": f"{name}_A", "startingOffsets": "earliest"}
    strict = JetStreamStreamReader(parse_options(base))
    lenient = JetStreamStreamReader(parse_options(base | {"failOnDataLoss": "false"}))
    start = strict.initialOffset()
    end = strict.latestOffset(start, strict.getDefaultReadLimit())
    [part] = strict.partitions(start, end)
    admin.call(f"STREAM.DELETE.{name}_A")
    with pytest.raises(StreamNotFoundError, match=r"'?fail\w+'? to false to continue without it"):
        list(strict.read(part))
    assert list(lenient.read(part)) == []
    assert "are left out" in caplog.text
    assert lenient.reportLatestOffset() == {"streams": {}, "version": 1}
    lenient.prepareForTriggerAvailableNow()


def test_a_named_stream_must_be_there_when_a_query_begins(
    shared_server: NatsServer, name: str
) -> None:
    options = {"servers": shared_server.url, "streams": f"{name}_A,{name}_C"}
    reader = JetStreamStreamReader(parse_options(options | {"failOnDataLoss": "false"}))
    with pytest.raises(StreamNotFoundError, match=f'"{name}_C" not found'):
        reader.initialOffset()


def test_a_checkpoint_of_another_stream_is_refused(shared_server: NatsServer, name: str) -> None:
    query = DrivenQuery(shared_server.url, f"{name}_A")
    query.run()
    with pytest.raises(ConfigError, match=r"use another checkpoint\.$"):
        query.run(stream=f"{name}_B")
