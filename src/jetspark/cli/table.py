"""`jetspark table`: shows Delta and Iceberg tables, compacts them, removes old files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter

from jetspark.cli import console
from jetspark.cli.app import COMMANDS, examples
from jetspark.cli.stream_session import JsonOption, pairs, show_facts, show_json, size

if TYPE_CHECKING:
    from jetspark.lakehouse.table import Table

_REPEATED = Parameter(negative="")
_SHOWN = 10
"""Files that are kept, by name."""

table = App(
    name="table",
    help=COMMANDS["table"].line,
    help_epilogue=examples(
        "jetspark table info lake/orders",
        "jetspark table compact lake/orders",
        "jetspark table vacuum lake/orders --dry-run",
    ),
)


@table.command(sort_key=0, help_epilogue=examples("jetspark table info lake/orders --json"))
def info(
    place: str,
    /,
    *,
    format: str | None = None,
    table_option: Annotated[list[str] | None, _REPEATED] = None,
    json: JsonOption = False,
) -> None:
    """Show a table: its rows, files and columns.

    Args:
        place: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
        format: delta or iceberg; by default the format of the table in the folder.
        table_option: Option of the storage or the catalog, as name=value
            (storage.AWS_REGION=…); may be given again.
        json: One JSON document.
    """
    with _opened(place, format, table_option) as opened:
        found = opened.facts()
    if json:
        show_json(msgspec.to_builtins(found))
        return
    show_facts(
        {
            "format": found.format,
            "location": found.location,
            "version" if found.format == "delta" else "snapshots": f"{found.version:,}",
            "rows": "unknown" if found.rows is None else f"{found.rows:,}",
            "files": f"{found.files:,}",
            "size": size(found.bytes),
            "partitions": ", ".join(found.partition_by) or "–",
            "columns": ", ".join(f"{name} {kind}" for name, kind in found.columns),
        }
    )


@table.command(sort_key=1, help_epilogue=examples("jetspark table compact lake/orders"))
def compact(
    place: str,
    /,
    *,
    target_size: str = "128m",
    format: str | None = None,
    table_option: Annotated[list[str] | None, _REPEATED] = None,
    json: JsonOption = False,
) -> None:
    """Merge small files into large ones, also while a query writes and others read.

    The small files stay for readers of older versions until `vacuum` removes them.

    Args:
        place: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
        target_size: Size of the large files, such as 128m or 1g.
        format: delta or iceberg; by default the format of the table in the folder.
        table_option: Option of the storage or the catalog, as name=value; may be given again.
        json: One JSON document.
    """
    from jetspark.lakehouse.formats import file_size

    target = file_size("--target-size", target_size)
    with _opened(place, format, table_option) as opened:
        done = opened.compact(target)
    if json:
        show_json({"removed": done.removed, "added": done.added})
    elif done.removed:
        console.say(f"{console.counted(done.removed, 'file')} replaced by {done.added:,}.")
    else:
        console.say("There are no small files to merge.")


@table.command(sort_key=2, help_epilogue=examples("jetspark table vacuum lake/orders --keep 2d"))
def vacuum(
    place: str,
    /,
    *,
    keep: str = "7d",
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    format: str | None = None,
    table_option: Annotated[list[str] | None, _REPEATED] = None,
    json: JsonOption = False,
) -> None:
    """Remove files that no version needs: of older versions, and of failed tasks.

    Versions older than --keep can no longer be read afterwards. A file that is not proven to be
    this table's is kept, and named.

    Args:
        place: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
        keep: How long older versions and uncommitted files are kept, such as 12h, 7d or 2w; at
            least 1h.
        dry_run: Only print the files.
        format: delta or iceberg; by default the format of the table in the folder.
        table_option: Option of the storage or the catalog, as name=value; may be given again.
        json: One JSON document.
    """
    from jetspark.lakehouse.formats import span

    retention = span("--keep", keep)
    with _opened(place, format, table_option) as opened:
        done = opened.vacuum(retention, dry_run=dry_run)
    if json:
        show_json({"files": list(done.removed), "kept": list(done.kept), "removed": not dry_run})
        return
    count = console.counted(len(done.removed), "file")
    if dry_run:
        console.say(*done.removed, f"{count} would be removed.")
    else:
        console.say(f"{count} removed.")
    if done.kept:
        more = len(done.kept) - _SHOWN
        console.say(
            f"Kept, since nothing proves that it is this table's: {', '.join(done.kept[:_SHOWN])}"
            f"{f' and {more:,} more (all with --json)' if more > 0 else ''}"
        )


@contextmanager
def _opened(place: str, format_: str | None, options: list[str] | None) -> Iterator[Table]:
    """Raises ConfigError, and TableError for what the library cannot read."""
    from jetspark.lakehouse.formats import in_a_sentence, open_table, table_at

    found, name = table_at(place, format_, pairs("--table-option", options))
    with in_a_sentence(name):
        yield open_table(found, name)
