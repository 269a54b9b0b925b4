"""`jetspark backup`: shows what a backup of a stream holds, and extracts messages; no server.

`jetspark stream backup` makes one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from jetspark.backup.folder import shown_folder
from jetspark.cli import console
from jetspark.cli.app import command, group
from jetspark.cli.console import counted, moment, size
from jetspark.cli.folders import temporary_folder
from jetspark.cli.options import JsonOption
from jetspark.errors import BackupError, ConfigError
from jetspark.files import beginning
from jetspark.subjects import check_disjoint, check_subscribe_subject
from jetspark.validation import MOST_SEQUENCE, check_whole, path_of

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from jetspark.bulk.backup import Backup

_SHOWN = 20  # subjects

backup = group(
    "backup",
    "jetspark backup info backups/orders",
    "jetspark backup extract backups/orders --to orders.parquet",
)


@command(
    backup,
    "jetspark backup info backups/orders",
    'jetspark backup info backups/orders --subjects "orders.eu.>" --json',
)
def info(folder: str, /, *, subjects: str | None = None, json: JsonOption = False) -> None:
    """Count the messages of a backup by subject; show the first and the last one.

    Reads the whole archive and verifies its checksums; `jetspark stream verify` also compares its
    SHA-256. Shows how many messages were removed from the stream during the backup.

    Args:
        folder: Folder or URI of a backup, by this command or by `nats stream backup`.
        subjects: Only messages under these subjects, several with commas.
        json: Print one JSON document, with every subject.
    """
    from jetspark.bulk.backup import open_backup

    opened = open_backup(folder)
    counts: Counter[str] = Counter()
    ends: list[tuple[int, datetime]] = []
    for batch in _shown(opened, _subjects(subjects), ("subject", "seq", "timestamp"), "reading"):
        for pair in batch.column("subject").value_counts().to_pylist():
            counts[pair["values"]] += pair["counts"]
        for row in (0, batch.num_rows - 1):
            ends.append((batch.column("seq")[row].as_py(), batch.column("timestamp")[row].as_py()))
        del ends[1:-1]
    if json:
        document = {
            "stream": opened.stream,
            "folder": opened.folder,
            "archive_bytes": opened.size,
            "messages": counts.total(),
            "removed": opened.removed,
            "first": _document(ends[:1]),
            "last": _document(ends[-1:]),
            "subjects": dict(counts.most_common()),
        }
        console.say_json(document, indent=True)
        return
    blocks = "a list of messages" if opened.blocks is None else "message blocks"
    removed = f"{opened.removed:,} of {opened.facts.messages:,}, while it was backed up"
    console.show_facts(
        {
            "stream": opened.stream,
            "folder": opened.folder,
            "archive": f"{size(opened.size)}, {blocks}",
            "messages": f"{counts.total():,}",
            "removed": removed if opened.removed else "",
            "first": _message(ends[0]) if ends else "",
            "last": _message(ends[-1]) if ends else "",
            "subjects": f"{len(counts):,}",
        }
    )
    if counts:
        rows = [(name, f"{count:,}") for name, count in counts.most_common(_SHOWN)]
        console.show_table("subject", "messages", rows=rows)
        if len(counts) > _SHOWN:
            console.say(f"and {len(counts) - _SHOWN:,} more subjects (all of them with --json)")


def _document(ends: list[tuple[int, datetime]]) -> dict[str, object] | None:
    return {"seq": ends[0][0], "time": ends[0][1].isoformat()} if ends else None


def _message(end: tuple[int, datetime]) -> str:
    return f"sequence {end[0]:,} at {moment(end[1])}"


@command(
    backup,
    "jetspark backup extract backups/orders --to orders.parquet",
    "jetspark backup extract backups/orders --to eu.parquet "
    '--subjects "orders.eu.>" --start 1000 --end 2000',
)
def extract(
    folder: str,
    /,
    *,
    to: str,
    subjects: str | None = None,
    start: int | None = None,
    end: int | None = None,
    json: JsonOption = False,
) -> None:
    """Write messages of a backup to a Parquet file.

    The file appears when it is complete. A warning on standard error says how many messages were
    removed from the stream during the backup.

    Args:
        folder: Folder or URI of a backup, by this command or by `nats stream backup`.
        to: New Parquet file on this machine, with the columns of the Spark source.
        subjects: Only messages under these subjects, several with commas.
        start: First sequence.
        end: Sequence before which to stop.
        json: Print what was written as one JSON document.
    """
    import pyarrow.parquet as pq

    from jetspark.bulk.arrow import COLUMNS, schema_of
    from jetspark.bulk.backup import open_backup

    target = _new_file(to)
    for name, sequence in (("--start", start), ("--end", end)):
        if sequence is not None:
            check_whole(name, sequence, most=MOST_SEQUENCE)
    if start is not None and end is not None and end < start:
        raise ConfigError(f"--end {end} is before --start {start}.")
    opened = open_backup(folder)
    schema, wanted = schema_of(COLUMNS), _subjects(subjects)
    rows = 0
    # A folder, since the next command can see whether its process still lives.
    with _disk(target), temporary_folder(f".{beginning(target.name)}.", target.parent) as hidden:
        with (hidden / "part").open("xb") as file, pq.ParquetWriter(file, schema) as writer:
            for batch in _shown(opened, wanted, COLUMNS, f"writing {target}", start, end):
                writer.write_batch(batch)
                rows += batch.num_rows
        (hidden / "part").replace(target)
        written = target.stat().st_size
    if json:
        document = {
            "stream": opened.stream,
            "file": str(target),
            "messages": rows,
            "bytes": written,
        }
        console.say_json(document, indent=True)
    else:
        console.say(
            f"Extracted {counted(rows, 'message')} of stream {opened.stream} to {target} "
            f"({size(written)})."
        )


def _new_file(to: str) -> Path:
    if not to.strip():
        raise ConfigError("--to is empty: name a new file.")
    if "://" in to:
        raise ConfigError(
            f"--to is a file on this machine, not {shown_folder(to)}: copy it there afterwards."
        )
    path = path_of("--to", to)
    if os.path.lexists(path):  # a symlink to nowhere, too
        raise ConfigError(f"{path} exists already: name a new file.")
    return path


def _subjects(text: str | None) -> tuple[str, ...]:
    found = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not found:
        raise ConfigError("--subjects is empty; leave it out for every subject.")
    for one in found:
        check_subscribe_subject(one)
    check_disjoint("--subjects", found)
    return found


@contextmanager
def _disk(to: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackupError(f"Cannot write {to}: {error.strerror or error}.") from error


def _shown(
    opened: Backup,
    subjects: tuple[str, ...],
    columns: tuple[str, ...],
    what: str,
    start: int | None = None,
    end: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches; meanwhile a bar on the terminal counts the messages."""
    facts = opened.facts
    opened.check_subjects("--subjects", subjects)
    batches = opened.read(start, end, subjects=subjects, columns=columns, fail_on_data_loss=False)
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} messages, {task.fields[read]}"),
        TimeRemainingColumn(),
        console=console.err,
        transient=True,
        disable=not console.is_live(),
    ) as display:
        task = display.add_task(what, total=facts.messages, read="0 B")
        done = nbytes = 0
        for batch in batches:
            done, nbytes = done + batch.num_rows, nbytes + batch.nbytes
            display.update(task, completed=done, read=size(nbytes))
            yield batch
