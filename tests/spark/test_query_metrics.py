"""Figures of running queries: what the table and the server have, and whether they get on."""

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.blocking.eventually import eventually
from tests.conftest import MakeServer
from tests.support.ingest_job import ingest_job
from tests.support.streams import Admin, numbered

from jetspark.metrics.endpoint import collected
from jetspark.spark.queries import metrics as query_metrics
from jetspark.spark.queries.metrics import QueryMetrics, _QueryState
from jetspark.spark.queries.progress import QueryProgress


def values(stream: str, query: str = "orders") -> dict[str, float | None]:
    of_query = {"query": query}
    found = {
        name: REGISTRY.get_sample_value(f"jetspark_stream_{name}", of_query | {"stream": stream})
        for name in ("lag_messages", "lag_seconds", "position")
    }
    for name in ("rows_total", "files_total", "commits_total", "active", "server_reachable"):
        found[name] = REGISTRY.get_sample_value(f"jetspark_query_{name}", of_query)
    name = "jetspark_query_batch_duration_seconds_count"
    return found | {"batches": REGISTRY.get_sample_value(name, of_query)}


def test_who_asks_gets_a_new_look_but_does_not_wait_for_a_silent_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[bool] = []
    silent = threading.Event()
    monkeypatch.setattr(query_metrics, "_CALL_TIMEOUT", 0.2)

    def look(_: QueryMetrics) -> None:
        looks.append(silent.wait(60 * (len(looks) == 2)))

    monkeypatch.setattr(QueryMetrics, "_refresh", look)
    metrics = QueryMetrics()
    with metrics.exporting():
        eventually(lambda: metrics._fresh_until > 0, within=90)
        metrics.not_ready()
        assert len(looks) == 1  # which is new
        metrics._fresh_until = 0
        metrics.not_ready()
        assert len(looks) == 2
        eventually(lambda: metrics._fresh_until > 0, within=90)
        metrics._fresh_until = 0
        assert metrics.not_ready() == ["no query is running yet"]
        assert len(looks) == 2
        silent.set()


def test_what_a_batch_has_is_not_old_any_more_though_no_server_answers(tmp_path: Path) -> None:
    def of(seq: int, age: float, end: int) -> str:
        ns = time.time_ns() - int(age * 1e9)
        offset = {"streams": {"AGED": {"start": 1, "next": end, "last": [seq, ns]}}}
        return f"v1\n{{}}\n{json.dumps(offset)}"

    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    query: Any = SimpleNamespace(id="q")
    under_way: Any = None
    one = _QueryState(query, QueryProgress(), [], str(tmp_path), under_way, 0.0)
    one.ends["AGED"], one.oldest["AGED"] = 20, time.time_ns() - 40_000_000_000
    one.is_active = True
    metrics = QueryMetrics()
    metrics._fresh_until = math.inf
    metrics._followed["aged"] = one
    with collected(metrics._collect):
        for number, seq, age, end, shown in ((0, 9, 5, 10, 5), (1, 19, 4, 15, 40)):
            (tmp_path / "offsets" / str(number)).write_text(of(seq, age, end))
            (tmp_path / "commits" / str(number)).write_text("v1\n{}")
            found: Any = values("AGED", "aged")
            assert found["position"] == end - 1
            assert found["lag_messages"] == 20 - end
            assert shown <= found["lag_seconds"] < shown + 1


# PySpark leaves the connection of a thread that has ended to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_figures_of_an_ingest_are_those_of_its_table_also_after_a_restart(
    spark: SparkSession, make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_metrics, "_FRESH_SECONDS", 0.2)
    server = make_server()
    admin = Admin(server.url)
    admin.create("METERED", "metered")
    admin.fill(numbered("metered", 30))
    job = ingest_job(
        options={"servers": server.url, "stream": "METERED", "startingOffsets": "earliest"},
        to=str(tmp_path / "table"),
        follow=True,
        interval=0.2,
    )

    def followed(metrics: QueryMetrics) -> StreamingQuery:
        query = job.start(spark)
        metrics.follow("orders", query, progress := QueryProgress())
        eventually(lambda: progress.update(query) or progress.batches > 0, within=90)
        return query

    metrics = QueryMetrics()
    with metrics.exporting():
        assert metrics.not_ready() == ["no query is running yet"]
        query = followed(metrics)
        try:
            eventually(lambda: values("METERED")["batches"] == 1, within=90)
            assert metrics._followed["orders"].interval == 0.2
            found: dict[str, Any] = values("METERED")
            assert found["rows_total"] == 30
            assert found["lag_messages"] == found["lag_seconds"] == 0
            assert (found["position"], found["commits_total"], found["batches"]) == (30, 1, 1)
            assert (found["active"], found["server_reachable"]) == (1, 1)
            assert found["files_total"] >= 1
            assert metrics.not_ready() == []
        finally:
            query.stop()
        admin.fill(numbered("metered", 5))
        stored = time.monotonic()
        eventually(lambda: values("METERED")["lag_messages"] == 5, within=90)
        late: Any = values("METERED")["lag_seconds"]
        assert 0 < late <= time.monotonic() - stored + 1
        eventually(lambda: metrics.not_ready() == ["orders: the query has ended"], within=90)
    assert values("METERED")["rows_total"] is None
    # As in another process; all queries of a session are found, by their ids if they have no names.
    again = QueryMetrics()
    again.follow_all(spark)
    query = job.start(spark)
    name = str(query.id)
    try:
        with again.exporting():
            eventually(lambda: values("METERED", name)["rows_total"] == 35, within=90)
            server.stop()
            eventually(lambda: values("METERED", name)["server_reachable"] == 0, within=90)
            assert f"{name}: " in again.not_ready()[0]
    finally:
        query.stop()
