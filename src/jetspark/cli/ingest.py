"""`jetspark ingest`: turns a stream into a table."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from jetspark.cli.console import Outcome, counted, describe_left_out, say
from jetspark.cli.options import (
    DEFAULT,
    NO_TABLE,
    OF_PAYLOADS,
    Connection,
    JsonOutputFlag,
    MetricsOption,
    Repeated,
    Switch,
    TableFlags,
    ending,
    named_options,
    options_as_flags,
    starting,
)
from jetspark.cli.signals import signals_held
from jetspark.cli.spark_runs import LOCAL, SparkFlags, Watch, quiet_spark
from jetspark.errors import ConfigError

_BATCH = {"maxOffsetsPerTrigger": "2000000", "maxBytesPerTrigger": str(2**30)}
"""The most in a batch by default."""
_BATCH_OF_BUCKET = {"maxOffsetsPerTrigger": "500000"}
"""Less, since changes are compared with the table in memory."""
_INTERVAL = 5.0
_SAMPLE = 10_000
_STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
# The flags of options.
_OF_SOURCE = {
    **dict.fromkeys(("stream", "streams", "streamPattern"), "STREAM"),
    "bucket": "STREAM and --bucket",
    "presentValues": "--bucket",
    "servers": "--server",
    "context": "--context",
    "subjects": "--subjects",
    **{option: f"--{name.replace('_', '-')}" for name, option in OF_PAYLOADS.items()},
    "maxOffsetsPerTrigger": "--max-offsets-per-trigger",
}
_OF_TABLE = {
    **dict.fromkeys(("path", "catalog", "table"), "--to"),
    "checkpointLocation": "--checkpoint",
    "partitionBy": "--partition-by",
    "mergeSchema": "--merge-schema",
    "evolveSchema": "--evolve",
    "adoptTable": "--adopt",
    "quarantineTable": "--quarantine",
    "onBadRecord": "--on-bad-record",
    "compactEvery": "--compact-every",
}
_FLAGS = _OF_SOURCE | _OF_TABLE | dict.fromkeys(_STARTS, "--start")
_FLAGS |= dict.fromkeys(_ENDS, "--end")
_FLAGS |= {"keys": "--key", "historyBy": "--history"}


def ingest(
    stream: str,
    /,
    *,
    table: TableFlags = NO_TABLE,
    connection: Connection = DEFAULT,
    subjects: str | None = None,
    bucket: Switch = False,
    start: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    end: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    follow: Annotated[bool, Parameter(name=("--follow",), negative="--available-now")] = False,
    interval: Annotated[float | None, Parameter(allow_leading_hyphen=True)] = None,
    checkpoint: str | None = None,
    adopt: Switch = False,
    evolve: Switch = False,
    key: Repeated = None,
    history: Switch = False,
    quarantine: str | None = None,
    on_bad_record: str | None = None,
    compact_every: Annotated[int | None, Parameter(allow_leading_hyphen=True)] = None,
    infer: Switch = False,
    infer_messages: int | None = None,
    max_offsets_per_trigger: int | None = None,
    option: Repeated = None,
    lineage: Switch = False,
    metrics: MetricsOption = None,
    flags: SparkFlags = LOCAL,
    json_output: JsonOutputFlag = False,
) -> int | None:
    """Turn a stream into a table, and continue where the last run ended.

    Every message becomes exactly one row, however often the command is stopped or killed and run
    again. DuckDB, Polars, pandas and Spark can read the table, even while the command runs.

    Args:
        stream: Name of the stream.
        subjects: Only messages under these subjects, separated by commas.
        bucket: STREAM is a Key-Value bucket, and the table has one row for each key: its present
            value. A change replaces the row, a deletion removes it.
        start: Where the first run begins: earliest (the default), latest, a sequence, a time such
            as 2026-01-31T12:00:00Z, or how long ago, such as -90m or -2d. Later runs continue.
        end: Where the run ends: before this sequence, or before the first message stored at or
            after this time, written as for --start. Without it, with the last message.
        follow: Run until Ctrl-C or SIGTERM, then exit with 0; --available-now, the default, ends
            with the messages that are stored now.
        interval: Seconds between two batches with --follow; 5 by default.
        checkpoint: Folder for the progress; by default _checkpoint in the table.
        adopt: Add the rows to a table that runs of this stream have not written to.
        evolve: Add a column for each new field of the payloads, and in Iceberg widen int to long,
            float to double, as rows need it, so that no field is lost. With --decode: for the
            fields of each new version of the schema in the registry.
        key: Column of the key: the table keeps the last row of each key; may be given again.
        history: With --key, keep all rows; valid_from and valid_to say when each row was valid.
        quarantine: Table for messages that do not become rows, with the reason: payloads that do
            not fit the schema, and rows without a table. Or stream:NAME, a stream of dead letters.
        on_bad_record: Without --quarantine: keep (the default) puts a payload that does not fit
            the schema into the column _corrupt_record; stop ends the run and names the message.
        compact_every: Merge the small files of a table after this many commits; by default 100
            with --follow, 0 for never.
        infer: Print a schema for --json that fits a sample of the messages, and write nothing; if
            --to is a template, one for each table. --to may be left out.
        infer_messages: Number of messages in the sample, from all parts of the stream; 10,000 by
            default.
        max_offsets_per_trigger: Maximum number of sequences in one batch; by default 2,000,000 and
            1 GiB, of a bucket 500,000; through a snapshot (option backfill) without a limit.
        option: Further option of the source, as name=value (user=…, tlsCaFile=…).
        lineage: Send OpenLineage events, to the target in OPENLINEAGE_URL or openlineage.yml.
    """
    outcome = Outcome(flags.quiet, json_output)
    further = named_options("--option", option, _OF_SOURCE)
    table_options = named_options("--table-option", table.table_option, _OF_TABLE)
    to, json = table.to, table.json
    own_start = _given(further, _STARTS)
    for flag, value, own in (("--start", start, own_start), ("--end", end, _given(further, _ENDS))):
        if value is not None and own is not None:
            raise ConfigError(f"Give either {flag} or --option {own}.")
    if end is not None and follow:
        raise ConfigError("--end is for a run that ends: leave it out, or --follow.")
    if end is not None and bucket:
        raise ConfigError(
            "--end is for streams: a bucket's table has the present values, and those of an "
            "earlier moment may be gone."
        )
    if infer and (json is not None or table.payloads.decode is not None):
        raise ConfigError("--infer prints what --json takes: give one of them, without --decode.")
    if json is not None and table.payloads.decode is not None:
        raise ConfigError("Give either --json or --decode: both say what the payloads are.")
    if infer_messages is not None and (not infer or infer_messages < 1):
        raise ConfigError("--infer-messages goes with --infer, and is 1 or more.")
    if to is None and not infer:
        raise ConfigError("--to: name the table, such as lake/orders.")
    if interval is not None and not follow:
        raise ConfigError("--interval is for --follow: give that, too, or leave it out.")
    with options_as_flags(_FLAGS, further):
        source = connection.spark_options(further) | {
            "bucket" if bucket else "stream": stream,
            **({} if own_start else starting(start or "earliest")),
            **({} if end is None else ending(end)),
            **batch_limits(further, max_offsets_per_trigger, bucket=bucket),
            "minPartitions": str(os.cpu_count() or 1),
        }
        if subjects is not None:
            source["subjects"] = subjects
        source |= table.payloads.options() | further
        if table.payloads.decode == "debezium":
            from jetspark.spark.debezium_schema import add_event_schema

            source = dict(add_event_schema(source))
        if to is None or infer:
            show_schemas(outcome, source, to, infer_messages or _SAMPLE)
            return None
        settings = flags.settings()

        with signals_held():
            from jetspark.spark.ingest import Ingest
            from jetspark.spark.queries import locked

        job = Ingest(
            options=source,
            to=to,
            **table.rows() | {"json_schema": json},
            checkpoint=checkpoint,
            follow=follow,
            interval=_INTERVAL if interval is None else interval,
            adopt=adopt,
            evolve=evolve,
            keys=key or [],
            history=history,
            quarantine=quarantine,
            on_bad_record=on_bad_record,
            compact_every=compact_every,
            table_options=table_options,
        )
        job.check()
        check_source(dict(job.reading), is_new=job.is_new)
        watch = Watch(outcome, metrics=metrics)
        watch.connections = [job.source.connection]
        if lineage:
            from jetspark.cli.lineage import lineage_of

            watch.lineage = lineage_of(f"ingest {to}", [job.source], {to: job.table}, follow)
        job.look_ahead()
        removed = 0

        def remove_gone_keys() -> None:
            nonlocal removed
            removed += job.remove_gone_keys()

        # A run without news has its events, too.
        if follow or lineage or not job.has_nothing_new():
            with (
                watch.until_stopped() as stop,
                quiet_spark(
                    f"jetspark ingest {to}",
                    flags,
                    settings,
                    messages=0,  # rows do not go through the JVM
                ) as spark,
                locked(spark, job.checkpoint_location),
            ):
                query = job.start(spark)
                if follow:
                    outcome.note(f"Following {stream} into {to}; Ctrl-C or SIGTERM ends it.")
                watch.run(
                    {to: query},
                    stop,
                    meanwhile=remove_gone_keys if follow else None,
                    again=lambda ended: job.start(spark) if job.has_evolved(ended) else None,
                )
                if not follow:
                    remove_gone_keys()
    rows, stopped = watch.rows.get(to, 0), watch.stopped
    aside = watch.done[to].quarantined if to in watch.done else 0
    left_out = watch.done[to].left_out if to in watch.done else 0
    sentence = watch.stop_sentence
    if stopped is None:
        sentence = done(rows, to, merged=bucket or bool(key), removed=removed)
    sentences = [sentence] if rows or not aside else []
    if aside:
        sentences.append(f"{counted(aside, 'message')} put aside in {quarantine}.")
    if left_out:
        sentences.append(describe_left_out(left_out))
    watch.report(
        *sentences,
        stream=stream,
        table=to,
        rows=rows,
        removed=removed,
        aside=aside,
        left_out=left_out,
    )
    return stopped.exit_code if stopped is not None and not follow else None


def _given(options: Mapping[str, str], names: Sequence[str]) -> str | None:
    """The name that the user gave, of these."""
    folded = {name.casefold() for name in names}
    return next((name for name in options if name.casefold() in folded), None)


def show_schemas(outcome: Outcome, source: dict[str, str], to: str | None, messages: int) -> None:
    """The schema of a sample, for each table: what goes behind --json is on standard output."""
    from jetspark.spark.infer_schema import infer_schemas

    found = infer_schemas(source, to, messages)
    if outcome.as_json:
        outcome.report(schemas=[asdict(one) for one in found])
        return
    if not found:
        outcome.note("There are no messages to look at.")
    for one in found:
        if one.table != to:
            say(f"# {one.table or 'no table'}")
        outcome.note(f"{counted(one.messages, 'message')} looked at.")
        for remark in one.remarks:
            outcome.note(remark)
        if one.schema:
            say(shlex.quote(one.schema))


def batch_limits(
    options: Mapping[str, str], most_offsets: int | None, *, bucket: bool
) -> Mapping[str, str]:
    """Options of the source that limit a batch. `options`: those that the user gave."""
    if most_offsets is not None:
        return {"maxOffsetsPerTrigger": str(most_offsets)}
    if bucket:
        return _BATCH_OF_BUCKET
    backfill = {name.casefold(): value for name, value in options.items()}.get("backfill")
    # A snapshot is of the whole stream, and only the first batch comes through one.
    return _BATCH if backfill in (None, "consumer") else {}


def done(rows: int, to: str, *, merged: bool, removed: int = 0) -> str:
    """The result of a complete run.

    `merged`: the rows were changes, of a bucket or with keys; `removed`: rows of keys that the
    bucket no longer has.
    """
    if not rows:
        sentence = f"Nothing new for {to}."
    elif merged:
        sentence = f"{counted(rows, 'change')} merged into {to}."
    else:
        sentence = f"{counted(rows, 'row')} written to {to}."
    if removed:
        sentence += f" Removed {counted(removed, 'row')} of keys that are gone."
    return sentence


def check_source(source: dict[str, str], *, is_new: bool) -> None:
    """Ask the server before Spark starts, so that errors come at once.

    `is_new`: there is no checkpoint, so reading begins where the options say.
    """
    from jetspark.spark.options import parse_options
    from jetspark.spark.positions import check_start
    from jetspark.spark.source_streams import fetch_source_facts

    options = parse_options(source).for_streaming()
    fetch_source_facts(options)
    if is_new:
        check_start(options)
