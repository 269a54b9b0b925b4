"""`jetspark ingest`: a stream of the user's own server becomes a Parquet table."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from jetspark.cli import console
from jetspark.cli.signals import StopRequested, stop_on_signals
from jetspark.cli.spark_runs import quiet_spark, run_queries
from jetspark.cli.where import pairs, spark_where

DEFAULT_OFFSETS_PER_TRIGGER = 500_000
_REPEATED = Parameter(negative="")


def ingest(
    stream: str,
    /,
    *,
    to: str,
    server: str | None = None,
    context: str | None = None,
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
        server: URL of the server, several with commas; user and password may stand in it. Without
            it and --context: what the NATS_… variables say, or nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
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
    source = spark_where(server, context) | {
        "stream": stream,
        "startingOffsets": start,
        "maxOffsetsPerTrigger": str(max_offsets_per_trigger),
        "minPartitions": str(os.cpu_count() or 1),
    }
    if subjects is not None:
        source["subjects"] = subjects
    source |= pairs("--option", option)
    settings = pairs("--conf", conf)

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
        with (
            stop_on_signals() as stop,
            quiet_spark(f"jetspark ingest {to}", master, settings) as spark,
        ):
            rows = run_queries({to: job.start(spark)}, stop)[to]
    except StopRequested:
        console.say("Stopped; the same command goes on from here.")
    else:
        console.say(f"{rows:,} rows written to {to}." if rows else f"Nothing new for {to}.")


def check_source(source: dict[str, str]) -> None:
    """Ask the server before Spark is started: what is wrong is said at once."""
    from jetspark.spark.options import parse_options
    from jetspark.spark.reading import streams_facts

    streams_facts(parse_options(source).for_streaming())
