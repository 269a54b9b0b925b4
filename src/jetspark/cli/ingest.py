"""`jetspark ingest`: a stream of the user's own server becomes a Parquet table."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from jetspark.cli import console
from jetspark.cli.signals import StopRequested, stop_on_signals
from jetspark.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from jetspark.spark.ingest import Ingest
    from jetspark.spark.ingest import Progress as IngestProgress

DEFAULT_SERVER = "nats://127.0.0.1:4222"
DEFAULT_OFFSETS_PER_TRIGGER = 500_000
_LOOK_SECONDS = 0.2
_REPEATED = Parameter(negative="")


def ingest(
    stream: str,
    /,
    *,
    to: str,
    server: str = DEFAULT_SERVER,
    subjects: str | None = None,
    start: str = "earliest",
    json: str | None = None,
    partition_by: Annotated[list[str] | None, _REPEATED] = None,
    follow: Annotated[bool, Parameter(name=("--follow",), negative="--available-now")] = False,
    interval: float = 5.0,
    checkpoint: str | None = None,
    max_offsets_per_trigger: int = DEFAULT_OFFSETS_PER_TRIGGER,
    option: Annotated[list[str] | None, _REPEATED] = None,
    master: str = "local[*]",
    conf: Annotated[list[str] | None, _REPEATED] = None,
) -> None:
    """Turn a stream into a Parquet table, and go on from there the next time.

    Every message becomes one row, exactly once, however often the command is stopped or killed
    and run again. Read the table with Spark.

    Args:
        stream: Name of the stream.
        to: Folder or URI of the table.
        server: URL of the server, several with commas; user and password may stand in it.
        subjects: Only messages under these subjects, several with commas.
        start: Where the first run begins: earliest, latest or a sequence. Later runs go on.
        json: Schema of JSON payloads, as "carrier STRING, delay DOUBLE": fields become columns.
        partition_by: Column to partition by, or name=expression in Spark SQL, such as
            "day=date(timestamp)"; may be given again.
        follow: Go on until Ctrl-C; --available-now, the default, ends at what is there now.
        interval: Seconds between two batches with --follow.
        checkpoint: Where the progress is kept; the folder _checkpoint in the table by default.
        max_offsets_per_trigger: Sequences in one batch at most.
        option: Further option of the source, as name=value (user=…, tlsCaFile=…).
        master: Spark's master.
        conf: Setting of Spark, as name=value; may be given again.
    """
    source = {
        "servers": server,
        "stream": stream,
        "startingOffsets": start,
        "maxOffsetsPerTrigger": str(max_offsets_per_trigger),
        "minPartitions": str(os.cpu_count() or 1),
    }
    if subjects is not None:
        source["subjects"] = subjects
    source |= _pairs("--option", option)
    settings = _pairs("--conf", conf)

    from jetspark.spark.ingest import Ingest

    job = Ingest(
        options=source,
        to=to,
        partition_by=partition_by or [],
        json_schema=json,
        checkpoint=checkpoint,
        follow=follow,
        interval=interval,
    )
    check_source(source)
    try:
        with stop_on_signals():
            rows = run(job, master=master, settings=settings)
    except StopRequested:
        console.say("Stopped; the same command goes on from here.")
    else:
        console.say(f"{rows:,} rows written to {to}." if rows else f"Nothing new for {to}.")


def check_source(source: dict[str, str]) -> None:
    """Ask the server before Spark is started: what is wrong is said at once."""
    from jetspark.spark.options import parse_options
    from jetspark.spark.reading import stream_facts

    stream_facts(parse_options(source).for_streaming())


def run(job: Ingest, *, master: str, settings: dict[str, str]) -> int:
    """Run to the end with live progress; rows written. Spark is gone when this returns."""
    from jetspark.spark.failures import explain
    from jetspark.spark.ingest import Progress as IngestProgress
    from jetspark.spark.session import close_session, local_session

    log = Path(tempfile.mkdtemp(prefix="jetspark-spark-")) / "spark.log"
    done = IngestProgress()
    with _display() as display:
        task = display.add_task("starting Spark …", total=None)
        spark = local_session(
            f"jetspark ingest {job.to}", master=master, log_file=log, conf=settings
        )
        try:
            query = job.start(spark)
            try:
                _watch(query, done, lambda text: display.update(task, description=text))
            finally:
                query.stop()
                done.update(query)
            if (failure := query.exception()) is not None:
                raise explain(failure)
        finally:
            display.update(task, description=f"{_rows(done)} · stopping Spark …")
            close_session(spark)
    shutil.rmtree(log.parent, ignore_errors=True)
    return done.rows


def _rows(done: IngestProgress) -> str:
    return f"{done.rows:,} rows written"


def _watch(query: StreamingQuery, done: IngestProgress, show: Callable[[str], None]) -> None:
    began = time.monotonic()
    while query.isActive:
        done.update(query)
        average = done.rows / max(time.monotonic() - began, 0.001)
        lag = "?" if done.lag is None else f"{done.lag:,}"
        show(f"{_rows(done)} · {average:,.0f} messages/s · lag {lag}")
        time.sleep(_LOOK_SECONDS)


def _display() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console.err,
    )


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {text!r}: write name=value.")
        pairs[name.strip()] = value
    return pairs
