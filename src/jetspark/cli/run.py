"""`jetspark run`: runs a pipeline from a file."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from jetspark.cli import console
from jetspark.cli.console import JsonOutputOption, Outcome, QuietOption
from jetspark.cli.signals import StopRequested, signals_held, stop_on_signals
from jetspark.cli.spark_runs import Watch, quiet_spark, spark_settings

_REPEATED = Parameter(negative="")
_NOT_CHECKED = (
    "Not checked: the rows themselves, and whether folders of other machines are writable."
)


def run(
    file: Path,
    /,
    *,
    follow: Annotated[bool | None, Parameter(negative="--available-now")] = None,
    check: Annotated[bool, Parameter(negative=())] = False,
    adopt: Annotated[bool, Parameter(negative=())] = False,
    master: str = "local[*]",
    conf: Annotated[list[str] | None, _REPEATED] = None,
    quiet: QuietOption = False,
    json_output: JsonOutputOption = False,
) -> int | None:
    """Run a pipeline: streams and tables in, Spark SQL, tables, streams and buckets out.

    The file is TOML; docs/guide-pipelines.md has all its keys. Stop it with Ctrl-C and run it
    again: it continues where it was.

    Args:
        file: The pipeline file.
        follow: Run until Ctrl-C or SIGTERM, which then is a success; or --available-now: end with
            the messages that are there now. Default: as in the file.
        check: Only check: read the file, ask the servers, let Spark analyse schemas and SQL; print
            what a run would change on the servers. Starts Spark, but no query.
        adopt: Add rows to tables that this pipeline has not written.
        master: Spark's master.
        conf: Setting of Spark, as name=value, in addition to the file's; may be given again.
        quiet: Print errors only.
        json_output: Print the result as one JSON document.
    """
    from dataclasses import replace

    with signals_held():
        from jetspark.spark.checkpoints import locked
        from jetspark.spark.pipeline import (
            check_queries,
            check_servers,
            check_tables,
            check_writers,
            checkpoints,
            start,
        )
        from jetspark.spark.pipeline_file import read_pipeline

    outcome = Outcome(quiet, json_output)
    pipeline = read_pipeline(file)
    if follow is not None:
        pipeline = replace(pipeline, follow=follow)
    given = spark_settings(master, conf)
    settings = {**pipeline.spark, **given}

    def told(setting: str) -> str:
        if setting in given:
            return f"--conf {setting}"
        return pipeline.places.told(("spark", setting), f"[spark] {setting}")

    servers = check_servers(pipeline)
    check_tables(pipeline, adopt=adopt)
    check_writers(pipeline)
    watch = Watch(outcome, counted="read")
    began = time.monotonic()
    stopped = None
    try:
        with (
            stop_on_signals() as stop,
            watch.losses.gathered(),
            quiet_spark(
                f"jetspark {pipeline.name}",
                master,
                settings,
                messages=None if pipeline.follow else servers.messages,
                quiet=quiet,
                look_only=check,
                told=told,
            ) as spark,
        ):
            if check:
                check_queries(pipeline, spark)
            else:
                with ExitStack() as locks:
                    for checkpoint in checkpoints(pipeline):
                        locks.enter_context(locked(spark, checkpoint))
                    queries = start(pipeline, spark, adopt=adopt)
                    if pipeline.follow:
                        outcome.note(f"Following {file}; Ctrl-C or SIGTERM ends it.")
                    watch.run(queries, stop)
    except StopRequested as stop_requested:
        stopped = stop_requested
    if check and stopped is None:
        sentences = [
            f"{file} is valid: {', '.join(pipeline.sources)} → {', '.join(pipeline.sinks)}.",
            *(f"A run would {one}." for one in servers.missing),
            _NOT_CHECKED,
        ]
        names = {"sources": [*pipeline.sources], "sinks": [*pipeline.sinks]}
        outcome.tell(*sentences, file=str(file), **names, would=servers.missing)
        return None
    if stopped is not None and check:
        sentences = ["Stopped before everything was checked; nothing was changed."]
    elif stopped is not None:
        sentences = ["Stopped; the same command goes on from here."]
    else:
        sentences = [
            f"{name}: {console.counted(count, 'row')} read." if count else f"{name}: nothing new."
            for name, count in watch.rows.items()
        ]
    outcome.tell(
        *sentences,
        file=str(file),
        rows=watch.rows,
        lag=watch.lag,
        losses=watch.losses.sentences,
        stopped_by=stopped and stopped.name,
        seconds=round(time.monotonic() - began, 3),
    )
    meant = pipeline.follow and not check  # the way in which what follows ends
    return stopped.exit_code if stopped is not None and not meant else None
