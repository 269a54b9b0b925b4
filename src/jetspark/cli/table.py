"""`jetspark table`: shows Delta and Iceberg tables, compacts them, removes old files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from cyclopts import Parameter

from jetspark.cli.app import command, group
from jetspark.cli.console import counted, show_info, show_result, size
from jetspark.cli.options import JsonOption, Repeated, Switch, pairs

if TYPE_CHECKING:
    from jetspark.lakehouse.table import Table

_SHOWN = 10
"""Names of kept files."""

table = group(
    "table",
    "jetspark table info lake/orders",
    "jetspark table compact lake/orders",
    "jetspark table vacuum lake/orders --dry-run",
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The flags --format and --table-option."""

    format: str | None = None
    """delta or iceberg; by default the format of the table in the folder."""
    table_option: Repeated = None
    """Option of the storage or the catalog, as name=value (storage.AWS_REGION=…); may be given
    again."""

    @contextmanager
    def opened(self, place: str) -> Iterator[Table]:
        """Raises ConfigError, and TableError for what the library cannot read."""
        from jetspark.lakehouse.formats import in_a_sentence, open_table, table_at

        found, name = table_at(place, self.format, pairs("--table-option", self.table_option))
        with in_a_sentence(name):
            yield open_table(found, name)


_DEFAULT = TableOptions()


@command(table, "jetspark table info lake/orders --json")
def info(place: str, /, *, options: TableOptions = _DEFAULT, json: JsonOption = False) -> None:
    """Show a table: its rows, files and columns.

    Args:
        place: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
        json: One JSON document.
    """
    with options.opened(place) as opened:
        found = opened.facts()
    facts: dict[str, object] = {
        "format": found.format,
        "location": found.location,
        "version" if found.format == "delta" else "snapshots": f"{found.version:,}",
        "rows": "unknown" if found.rows is None else f"{found.rows:,}",
        "files": f"{found.files:,}",
        "size": size(found.bytes),
        "partitions": ", ".join(found.partition_by) or "–",
        "columns": ", ".join(f"{name} {kind}" for name, kind in found.columns),
    }
    show_info(msgspec.to_builtins(found), facts, as_json=json)


@command(table, "jetspark table compact lake/orders")
def compact(
    place: str,
    /,
    *,
    target_size: str = "128m",
    options: TableOptions = _DEFAULT,
    json: JsonOption = False,
) -> None:
    """Merge small files into large ones, also while a query writes and others read.

    The small files stay for readers of older versions until `vacuum` removes them.

    Args:
        place: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
        target_size: Size of the large files, such as 128m or 1g.
        json: One JSON document.
    """
    from jetspark.lakehouse.formats import file_size

    target = file_size("--target-size", target_size)
    with options.opened(place) as opened:
        done = opened.compact(target)
    sentence = "There are no small files to merge."
    if done.removed:
        sentence = f"{counted(done.removed, 'file')} replaced by {done.added:,}."
    show_result(sentence, {"removed": done.removed, "added": done.added}, as_json=json)


@command(table, "jetspark table vacuum lake/orders --keep 2d")
def vacuum(
    place: str,
    /,
    *,
    keep: str = "7d",
    dry_run: Switch = False,
    options: TableOptions = _DEFAULT,
    json: JsonOption = False,
) -> None:
    """Remove the files of old versions and of failed tasks.

    Versions older than --keep can no longer be read afterwards. A file that is not proven to be
    this table's is kept, and its name is printed.

    Args:
        place: Folder or URI of the table; catalog:namespace.table for one in an Iceberg catalog.
        keep: How long older versions and uncommitted files are kept, such as 12h, 7d or 2w; at
            least 1h.
        dry_run: Only print the files.
        json: One JSON document.
    """
    from jetspark.lakehouse.formats import span

    retention = span("--keep", keep)
    with options.opened(place) as opened:
        done = opened.vacuum(retention, dry_run=dry_run)
    count = counted(len(done.removed), "file")
    lines = [*done.removed, f"{count} would be removed."] if dry_run else [f"{count} removed."]
    if done.kept:
        more = len(done.kept) - _SHOWN
        lines.append(
            f"Kept, since nothing proves that it is this table's: {', '.join(done.kept[:_SHOWN])}"
            f"{f' and {more:,} more (all with --json)' if more > 0 else ''}"
        )
    document = {"files": list(done.removed), "kept": list(done.kept), "removed": not dry_run}
    show_result("\n".join(lines), document, as_json=json)
