"""`jetspark ingest`: turns a stream into a table."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from jetspark.cli import scopes
from jetspark.cli.console import Outcome, say
from jetspark.cli.flags import JsonOption, MetricsOption, Repeated, Switch
from jetspark.cli.formatting import describe_left_out, format_count
from jetspark.cli.progress import spinner
from jetspark.cli.query_watch import Watch
from jetspark.cli.scopes import BAD_RECORDS, PAYLOADS, READING, RUN, TABLE
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.cli.signals import signals_held
from jetspark.cli.spark_flags import LOCAL, SparkFlags
from jetspark.cli.spark_session import quiet_spark
from jetspark.cli.start_end import parse_end, parse_start
from jetspark.errors import ConfigError
from jetspark.options.scopes import PayloadScope, SourceScope, spark_text, spark_texts

if TYPE_CHECKING:
    from jetspark.spark.pipelines.ingest import Ingest

_BATCH_LIMITS = {"maxOffsetsPerTrigger": "2000000", "maxBytesPerTrigger": str(2**30)}
_BUCKET_BATCH_LIMITS = {"maxOffsetsPerTrigger": "500000"}
"""Fewer, since changes are compared with the table in memory."""
_INTERVAL_SECONDS = 5.0
_SAMPLE_MESSAGES = 10_000


@Parameter(name="*", group=READING)
@dataclass(frozen=True, kw_only=True)
class RangeFlags:
    """Range of STREAM to read."""

    bucket: Switch = False
    """STREAM is a Key-Value bucket, and the table has one row for each key: its current value. A
    change replaces the row, a deletion removes it. --keys then names the keys to read."""
    start: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Start of the first run: earliest (the default), latest, a sequence, a time such as
    2026-01-31T12:00:00Z, or how long ago, such as -90m or -2d. Later runs continue."""
    end: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """End of the run: before this sequence, or before the first message stored at or after this
    time, written as for --start. Without it, with the last message."""


@Parameter(name="*", group=TABLE)
@dataclass(frozen=True, kw_only=True)
class TargetFlags:
    """Table that the rows go to, and their columns."""

    to: str | None = None
    """Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog. A template
    makes many tables: lake/{region} one for each value of a column, {subject[1]} for each token of
    the subject (from 0), {header[Site]} for each value of a header."""
    format: str | None = None
    """delta or iceberg. An existing table keeps its format; a new table is delta by default."""
    json_schema: Annotated[str | None, Parameter(group=PAYLOADS)] = None
    """Schema of JSON payloads, as "carrier STRING, delay DOUBLE": fields become columns."""
    derive: Repeated = None
    """Further column, as site=subject[1], site=header[Site], hour=hour(timestamp); may be given
    again."""
    rescued_data_column: Annotated[str | None, Parameter(group=BAD_RECORDS)] = None
    """Name of a column with the fields that --json-schema lacks, as JSON text."""
    storage: Repeated = None
    """Option of the storage or the catalog, as name=value (AWS_REGION=…); may be given again."""

    def arguments(self) -> dict[str, Any]:
        """These flags as keyword arguments of `Ingest`, which fills the table. Raises ConfigError.

        `to` is not among them.
        """
        return {
            "json_schema": self.json_schema,
            "format": self.format,
            "derive": self.derive or [],
            "rescued_data_column": self.rescued_data_column,
            "storage": scopes.parse_storage(self.storage),
        }


@Parameter(name="*", group=RUN)
@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """When the run ends, and what it keeps."""

    follow: Annotated[bool, Parameter(name=("--follow",), negative="--available-now")] = False
    """Run until Ctrl-C or SIGTERM, then exit with 0; --available-now, the default, ends with the
    messages that are stored now."""
    interval: Annotated[float | None, Parameter(allow_leading_hyphen=True)] = None
    """Seconds between two batches with --follow; 5 by default."""
    checkpoint: str | None = None
    """Folder for the progress; by default _checkpoint in the table."""
    history: Annotated[bool, Parameter(negative=(), group=TABLE)] = False
    """Keep all rows of --keys; valid_from and valid_to say when each row was valid."""
    infer: Switch = False
    """Print a schema for --json-schema that fits a sample of the messages, and write nothing; if
    --to is a template, one for each table. --to may be left out."""
    infer_messages: int | None = None
    """Number of messages in the sample, from all parts of the stream; 10,000 by default."""
    lineage: Switch = False
    """Send OpenLineage events, to the target in OPENLINEAGE_URL, or as the file says that
    OPENLINEAGE_CONFIG names."""


_ALL_MESSAGES, NO_TARGET, _DEFAULT_RUN = RangeFlags(), TargetFlags(), RunFlags()


