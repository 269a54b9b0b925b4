"""`jetspark run`: runs a pipeline from a file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from jetspark.cli.console import Outcome, counted
from jetspark.cli.options import JsonOutputOption, Switch
from jetspark.cli.signals import signals_held
from jetspark.cli.spark_runs import LOCAL, SparkFlags, Watch, quiet_spark

_NOT_CHECKED = (
    "Not checked: the rows themselves, and whether folders of other machines are writable."
)


def run(
    file: Path,
    /,
    *,
    follow: Annotated[bool | None, Parameter(negative="--available-now")] = None,
    check: Switch = False,
    adopt: Switch = False,
    flags: SparkFlags = LOCAL,
    json_output: JsonOutputOption = False,
) -> int | None:
    """Run a pipeline: streams and tables in, Spark SQL, tables, streams and buckets out.

    The file is TOML; docs/guide-pipelines.md has all its keys. Stop it with Ctrl-C and run it
    again: it continues where it was.

    Args:
        file: The pipeline file.
        follow: Run until Ctrl-C or SIGTERM, then exit with 0; or --available-now: end with the
            messages that are there now. Default: as in the file.
        check: Only check: read the file, ask the servers, let Spark analyse schemas and SQL; print
            what a run would change on the servers. Starts Spark, but no query.
        adopt: Add rows to tables that this pipeline has not written.
    """
    from dataclasses import replace

    with signals_held():
        from jetspark.spark.pipeline import (
            check_queries,
            check_servers,
            check_tables,
            check_writers,
            checkpoints,
            start,
        )
        from jetspark.spark.pipeline_file import read_pipeline
        from jetspark.spark.queries import locked

    outcome = Outcome(flags.quiet, json_output)
    pipeline = read_pipeline(file)
    if follow is not None:
        pipeline = replace(pipeline, follow=follow)
    given = flags.settings()
    settings = {**pipeline.spark, **given}

    def place_of(setting: str) -> str:
        if setting in given:
            return f"--conf {setting}"
        return pipeline.places.located(("spark", setting), f"[spark] {setting}")

    servers = check_servers(pipeline)
    check_tables(pipeline, adopt=adopt)
    check_writers(pipeline)
    watch = Watch(outcome, counted="read")
    with (
        watch.until_stopped() as stop,
        quiet_spark(
            f"jetspark {pipeline.name}",
            flags,
            settings,
            messages=None if pipeline.follow else servers.messages,
            look_only=check,
            place_of=place_of,
        ) as spark,
        ExitStack() as locks,
    ):
        if check:
            check_queries(pipeline, spark)
        else:
            for checkpoint in checkpoints(pipeline):
                locks.enter_context(locked(spark, checkpoint))
            queries = start(pipeline, spark, adopt=adopt)
            if pipeline.follow:
                outcome.note(f"Following {file}; Ctrl-C or SIGTERM ends it.")
            watch.run(queries, stop)
    stopped = watch.stopped
    if check and stopped is None:
        outcome.report(
            f"{file} is valid: {', '.join(pipeline.sources)} → {', '.join(pipeline.sinks)}.",
            *(f"A run would {one}." for one in servers.missing),
            _NOT_CHECKED,
            file=str(file),
            sources=[*pipeline.sources],
            sinks=[*pipeline.sinks],
            would=servers.missing,
        )
        return None
    if stopped is None:
        sentences = [
            f"{name}: {counted(count, 'row')} read." if count else f"{name}: nothing new."
            for name, count in watch.rows.items()
        ]
    elif check:
        sentences = ["Stopped before everything was checked; nothing was changed."]
    else:
        sentences = ["Stopped; the same command goes on from here."]
    watch.report(*sentences, file=str(file), rows=watch.rows)
    is_normal_end = pipeline.follow and not check
    return stopped.exit_code if stopped is not None and not is_normal_end else None
