"""`jetspark table`: shows Delta and Iceberg tables, compacts them, removes old rows and files, and
tries records of a quarantine again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from jetspark.cli import scopes
from jetspark.cli.app import command, group
from jetspark.cli.console import Outcome, escape_to_line
from jetspark.cli.flags import JsonOption, Repeated, Switch
from jetspark.cli.formatting import format_count, format_size, format_time
from jetspark.cli.ingest import NO_TARGET, TargetFlags
from jetspark.cli.listings import show_result
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.cli.signals import signals_held, stop_on_signals
from jetspark.errors import ConfigError

if TYPE_CHECKING:
    from jetspark.spark.pipelines.retry_quarantine import ReprocessResult
    from jetspark.tables.table import Table

_MAX_PRINTED_FILES = 10
"""Maximum number of kept files whose names are printed."""
_RETRY = 'jetspark table retry lake/bad --to lake/orders --json-schema "id STRING"'
table = group(
    "table",
    "jetspark table info lake/orders",
    "jetspark table compact lake/orders",
    "jetspark table expire lake/orders --older-than 90d",
    "jetspark table vacuum lake/orders --dry-run",
    _RETRY,
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TableFormatFlags:
    """The flags --format and --storage."""

    format: str | None = None
    """delta or iceberg; by default the format of the table in the folder."""
    storage: Repeated = None
    """Option of the storage or the catalog, as name=value (AWS_REGION=…); may be given again."""

    @contextmanager
    def opened(self, location: str) -> Iterator[Table]:
        """Open the table at a folder, URI or catalog name, for the block.

        Raises ConfigError, TableError for an unreadable table, and in the block TableError in place
        of the table libraries' own errors.
        """
        from jetspark.tables.arguments import resolve_table
        from jetspark.tables.formats import open_table, reporting_library_errors

        options = scopes.parse_storage(self.storage)
        ref, name = resolve_table(location, self.format, options)
        with reporting_library_errors(name):
            yield open_table(ref, name)


_FORMAT_OF_FOLDER = TableFormatFlags()


@command(table, "jetspark table info lake/orders --json")
def info(
    location: str, /, *, options: TableFormatFlags = _FORMAT_OF_FOLDER, json: JsonOption = False
) -> None:
    """Show a table: its rows, files and columns.

    Args:
        location: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
    """
    with options.opened(location) as opened:
        table_facts = opened.facts()
    facts: dict[str, object] = {
        "format": table_facts.format,
        "location": table_facts.location,
        "version" if table_facts.format == "delta" else "snapshots": f"{table_facts.version:,}",
        "last commit": "unknown"
        if table_facts.committed is None
        else format_time(table_facts.committed),
        "rows": "unknown" if table_facts.rows is None else f"{table_facts.rows:,}",
        "files": f"{table_facts.files:,}",
        "size": format_size(table_facts.bytes),
        "partitions": ", ".join(table_facts.partition_by) or "–",
        "columns": ", ".join(f"{name} {kind}" for name, kind in table_facts.columns),
    }
    show_result(facts, msgspec.to_builtins(table_facts), as_json=json)


@command(table, "jetspark table compact lake/orders")
def compact(
    location: str,
    /,
    *,
    target_size: Annotated[str, Parameter(allow_leading_hyphen=True)] = "128m",
    options: TableFormatFlags = _FORMAT_OF_FOLDER,
    json: JsonOption = False,
) -> None:
    """Merge small files into large ones, even while queries write and read.

    The small files stay for readers of older versions until `vacuum` removes them.

    Args:
        location: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
        target_size: Size of the large files, such as 128m or 1g.
    """
    from jetspark.tables.arguments import parse_file_size

    target = parse_file_size("--target-size", target_size)
    with options.opened(location) as opened:
        compaction = opened.compact(target)
    sentence = "There are no small files to merge."
    if compaction.removed:
        sentence = f"{format_count(compaction.removed, 'file')} replaced by {compaction.added:,}."
    show_result(sentence, {"removed": compaction.removed, "added": compaction.added}, as_json=json)


@command(table, "jetspark table vacuum lake/orders --keep 2d")
def vacuum(
    location: str,
    /,
    *,
    keep: Annotated[str, Parameter(allow_leading_hyphen=True)] = "7d",
    dry_run: Switch = False,
    options: TableFormatFlags = _FORMAT_OF_FOLDER,
    json: JsonOption = False,
) -> None:
    """Remove the files of old versions and of failed tasks.

    Afterwards, versions older than --keep cannot be read. A file that is not proven to be this
    table's stays, and is named.

    Args:
        location: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
        keep: How long older versions and uncommitted files are kept, such as 12h, 7d or 2w; at
            least 1h.
        dry_run: Only print the files.
    """
    from jetspark.tables.arguments import parse_duration

    retention = parse_duration("--keep", keep)
    with options.opened(location) as opened:
        result = opened.vacuum(retention, dry_run=dry_run)
    count = format_count(len(result.removed), "file")
    names = map(escape_to_line, result.removed)
    lines = [*names, f"{count} would be removed."] if dry_run else [f"{count} removed."]
    if result.unproven:
        kept = ", ".join(map(escape_to_line, result.unproven[:_MAX_PRINTED_FILES]))
        if (more := len(result.unproven) - _MAX_PRINTED_FILES) > 0:
            kept += f" and {more:,} more (all with --json)"
        lines.append(f"Kept, since it may not be this table's: {kept}")
    document = {"files": result.removed, "kept": result.unproven, "removed": not dry_run}
    show_result("\n".join(lines), document, as_json=json)


@command(table, "jetspark table expire lake/orders --older-than 90d --column day")
def expire(
    location: str,
    /,
    *,
    older_than: Annotated[str, Parameter(allow_leading_hyphen=True)],
    column: str = "timestamp",
    options: TableFormatFlags = _FORMAT_OF_FOLDER,
    json: JsonOption = False,
) -> None:
    """Remove the rows that are too old, even while queries write and read.

    Files of which all rows are too old leave the table; of others the other rows are written anew.
    Their bytes stay for readers of older versions until `vacuum` removes them.

    Args:
        location: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
        older_than: Age of the rows to remove, such as 90d, 12h or 2w.
        column: Timestamp or date that says how old a row is. Rows without a value stay.
    """
    from jetspark.tables.arguments import parse_duration
    from jetspark.tables.expiry import expire as expire_rows

    age = parse_duration("--older-than", older_than)
    before = datetime.now(UTC) - age
    with options.opened(location) as opened:
        result = expire_rows(opened, column, before)
    sentence = "No row is so old."
    if result.removed:
        rows = "Rows" if result.rows is None else format_count(result.rows, "row")
        sentence = (
            f"{rows} removed: {format_count(result.removed, 'file')} left the table, "
            f"{result.rewritten:,} with other rows of these were written."
        )
    document = {
        "before": before.isoformat(),
        "rows": result.rows,
        "removed": result.removed,
        "rewritten": result.rewritten,
    }
    show_result(sentence, document, as_json=json)


@command(table, _RETRY, "jetspark table retry lake/bad --pipeline shop.toml")
def retry(
    quarantine: str,
    /,
    *,
    payloads: scopes.PayloadFlags = scopes.NO_PAYLOADS,
    target: TargetFlags = NO_TARGET,
    table: scopes.TableFlags = scopes.NO_TABLE,
    connection: ServerFlags = DEFAULT_SERVER,
    pipeline: Path | None = None,
    json: JsonOption = False,
) -> None:
    """Try the messages of a quarantine again, with a corrected schema.

    Messages that now become rows are added to their tables, each once, even if the command is
    killed and run again. The other messages stay, with their new reasons. The query that fills the
    tables may keep running. The command connects to a NATS server only with --registry nats.

    Args:
        quarantine: The table with the messages, in the format of the table to fill.
        pipeline: File of the pipeline with this quarantine, which has the tables and schemas; in
            place of --to, --json-schema and their like.
    """
    outcome = Outcome(False, json)
    if pipeline is not None:
        is_alone = (payloads, target, table) == (scopes.NO_PAYLOADS, NO_TARGET, scopes.NO_TABLE)
        if not is_alone or connection.options():
            raise ConfigError("--pipeline FILE says the tables and schemas: give it alone.")
        _retry_in_pipeline(outcome, quarantine, pipeline)
        return
    to = target.to
    # Exactly one of --json-schema and --decode says what the payloads are.
    if to is None or (target.json_schema is None) == (payloads.decode is None):
        raise ConfigError(
            "Give --to and --json-schema, or --decode in its place, or --pipeline with the file "
            "that says both."
        )
    if connection.options() and payloads.registry != "nats":
        raise ConfigError("--server and --context say where --registry nats is: give them with it.")
    with signals_held():
        from jetspark.spark.pipelines.ingest import Ingest

    # No stream is read, only the quarantine, but the options need one.
    options = {"stream": "retried", **scopes.schema_texts(payloads), **connection.spark_options()}
    job = Ingest(
        options=options,
        to=to,
        **target.arguments(),
        table_options=replace(table, quarantine=quarantine),
    )
    job.check_rows()
    job.check_reprocess()
    with stop_on_signals():
        result = job.reprocess()
    _report_retry(outcome, result, quarantine, to, table=to)


def _retry_in_pipeline(outcome: Outcome, quarantine: str, file: Path) -> None:
    """Try the messages of a quarantine again, with the tables and schemas of a pipeline file.

    They are those of the pipeline's sink that has this quarantine.
    """
    with signals_held():
        from jetspark.spark.pipelines.pipeline import reprocess, sink_of_quarantine
        from jetspark.spark.pipelines.pipeline_file import read_pipeline

    pipeline = read_pipeline(file)
    sink = sink_of_quarantine(pipeline, quarantine)
    with stop_on_signals():
        result = reprocess(pipeline, sink)
    _report_retry(outcome, result, quarantine, f"the tables of {sink}", sink=sink)


def _report_retry(
    outcome: Outcome, result: ReprocessResult, quarantine: str, to: str, **facts: str
) -> None:
    """Print how many messages of a quarantine became rows, and how many are left.

    `to`: the tables, in words; `facts`: further fields of the JSON document.
    """
    sentences = [f"{format_count(result.added, 'row')} added to {to}."]
    if result.already_present:
        was = "was" if result.already_present == 1 else "were"
        sentences.append(
            f"{format_count(result.already_present, 'row')} {was} there, of a run that was killed."
        )
    sentences.append(f"{format_count(result.remaining, 'message')} left in {quarantine}.")
    outcome.report(
        *sentences,
        quarantine=quarantine,
        **facts,
        rows=result.added,
        already_present=result.already_present,
        remaining=result.remaining,
    )
