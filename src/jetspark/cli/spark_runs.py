"""Spark for commands: started quietly, watched with one line of figures, gone at the end."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from jetspark.cli import console
from jetspark.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jetspark.spark.ingest import Ingest

_LOOK_SECONDS = 0.2


@contextmanager
def quiet_spark(
    name: str, master: str, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session whose log goes to a file, which is kept only when Spark fails."""
    from jetspark.spark.session import close_session, find_java, local_session

    find_java()
    folder = Path(tempfile.mkdtemp(prefix="jetspark-spark-"))
    log = folder / "spark.log"
    keep = False
    try:
        with spinner("starting Spark …"):
            spark = local_session(
                name, master=master, log_file=log, conf=_temporary(folder) | dict(settings or {})
            )
        try:
            yield spark
        finally:
            with spinner("stopping Spark …"):
                close_session(spark)
    except PipelineError as error:
        keep = True
        error.add_note(f"Spark's log: {log}")
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _temporary(folder: Path) -> dict[str, str]:
    """Settings that keep what Spark and its libraries unpack in one folder."""
    return {
        "spark.local.dir": str(folder),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
    }


def run_ingest(spark: SparkSession, job: Ingest) -> int:
    """Run to the end with live figures; rows written. Raises PipelineError when the query fails.

    Leaving early (a signal) stops the query; what it had not finished it does next time.
    """
    from jetspark.spark.failures import explain
    from jetspark.spark.ingest import Progress as IngestProgress

    done = IngestProgress()
    query = job.start(spark)
    try:
        with _display() as display:
            task = display.add_task("reading", total=None)
            began = time.monotonic()
            while query.isActive:
                done.update(query)
                rate = done.rows / max(time.monotonic() - began, 0.001)
                lag = "?" if done.lag is None else f"{done.lag:,}"
                display.update(
                    task,
                    description=f"{done.rows:,} rows written · {rate:,.0f} messages/s · lag {lag}",
                )
                time.sleep(_LOOK_SECONDS)
    finally:
        query.stop()
    if (failure := query.exception()) is not None:
        raise explain(failure)
    done.update(query)
    return done.rows


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Shows that something slow is under way."""
    with _display() as display:
        display.add_task(what, total=None)
        yield


def _display() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console.err,
        transient=True,
        disable=not console.err.is_terminal,
    )