def ingest(
    stream: str,
    /,
    *,
    messages: RangeFlags = _ALL_MESSAGES,
    source: scopes.SourceFlags = scopes.NO_SOURCE,
    payloads: scopes.PayloadFlags = scopes.NO_PAYLOADS,
    target: TargetFlags = NO_TARGET,
    table: scopes.TableFlags = scopes.NO_TABLE,
    run: RunFlags = _DEFAULT_RUN,
    metrics: Annotated[MetricsOption, Parameter(group=RUN)] = None,
    spark: Annotated[SparkFlags, Parameter(group=RUN)] = LOCAL,
    connection: Annotated[ServerFlags, Parameter(group=scopes.CONNECTION)] = DEFAULT_SERVER,
    login: scopes.ConnectionFlags = scopes.NO_CONNECTION,
    json: Annotated[JsonOption, Parameter(group=RUN)] = False,
) -> int | None:
    """Turn a stream into a table, and continue where the last run ended.

    Every message becomes exactly one row, however often the command is stopped or killed and run
    again. DuckDB, Polars, pandas and Spark can read the table, even while the command runs.

    Args:
        stream: Name of the stream.
    """
    outcome = Outcome(spark.quiet, json)
    _check_flags(messages, payloads, target, run)
    options = {
        "bucket" if messages.bucket else "stream": stream,
        **parse_start(messages.start or "earliest"),
        **({} if messages.end is None else parse_end(messages.end)),
        "minPartitions": str(os.cpu_count() or 1),  # a task for each core
        **batch_limits(source, bucket=messages.bucket),
        **scopes.connection_texts(connection, login),
        **spark_texts(source),
        **scopes.schema_texts(payloads),
    }
    # With a bucket, --keys are the keys to read: the table's key is always that of the bucket.
    if messages.bucket and table.keys:
        options["keys"] = spark_text(table.keys)
        table = replace(table, keys=())
    if payloads.decode == "debezium":
        from jetspark.spark.source.debezium_schema import add_event_schema

        options = dict(add_event_schema(options))
    if target.to is None or run.infer:  # only --infer needs no --to
        show_schemas(outcome, options, target.to, run.infer_messages or _SAMPLE_MESSAGES)
        return None
    settings = spark.settings()

    with signals_held(), spinner("loading Spark …", quiet=spark.quiet):
        from jetspark.spark.pipelines.ingest import Ingest

    job = Ingest(
        options=options,
        to=target.to,
        **target.arguments(),
        table_options=table,
        checkpoint=run.checkpoint,
        follow=run.follow,
        interval=_INTERVAL_SECONDS if run.interval is None else run.interval,
        history=run.history,
    )
    job.check()
    check_source(dict(job.reading), is_new=job.is_new)
    watch = Watch(outcome, metrics=metrics)
    watch.connections = [job.source.connection]
    watch.sinks = {job.to: job.table}
    if run.lineage:
        from jetspark.cli.lineage import lineage_of

        watch.lineage = lineage_of(f"ingest {job.to}", [job.source], watch.sinks, run.follow)
    job.check_preconditions()
    removed = 0
    # Spark is started if there is something to read. OpenLineage gets events of every run.
    if run.follow or run.lineage or not job.has_nothing_new():
        removed = _run_query(job, stream, watch, spark, settings)
    job.trim()
    _report(job, stream, watch, removed)
    if watch.stopped is None or run.follow:  # a signal is the normal end of --follow
        return None
    return watch.stopped.exit_code


def _check_flags(
    messages: RangeFlags, payloads: PayloadScope, target: TargetFlags, run: RunFlags
) -> None:
    """Raise ConfigError for flags of `jetspark ingest` that contradict each other."""
    if messages.end is not None and run.follow:
        raise ConfigError("--end is for a run that ends: leave it out, or --follow.")
    if messages.end is not None and messages.bucket:
        raise ConfigError(
            "--end is for streams: a bucket's table has the present values, and those of an "
            "earlier moment may be gone."
        )
    has_schema = target.json_schema is not None
    if run.infer and (has_schema or payloads.decode is not None):
        raise ConfigError(
            "--infer prints what --json-schema takes: give one of them, without --decode."
        )
    if has_schema and payloads.decode is not None:
        raise ConfigError("Give either --json-schema or --decode: both say what the payloads are.")
    if run.infer_messages is not None and (not run.infer or run.infer_messages < 1):
        raise ConfigError("--infer-messages goes with --infer, and is 1 or more.")
    if target.to is None and not run.infer:
        raise ConfigError("--to: name the table, such as lake/orders.")
    if run.interval is not None and not run.follow:
        raise ConfigError("--interval is for --follow: give that, too, or leave it out.")


