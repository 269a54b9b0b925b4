"""`jetspark replay`: a table becomes messages of a stream."""

from __future__ import annotations

from contextlib import nullcontext

from jetspark.cli import options
from jetspark.cli.console import Outcome, counted
from jetspark.cli.signals import StopRequested, signals_held, stop_on_signals
from jetspark.cli.spark_runs import LOCAL, SparkFlags, figures_served, quiet_spark, spinner
from jetspark.errors import ConfigError

# The flags of options.
_OF_SINK = {
    "stream": "--to",
    "servers": "--server",
    "context": "--context",
    "guarantee": "--guarantee",
    "transactionId": "--transaction-id",
    "prepareStream": "--prepare-stream",
}
_OF_TABLE = dict.fromkeys(("path", "catalog", "table"), "TABLE")


def replay(
    table: str,
    /,
    *,
    to: str,
    connection: options.Connection = options.DEFAULT,
    format: str | None = None,
    subject: str | None = None,
    data: str | None = None,
    msg_id: str | None = None,
    rows: str | None = None,
    order_by: str | None = None,
    guarantee: str = "at-least-once",
    transaction_id: str | None = None,
    prepare_stream: options.Switch = False,
    table_option: options.Repeated = None,
    option: options.Repeated = None,
    metrics: options.MetricsOption = None,
    flags: SparkFlags = LOCAL,
    json_output: options.JsonOutputOption = False,
) -> int | None:
    """Turn a table into messages of a stream.

    A table of `jetspark ingest` becomes the messages that it came from. With --guarantee
    exactly-once and a --transaction-id the same command may be run again after a failure.

    Args:
        table: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
        to: Name of the stream.
        format: Format of the table: delta, iceberg, parquet, json, csv, or another of Spark's.
            Without it: Delta or Iceberg if the folder shows that, else parquet.
        subject: Spark SQL for the subject, such as "concat('orders.', region)"; the column
            subject by default.
        data: Spark SQL for the payload; by default the column named data, else the columns as JSON.
        msg_id: Spark SQL for the message id, for --guarantee effectively-once.
        rows: Spark SQL: only these rows, such as "day >= '2026-01-01'".
        order_by: Publish in the order of this column, such as seq, one message after the other.
        guarantee: at-least-once, effectively-once or exactly-once.
        transaction_id: Name of this replay, for exactly-once: the same name repeats no row.
        prepare_stream: Change the stream's configuration as exactly-once requires.
        table_option: Option of the table's reader, as name=value (storage.AWS_REGION=…,
            versionAsOf=7).
        option: Further option of the sink, as name=value (user=…, publishTimeout=…).
    """
    outcome = Outcome(flags.quiet, json_output)
    further = options.named_options("--option", option, _OF_SINK)
    table_options = options.named_options("--table-option", table_option, _OF_TABLE)
    own_subject = next((name for name in further if name.casefold() == "subject"), None)
    if subject is not None and own_subject is not None:
        raise ConfigError(f"Give either --subject or --option {own_subject}.")
    facts = {"table": table, "stream": to, "transaction": transaction_id}
    with options.options_as_flags(_OF_SINK | {"subject": "--subject"}, further):
        sink = connection.spark_options(further) | {"stream": to, "guarantee": guarantee}
        if transaction_id is not None:
            sink["transactionId"] = transaction_id
        if prepare_stream:
            sink["prepareStream"] = "true"
        sink |= further
        settings = flags.settings()

        with signals_held():
            from jetspark.spark.replay import Replay
            from jetspark.spark.sink_options import look_at, parse_sink_options

        job = Replay(
            table=table,
            options=sink,
            format=format,
            subject=subject,
            data=data,
            msg_id=msg_id,
            where=rows,
            order_by=order_by,
            table_options=table_options,
        )
        job.check()
        # Errors in the options or the stream come before Spark starts.
        look_at(parse_sink_options(sink).for_batch())
        before = job.already()
        try:
            with (
                stop_on_signals(),
                figures_served(metrics) as figures,
                quiet_spark(f"jetspark replay {to}", flags, settings) as spark,
                spinner(f"publishing to {to} …", quiet=flags.quiet),
                nullcontext() if figures is None else figures.batch(to, spark),
            ):
                count = job.run(spark)
        except StopRequested as stop:
            sentence = "Stopped. Part of the rows may be in the stream" + (
                "; the same command completes them." if transaction_id else " already."
            )
            outcome.report(sentence, **facts, rows=None, rows_before=0, stopped_by=stop.name)
            return stop.exit_code
    if before is not None:  # by now the writer has found that the rows are those of then
        sentence = (
            f"Published before as {transaction_id}: {counted(before, 'row')}; nothing written."
        )
        outcome.report(sentence, **facts, rows=0, rows_before=before, stopped_by=None)
        return None
    sentence = f"{counted(count, 'row')} of {table} published to {to}."
    outcome.report(sentence, **facts, rows=count, rows_before=0, stopped_by=None)
    return None
