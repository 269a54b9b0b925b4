"""A query over many streams: what a trigger asks, and how they share partitions."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.streams import Admin, numbered

from jetspark.blocking import connect
from jetspark.server import NatsServer
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.stream_reader import JetStreamStreamReader, gc_paused

_STREAMS = 100


@pytest.fixture
def stem(admin: Admin, unique: Callable[[str], str]) -> str:
    stem = unique("SHARED")
    for number in range(_STREAMS):
        name = f"{stem}_{number:03}"
        admin.create(name, name)
        admin.fill(numbered(name, 2))
    return stem


def _reader(server: NatsServer, stem: str, **options: str) -> JetStreamStreamReader:
    base = {"servers": server.url, "streamPattern": f"{stem}_.*", "startingOffsets": "earliest"}
    return JetStreamStreamReader(parse_options(base | options))


def _trigger(reader: JetStreamStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """What Spark calls in each trigger."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    reported = reader.reportLatestOffset()
    assert reported is not None
    assert reported["streams"].keys() == end["streams"].keys()
    return end


def test_small_ranges_of_many_streams_share_partitions(
    shared_server: NatsServer, stem: str
) -> None:
    reader = _reader(shared_server, stem)
    start = reader.initialOffset()
    parts = reader.partitions(start, end := _trigger(reader, start))
    assert len(parts) < 5
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(rows) == 2 * _STREAMS
    assert len({(row["stream"], row["seq"]) for row in rows}) == 2 * _STREAMS
    assert reader.partitions(start, end)[0].ranges == parts[0].ranges
    assert len(_reader(shared_server, stem, minPartitions="20").partitions(start, end)) >= 20


def test_a_trigger_asks_each_stream_once(shared_server: NatsServer, stem: str) -> None:
    reader = _reader(shared_server, stem)
    end = _trigger(reader, reader.initialOffset())
    with connect(shared_server.url) as nc:
        asked = nc.subscribe("$JS.API.STREAM.INFO.*")
        nc.flush()
        assert _trigger(reader, end) is end
        nc.publish(f"$JS.API.STREAM.INFO.{stem}_last")
        streams: list[str] = []
        while f"{stem}_last" not in streams:
            streams.append(asked.next(timeout=30).subject.rpartition(".")[2])
    assert [name for name in streams if name.startswith(stem)][:-1] == [
        f"{stem}_{number:03}" for number in range(_STREAMS)
    ]


class Planner:
    @gc_paused()
    def plan(self, error: Exception | None) -> bool:
        if error is not None:
            raise error
        return gc.isenabled()


def test_planning_pauses_the_collector_and_leaves_it_as_it_was() -> None:
    with pytest.raises(KeyError):
        Planner().plan(KeyError("S"))
    assert gc.isenabled()
    gc.disable()
    try:
        assert not Planner().plan(None)
        assert not gc.isenabled()
    finally:
        gc.enable()
