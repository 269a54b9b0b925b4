"""Queries that start on a machine that is too busy for the time that Spark gives; warming up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests.support.lake import Lake

from jetspark.errors import PipelineError
from jetspark.spark.data_source import JetStreamDataSource
from jetspark.spark.queries.start import start_query
from jetspark.spark.session.warm_up_job import warm_up
from jetspark.spark.versions import register

# Ends at once where a busy machine is late: Spark waits its ten seconds either way.
_PYTHON = """#!/bin/sh
case "$*" in
*python_streaming_source_runner*) mkdir "$0.late" 2>/dev/null && exit 1 ;;
esac
exec {python} "$@"
"""


@pytest.fixture
def late_once(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Spark's Python does not come in time the first time that a query asks for offsets."""
    context = spark.sparkContext
    before = context.pythonExec
    python = tmp_path / "python"
    python.write_text(_PYTHON.replace("{python}", before))
    python.chmod(0o755)
    context.pythonExec = str(python)
    yield tmp_path / "python.late"
    context.pythonExec = before
    register(spark, JetStreamDataSource)


@pytest.mark.full
def test_a_query_whose_python_starts_too_late_is_started_again(
    lake: Lake, late_once: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's limit of ten seconds is fixed, so this takes them."""
    lake.fill(("a", b"one"), ("a", b"two"))
    lake.ingest("table")
    assert late_once.exists()
    assert len(lake.rows("table")) == 2
    assert "The query is started again" in caplog.text


def test_warming_up_is_a_job_that_ends_well(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    warm_up(spark)
    (thread,) = (one for one in threading.enumerate() if one.name == "warm-up")
    thread.join(120)
    assert not thread.is_alive()
    jvm_context: Any = spark.sparkContext._jsc
    jvm_context.sc().listenerBus().waitUntilEmpty(60_000)  # only then is the job's end known
    jobs = [tracker.getJobInfo(job) for job in set(tracker.getJobIdsForGroup()) - before]
    assert [job.status for job in jobs if job is not None] == ["SUCCEEDED"]


class Query:
    """A query whose Python does not start."""

    isActive = False

    def __init__(self, failure: str | None) -> None:
        self._failure = failure

    def exception(self) -> Exception | None:
        return None if self._failure is None else RuntimeError(self._failure)

    def awaitTermination(self) -> None: ...


LATE = "Python worker failed to connect back\n\tat org.apache.spark.Worker.run(Worker.scala:1)"


def test_a_program_starts_a_query_again_or_gets_a_sentence() -> None:
    queries: list[Any] = [Query(LATE), Query(LATE), Query(None), Query(None)]
    assert start_query(lambda: queries.pop(0)) is not None
    assert len(queries) == 1
    with pytest.raises(PipelineError, match="did not start in the ten seconds") as failed:
        start_query(lambda: cast("Any", Query(LATE)))
    assert "\n" not in str(failed.value)
    other: Any = Query("[TABLE_NOT_FOUND] no such table")
    assert start_query(lambda: other) is other
