"""`jetspark run`: a pipeline described in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from jetspark.cli import console
from jetspark.cli.signals import StopRequested, stop_on_signals
from jetspark.cli.spark_runs import quiet_spark, run_queries
from jetspark.cli.where import pairs

_REPEATED = Parameter(negative="")


def run(
    file: Path,
    /,
    *,
    follow: Annotated[bool | None, Parameter(negative="--available-now")] = None,
    check: Annotated[bool, Parameter(negative=())] = False,
    master: str = "local[*]",
    conf: Annotated[list[str] | None, _REPEATED] = None,
) -> None:
    """Run a pipeline: streams and tables in, Spark SQL, tables, streams and buckets out.

    The file is TOML; docs/guide-pipelines.md has all its keys. Stop it with Ctrl-C and run it
    again: it goes on where it was.

    Args:
        file: The pipeline file.
        follow: Go on until Ctrl-C, or --available-now: end at what is there now. As the file says
            by default.
        check: Only read the file and ask the servers; run nothing.
        master: Spark's master.
        conf: Setting of Spark, as name=value, on top of the file's; may be given again.
    """
    from dataclasses import replace

    from jetspark.spark.pipeline import check_servers, start
    from jetspark.spark.pipeline_file import read_pipeline

    pipeline = read_pipeline(file)
    if follow is not None:
        pipeline = replace(pipeline, follow=follow)
    settings = {**pipeline.spark, **pairs("--conf", conf)}
    check_servers(pipeline)
    if check:
        console.say(f"{file} is fine: {', '.join(pipeline.sources)} → {', '.join(pipeline.sinks)}.")
        return
    try:
        with (
            stop_on_signals() as stop,
            quiet_spark(f"jetspark {pipeline.name}", master, settings) as spark,
        ):
            rows = run_queries(start(pipeline, spark), stop)
    except StopRequested:
        console.say("Stopped; the same command goes on from here.")
    else:
        for name, count in rows.items():
            console.say(f"{name}: {count:,} rows read." if count else f"{name}: nothing new.")
