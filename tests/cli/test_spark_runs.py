"""What a running pipeline tells where nobody looks at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from jetspark.cli import spark_runs
from jetspark.cli.signals import Stop, StopRequested

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Query:
    """Has written ten rows when it is first looked at, and ends after some looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.stopped = False
        report = {"batchId": 0, "numInputRows": 10, "processedRowsPerSecond": 5.0, "sources": []}
        self.recentProgress: list[dict[str, Any]] = [report]
        self.lastProgress = report

    @property
    def isActive(self) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.stopped = True


def test_a_line_now_and_then_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spark_runs, "_LINE_SECONDS", 0.0)
    monkeypatch.setattr(spark_runs, "_LOOK_SECONDS", 0.0)
    query = Query(3)
    assert spark_runs.run_queries({"orders": cast("StreamingQuery", query)}, Stop()) == {
        "orders": 10
    }
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("10 rows written · ") for line in lines)
    assert query.stopped


def test_nothing_is_told_of_a_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    spark_runs.run_queries({"orders": cast("StreamingQuery", Query(1))}, Stop())
    assert capsys.readouterr().err == ""


def test_a_request_to_stop_ends_the_watching_and_the_query() -> None:
    query = Query(3)
    with pytest.raises(StopRequested):
        spark_runs.run_queries({"orders": cast("StreamingQuery", query)}, Stop(requested=True))
    assert query.stopped
