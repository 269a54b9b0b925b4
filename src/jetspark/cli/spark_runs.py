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
from rich.text import Text

from jetspark.cli import console
from jetspark.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from jetspark.cli.signals import Stop
    from jetspark.spark.ingest import Progress as QueryProgress

_LOOK_SECONDS = 0.2
_LINE_SECONDS = 60.0


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


def run_queries(queries: Mapping[str, StreamingQuery], stop: Stop) -> dict[str, int]:
    """Watch queries to their ends; the rows that each has written.

    The figures are live on a terminal, and elsewhere, in a pod's log for example, a line a minute.
    When one fails, or on leaving early (a signal), all are stopped; what they had not finished
    they do next time. Raises PipelineError with the reason, StopRequested.
    """
    from jetspark.spark.failures import explain
    from jetspark.spark.ingest import Progress as QueryProgress

    done = {name: QueryProgress() for name in queries}
    failure = None
    try:
        with _display() as display:
            lines = {name: display.add_task("reading", total=None) for name in queries}
            began = time.monotonic()
            next_line = began + _LINE_SECONDS
            while failure is None and any(query.isActive for query in queries.values()):
                stop.check()
                for name, query in queries.items():
                    done[name].update(query)
                    label = f"{name}: " if len(queries) > 1 else ""
                    display.update(lines[name], description=label + _figures(done[name], began))
                    failure = failure or query.exception()
                if display.disable and time.monotonic() >= next_line:
                    next_line += _LINE_SECONDS
                    for task in display.tasks:
                        console.err.print(Text(task.description), soft_wrap=True)
                time.sleep(_LOOK_SECONDS)
    finally:
        for query in queries.values():
            query.stop()
    stop.check()
    for name, query in queries.items():
        failure = failure or query.exception()
        done[name].update(query)
    if failure is not None:
        raise explain(failure)
    return {name: progress.rows for name, progress in done.items()}


def _figures(done: QueryProgress, began: float) -> str:
    rate = done.rows / max(time.monotonic() - began, 0.001)
    lag = "?" if done.lag is None else f"{done.lag:,}"
    return f"{done.rows:,} rows written · {rate:,.0f} messages/s · lag {lag}"


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
