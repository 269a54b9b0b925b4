"""`jetspark run`: runs a pipeline from a file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from jetspark.cli.console import Outcome
from jetspark.cli.flags import JsonOption, MetricsOption, Switch
from jetspark.cli.formatting import describe_left_out, format_count
from jetspark.cli.progress import spinner
from jetspark.cli.query_watch import Watch
from jetspark.cli.signals import signals_held
from jetspark.cli.spark_flags import LOCAL, SparkFlags
from jetspark.cli.spark_session import quiet_spark

if TYPE_CHECKING:
    from jetspark.spark.pipelines.pipeline_file import PipelineFile
    from jetspark.spark.pipelines.pipeline_sinks import PipelineSink
    from jetspark.spark.queries.progress import QueryProgress

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
    lineage: Switch = False,
    metrics: MetricsOption = None,
    flags: SparkFlags = LOCAL,
    json: JsonOption = False,
) -> int | None:
    """Run a pipeline: streams and tables in, Spark SQL, tables, streams and buckets out.

    The file is TOML; docs/guide-pipelines.md has all its keys. After Ctrl-C, the same command
    continues where it was.

    Args:
        file: The pipeline file.
        follow: Run until Ctrl-C or SIGTERM, then exit with 0; or --available-now: end with the
            messages that are stored now. Default: as in the file.
        check: Only check: read the file, ask the servers, let Spark analyse schemas and SQL; print
            what a run would change on the servers. Starts Spark, but no query.
        adopt: Add rows even to a table that does not match the checkpoint, or was not written here.
        lineage: Send OpenLineage events, to the target in OPENLINEAGE_URL, or as the file says
            that OPENLINEAGE_CONFIG names.
    """
    with signals_held(), spinner("loading Spark …", quiet=flags.quiet):
        from jetspark.spark.pipelines import pipeline as pipelines
        from jetspark.spark.pipelines.pipeline_file import read_pipeline
        from jetspark.spark.queries.checkpoint_lock import locked

    outcome = Outcome(flags.quiet, json)
    pipeline = replace(read_pipeline(file), adopt=adopt)
    if follow is not None:
        pipeline = replace(pipeline, follow=follow)
    flag_settings = flags.settings()
    settings = {**pipeline.spark, **flag_settings}

    def locate_setting(setting: str) -> str:
        """Name where the user gave a setting of Spark: --conf, or a line of the pipeline's file."""
        if setting in flag_settings:
            return f"--conf {setting}"
        return pipeline.key_lines.located(("spark", setting), f"[spark] {setting}")

    pipelines.check_formats(pipeline, settings)
    servers = pipelines.check_servers(pipeline)
    pipelines.check_tables(pipeline)
    pipelines.check_writers(pipeline)
    # The sinks that write each row that they read; others have SQL, which may write fewer or more.
    written = {name for name, sink in pipeline.sinks.items() if pipeline.stream_of(sink)}
    watch = Watch(outcome, read=pipeline.sinks.keys() - written, metrics=metrics)
    _configure_watch(watch, pipeline, lineage=lineage)
    with (
        watch.until_stopped() as stop,
        quiet_spark(
            f"jetspark {pipeline.name}",
            flags,
            settings,
            messages=None if pipeline.follow else servers.messages,
            keep_nothing=check,
            name_setting=locate_setting,
        ) as spark,
        ExitStack() as locks,
    ):
        for name in () if check else pipeline.sinks:
            # No other run may use the same checkpoints meanwhile.
            locks.enter_context(locked(spark, pipeline.checkpoint_of(name)))
        flows = pipelines.check_queries(pipeline, spark)
        if not check:
            queries = pipelines.start_pipeline(pipeline, spark, flows)
            if pipeline.follow:
                outcome.note(f"Following {file}; Ctrl-C or SIGTERM ends it.")
            watch.run(queries, stop, restart=partial(pipelines.start_again, pipeline, spark))
    _report(pipeline, watch, outcome, file, servers.missing, written, check=check)
    if watch.stopped is None or (pipeline.follow and not check):  # a signal is the normal end
        return None
    return watch.stopped.exit_code


def _configure_watch(watch: Watch, pipeline: PipelineFile, *, lineage: bool) -> None:
    """Tell a watch which servers to check for lost links; with --lineage, how to send events.

    The servers are those of all the pipeline's sources and sinks.
    """
    tables: list[Any] = [*pipeline.sources.values(), *pipeline.sinks.values()]
    connections = (getattr(table.parsed, "connection", None) for table in tables)
    watch.connections = set(filter(None, connections))
    watch.sinks = {name: sink.parsed for name, sink in pipeline.sinks.items()}
    if lineage:
        from jetspark.cli.lineage import lineage_of

        streams = [source.parsed for source in pipeline.sources.values()]
        watch.lineage = lineage_of(pipeline.name, streams, watch.sinks, pipeline.follow)


def _report(
    pipeline: PipelineFile,
    watch: Watch,
    outcome: Outcome,
    file: Path,
    changes: Sequence[str],
    written: set[str],
    *,
    check: bool,
) -> None:
    """Print what a run of a pipeline has done, or what --check has found.

    `changes`: what a run would first change on the servers; `written`: the sinks that write each
    row that they read, whose rows are called written; those of others are called read.
    """
    stopped = watch.stopped
    if check and stopped is None:
        outcome.report(
            f"{file} is valid: {', '.join(pipeline.sources)} → {', '.join(pipeline.sinks)}.",
            *(f"A run would {change}." for change in changes),
            _NOT_CHECKED,
            file=str(file),
            sources=[*pipeline.sources],
            sinks=[*pipeline.sinks],
            would=changes,
        )
        return
    sentences = [
        _describe_progress(name, pipeline.sinks[name], progress, is_written=name in written)
        for name, progress in watch.progress.items()
        if stopped is None or progress.rows or progress.quarantined
    ]
    if check:
        sentences = ["Stopped before everything was checked; nothing was changed."]
    elif stopped is not None:
        sentences.append("Stopped; the same command goes on from here.")
    quarantined = {name: progress.quarantined for name, progress in watch.progress.items()}
    watch.report(*sentences, file=str(file), rows=watch.rows, quarantined=quarantined)


def _describe_progress(
    name: str, sink: PipelineSink, progress: QueryProgress, *, is_written: bool
) -> str:
    """Describe what the query of a sink has done: its rows, quarantined and left out messages.

    `is_written`: each row that the query reads becomes a row of the sink, so its rows are called
    written, else read.
    """
    sentences = []
    if progress.rows:
        verb = "written" if is_written else "read"
        sentences.append(f"{format_count(progress.rows, 'row')} {verb}.")
    if progress.quarantined and sink.table is not None:
        count = format_count(progress.quarantined, "message")
        sentences.append(f"{count} quarantined in {sink.table.quarantine}.")
    sentences = sentences or ["nothing new."]
    if progress.left_out:
        sentences.append(describe_left_out(progress.left_out))
    return f"{name}: {' '.join(sentences)}"
