"""`jetspark replay`: a table becomes messages of a stream."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from jetspark.cli import scopes
from jetspark.cli.console import Outcome
from jetspark.cli.flags import JsonOption, MetricsOption, Repeated, parse_pairs
from jetspark.cli.formatting import format_count
from jetspark.cli.progress import spinner
from jetspark.cli.query_watch import serving_metrics
from jetspark.cli.scopes import READING, RUN, WRITING
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.cli.signals import StopRequested, signals_held, stop_on_signals
from jetspark.cli.spark_flags import LOCAL, SparkFlags
from jetspark.cli.spark_session import quiet_spark
from jetspark.options.scopes import spark_texts


@Parameter(name="*", group=READING)
@dataclass(frozen=True, kw_only=True)
class RowFlags:
    """The table's format, and filters of its rows."""

    format: str | None = None
    """Format of the table: delta, iceberg, parquet, json, csv, or another of Spark's. Without it:
    Delta or Iceberg if the folder shows that, else parquet."""
    rows: str | None = None
    """Spark SQL: only these rows, such as "day >= '2026-01-01'"."""
    order_by: str | None = None
    """Publish in the order of this column, such as seq, one message after the other."""
    storage: Repeated = None
    """Option of the storage or the catalog, as name=value (AWS_REGION=…); may be given again."""
    table_option: Repeated = None
    """Option of the table's reader in Spark, as name=value (header=true); may be given again."""

    @property
    def table_options(self) -> dict[str, str]:
        """The options of --storage and --table-option, for Spark's reader of the table.

        Raises ConfigError.
        """
        return {
            **scopes.parse_storage(self.storage),
            **parse_pairs("--table-option", self.table_option),
        }


@Parameter(name="*", group=WRITING)
@dataclass(frozen=True, kw_only=True)
class MessageFlags:
    """Columns that messages are made of."""

    to: str
    """Name of the stream."""
    subject: str | None = None
    """Spark SQL for the subject, such as "concat('orders.', region)"; the column subject by
    default."""
    data: str | None = None
    """Spark SQL for the payload; by default the column named data, else the columns as JSON."""
    msg_id: str | None = None
    """Spark SQL for the message id, for --guarantee effectively-once."""


_ALL_ROWS = RowFlags()


def replay(
    table: str,
    /,
    *,
    rows: RowFlags = _ALL_ROWS,
    reading: scopes.TableReadFlags = scopes.NO_TABLE_READ,
    messages: MessageFlags,
    sink: scopes.StreamSinkFlags = scopes.NO_SINK,
    payloads: scopes.SchemaFlags = scopes.NO_SCHEMA,
    metrics: Annotated[MetricsOption, Parameter(group=RUN)] = None,
    flags: Annotated[SparkFlags, Parameter(group=RUN)] = LOCAL,
    connection: Annotated[ServerFlags, Parameter(group=scopes.CONNECTION)] = DEFAULT_SERVER,
    login: scopes.ConnectionFlags = scopes.NO_CONNECTION,
    json: Annotated[JsonOption, Parameter(group=RUN)] = False,
) -> int | None:
    """Turn a table into messages of a stream.

    A table of `jetspark ingest` becomes the messages that it came from. With --guarantee
    exactly-once and a --transaction-id the same command may be run again after a failure.

    Args:
        table: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
    """
    outcome = Outcome(flags.quiet, json)
    to, transaction_id = messages.to, sink.transaction_id
    facts = {"table": table, "stream": to, "transaction": transaction_id}
    writing = {
        "stream": to,
        **scopes.connection_texts(connection, login),
        **spark_texts(sink),
        **scopes.schema_texts(payloads),
    }
    settings = flags.settings()

    with signals_held(), spinner("loading Spark …", quiet=flags.quiet):
        from jetspark.spark.pipelines.replay import Replay
        from jetspark.spark.stream_sink.options import parse_sink_options
        from jetspark.spark.stream_sink.target import inspect_target

    job = Replay(
        table=table,
        options=writing,
        format=rows.format,
        subject=messages.subject,
        data=messages.data,
        msg_id=messages.msg_id,
        where=rows.rows,
        order_by=rows.order_by,
        table_options=spark_texts(reading) | rows.table_options,
    )
    # Errors in the options, the table or the stream come before Spark starts.
    sink_options = parse_sink_options(writing).for_batch()
    job.check()
    inspect_target(sink_options)
    before = job.already()  # rows that an earlier run with this --transaction-id published, or None
    try:
        with (
            stop_on_signals(),
            serving_metrics(metrics) as figures,
            quiet_spark(f"jetspark replay {to}", flags, settings) as spark,
            spinner(f"publishing to {to} …", quiet=flags.quiet),
            nullcontext() if figures is None else figures.batch(to, spark),
        ):
            count = job.run(spark)
    except StopRequested as stop:
        end = "; the same command completes them." if transaction_id else " already."
        sentence = f"Stopped. Part of the rows may be in the stream{end}"
        outcome.report(sentence, **facts, rows=None, rows_before=0, stopped_by=stop.name)
        return stop.exit_code
    sentence = f"{format_count(count, 'row')} of {table} published to {to}."
    # The run has checked that the rows are the same, and has published none of them again.
    if before is not None:
        rows_before = format_count(before, "row")
        sentence = f"Published before as {transaction_id}: {rows_before}; nothing written."
        count = 0
    outcome.report(sentence, **facts, rows=count, rows_before=before or 0, stopped_by=None)
    return None
