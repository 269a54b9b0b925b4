"""Queries that start on a machine that is too busy for the time that Spark gives; warming up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import StreamingQueryException

from jetspark.errors import PipelineError
from jetspark.spark.failures import explain
from jetspark.spark.ingest import Ingest
from jetspark.spark.queries import start_query
from jetspark.spark.session import warm_up
from jetspark.spark.source import JetStreamDataSource
from jetspark.spark.versions import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.streams import Admin

    from jetspark.server import NatsServer

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
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    late_once: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark's limit of ten seconds is fixed, so this takes them."""
    name = unique("LATE")
    admin.create(name, name)
    admin.fill([(name, b"one"), (name, b"two")])
    options = {"servers": shared_server.url, "stream": name, "startingOffsets": "earliest"}
    query = Ingest(options=options, to=str(tmp_path / "table")).start(spark)
    assert query.awaitTermination(300)
    assert late_once.exists()
    assert spark.read.format("jetspark-delta").load(str(tmp_path / "table")).count() == 2
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


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (
            "AuthorizationError: nats://h:4222 refused these credentials.",
            "Correct that, here or in",
        ),
        ("TLSError: The certificate has expired.", "Correct that, here or in"),
        ("NoServersError: No server answers.", "The options readTimeout and publishTimeout say"),
    ],
)
def test_a_refused_login_is_to_be_corrected_not_to_be_tried_again(error: str, advice: str) -> None:
    ended = StreamingQueryException(f"[STREAM_FAILED] Query terminated.\njetspark.errors.{error}\n")
    assert advice in str(explain(ended))
    assert error.partition(": ")[2] in str(explain(ended))


def test_what_to_do_when_it_never_starts() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker failed "
        "to connect back. SQLSTATE: XXKST"
    )
    assert str(explain(RuntimeError(text))) == (
        "A Python process of Spark did not start in the ten seconds that Spark gives it: the "
        "machine is too busy, or PYSPARK_PYTHON names a Python without pyspark. See to that, and "
        "run the same again, which goes on where it was."
    )