def _run_query(
    job: Ingest, stream: str, watch: Watch, flags: SparkFlags, settings: Mapping[str, str]
) -> int:
    """Run Spark's query that turns the stream or bucket into the table, until its end or a signal.

    Returns how many rows were removed because the bucket no longer has their keys.
    """
    from jetspark.spark.queries.checkpoint_lock import locked

    removed = 0

    def remove_gone_keys() -> None:
        """Remove rows of keys that expired without a message, by comparing table and bucket."""
        nonlocal removed
        removed += job.remove_gone_keys()

    with (
        watch.until_stopped() as stop,
        quiet_spark(
            f"jetspark ingest {job.to}",
            flags,
            settings,
            messages=0,  # rows do not go through the JVM
        ) as spark,
        locked(spark, job.checkpoint_location),
    ):
        query = job.start(spark)
        if job.follow:
            watch.note(f"Following {stream} into {job.to}; Ctrl-C or SIGTERM ends it.")
        watch.run(
            {job.to: query},
            stop,
            meanwhile=remove_gone_keys if job.follow else None,
            # A query ends when its table gets columns for new fields; a new one goes on from there.
            restart=lambda ended: job.start(spark) if job.has_evolved(ended) else None,
        )
        if not job.follow:
            remove_gone_keys()
    return removed


def _report(job: Ingest, stream: str, watch: Watch, removed: int) -> None:
    """Print the result of a run, also of one that found nothing new and started no query.

    `removed`: rows of keys that the bucket no longer has.
    """
    from jetspark.spark.queries.progress import QueryProgress

    progress = watch.progress.get(job.to, QueryProgress())
    rows, quarantined, left_out = progress.rows, progress.quarantined, progress.left_out
    sentences = []
    # If all messages went into the quarantine, only that is said.
    if watch.stopped is not None and (rows or not quarantined):
        sentences.append(watch.stop_sentence)
    elif rows or not quarantined:
        merged = job.source.bucket is not None or bool(job.table_options.keys)
        sentences.append(describe_result(rows, job.to, merged=merged, removed=removed))
    if quarantined:
        quarantine = job.table_options.quarantine
        sentences.append(f"{format_count(quarantined, 'message')} quarantined in {quarantine}.")
    if left_out:
        sentences.append(describe_left_out(left_out))
    facts = {"rows": rows, "quarantined": quarantined, "left_out": left_out}
    if job.source.bucket is not None:  # keys that expired; other deletions are among the rows
        facts["removed"] = removed
    watch.report(*sentences, stream=stream, table=job.to, **facts)


def show_schemas(outcome: Outcome, source: dict[str, str], to: str | None, messages: int) -> None:
    """Infer a schema from a sample of messages and print it, as --json-schema takes it.

    A template of tables gets a schema for each table that the sample has rows for.
    `source`: the options of the source; `to`: the table, a template of tables, or None;
    `messages`: the size of the sample.
    """
    from jetspark.spark.source.infer_schema import infer_schemas

    schemas = infer_schemas(source, to, messages)
    if outcome.as_json:
        outcome.report(schemas=[asdict(sample) for sample in schemas])
        return
    if not schemas:
        outcome.note("There are no messages to look at.")
    for sample in schemas:
        if sample.table != to:  # one of the tables of a template
            say(f"# {sample.table or 'no table'}")
        outcome.note(f"{format_count(sample.messages, 'message')} looked at.")
        for remark in sample.remarks:
            outcome.note(remark)
        if sample.schema:
            say(shlex.quote(sample.schema))


def batch_limits(source: SourceScope, *, bucket: bool) -> Mapping[str, str]:
    """The options of the source that limit a micro-batch by default.

    There are none if the user has set a limit, or reads the first batch from a snapshot.
    """
    if source.max_offsets_per_trigger is not None:
        return {}
    if bucket:
        return _BUCKET_BATCH_LIMITS
    # A snapshot always has the whole stream, and only the first batch is read from it: with a limit
    # that batch would take few of its messages.
    return _BATCH_LIMITS if source.backfill == SourceScope.backfill else {}


def describe_result(rows: int, to: str, *, merged: bool, removed: int = 0) -> str:
    """The sentence about the result of a run that was not stopped.

    `merged`: the rows were changes, of a bucket or with keys; `removed`: rows of keys that the
    bucket no longer has.
    """
    if not rows:
        sentence = f"Nothing new for {to}."
    elif merged:
        sentence = f"{format_count(rows, 'change')} merged into {to}."
    else:
        sentence = f"{format_count(rows, 'row')} written to {to}."
    if removed:
        sentence += f" Removed {format_count(removed, 'row')} of keys that are gone."
    return sentence


def check_source(source: dict[str, str], *, is_new: bool) -> None:
    """Check the stream and the positions on the server, so that errors come before Spark starts.

    `is_new`: there is no checkpoint, so reading begins where the options say.
    """
    from jetspark.spark.source.options import parse_options
    from jetspark.spark.source.positions import check_start
    from jetspark.spark.source.source_streams import fetch_source_facts

    options = parse_options(source).for_streaming()
    fetch_source_facts(options)
    if is_new:
        check_start(options)
