"""`jetspark backup`: shows the content of a backup, and extracts messages, without a server.

`jetspark stream backup` makes one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import TextColumn

from jetspark.backup.folder import redact_folder
from jetspark.cli import console
from jetspark.cli.app import command, group
from jetspark.cli.flags import JsonFlag, JsonOption
from jetspark.cli.folders import temporary_folder
from jetspark.cli.formatting import format_count, format_size, format_time
from jetspark.cli.listings import show_result, show_table
from jetspark.cli.progress import progress_bar
from jetspark.errors import BackupError, ConfigError
from jetspark.files import beginning
from jetspark.options.parsers import parse_option, parse_subjects
from jetspark.validation import MAX_SEQUENCE, check_whole, path_of

if TYPE_CHECKING:
    import pyarrow as pa

    from jetspark.ranges.backup import Backup

_MAX_SUBJECTS = 20

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
def info(folder: str, /, *, subjects: str | None = None, json: JsonFlag = False) -> None:
    """Count the messages of a backup by subject; show the first and the last message.

    Reads the whole archive and verifies its checksums; `jetspark stream verify` also compares its
    SHA-256. Shows how many messages were removed from the stream during the backup.

    Args:
        folder: Folder or URI of a backup made by `jetspark stream backup` or `nats stream backup`.
        subjects: Only messages under these subjects, separated by commas.
        json: Print one JSON document, with every subject.
    """
    from jetspark.ranges.backup import open_backup

    opened = open_backup(folder)
    counts: Counter[str] = Counter()
    ends: dict[str, tuple[int, datetime]] = {}
    columns = ("subject", "seq", "timestamp")
    patterns = _parse_subjects(subjects)
    for batch in _read_with_progress(opened, patterns, columns, description="reading"):
        for pair in batch.column("subject").value_counts().to_pylist():
            counts[pair["values"]] += pair["counts"]
        seqs, times = batch.column("seq"), batch.column("timestamp")
        ends.setdefault("first", (seqs[0].as_py(), times[0].as_py()))
        ends["last"] = (seqs[-1].as_py(), times[-1].as_py())
    removed = f"{opened.removed:,} of {opened.facts.messages:,}, while it was backed up"
    facts: dict[str, object] = {
        "stream": opened.stream,
        "folder": opened.folder,
        "archive": f"{format_size(opened.size)}, "
        + ("a list of messages" if opened.blocks is None else "message blocks"),
        "messages": f"{counts.total():,}",
        "removed": removed if opened.removed else "",
        **{name: f"sequence {seq:,} at {format_time(time)}" for name, (seq, time) in ends.items()},
        "subjects": f"{len(counts):,}",
    }
    document = {
        "stream": opened.stream,
        "folder": opened.folder,
        "archive_bytes": opened.size,
        "messages": counts.total(),
        "removed": opened.removed,
        "first": None,
        "last": None,
        **{name: {"seq": seq, "time": time.isoformat()} for name, (seq, time) in ends.items()},
        "subjects": dict(counts.most_common()),
    }
    show_result(facts, document, as_json=json)
    if counts and not json:
        rows = [(name, f"{count:,}") for name, count in counts.most_common(_MAX_SUBJECTS)]
        show_table("subject", "messages", rows=rows)
        if len(counts) > _MAX_SUBJECTS:
            more = len(counts) - _MAX_SUBJECTS
            console.say(f"and {more:,} more subjects (all of them with --json)")


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
        folder: Folder or URI of a backup made by `jetspark stream backup` or `nats stream backup`.
        to: New Parquet file on this machine, with the columns of the Spark source.
        subjects: Only messages under these subjects, separated by commas.
        start: First sequence.
        end: Sequence before which to stop.
    """
    import pyarrow.parquet as pq

    from jetspark.ranges.arrow import COLUMNS, schema_of
    from jetspark.ranges.backup import open_backup

    target = _parse_new_file(to)
    for name, sequence in (("--start", start), ("--end", end)):
        if sequence is not None:
            check_whole(name, sequence, maximum=MAX_SEQUENCE)
    if start is not None and end is not None and end < start:
        raise ConfigError(f"--end {end} is before --start {start}.")
    opened = open_backup(folder)
    schema, patterns = schema_of(COLUMNS), _parse_subjects(subjects)
    rows = 0
    try:
        # In a temporary folder, since the next command removes those that killed processes left.
        with temporary_folder(f".{beginning(target.name)}.", target.parent) as hidden:
            part = hidden / "part"
            with part.open("xb") as file, pq.ParquetWriter(file, schema) as writer:
                for batch in _read_with_progress(
                    opened,
                    patterns,
                    COLUMNS,
                    description=f"writing {target}",
                    start=start,
                    end=end,
                ):
                    writer.write_batch(batch)
                    rows += batch.num_rows
            part.replace(target)
            written = target.stat().st_size
    except OSError as error:
        raise BackupError(f"Cannot write {target}: {error.strerror or error}.") from error
    show_result(
        f"Extracted {format_count(rows, 'message')} of stream {opened.stream} to {target} "
        f"({format_size(written)}).",
        {"stream": opened.stream, "file": str(target), "messages": rows, "bytes": written},
        as_json=json,
    )


def _parse_new_file(to: str) -> Path:
    """The path of --to, the file to write. Raises ConfigError for a URI or an existing file."""
    if not to.strip():
        raise ConfigError("--to is empty: name a new file.")
    if "://" in to:
        raise ConfigError(
            f"--to is a file on this machine, not {redact_folder(to)}: copy it there afterwards."
        )
    path = path_of("--to", to)
    if os.path.lexists(path):  # also a broken symlink
        raise ConfigError(f"{path} exists already: name a new file.")
    return path


def _parse_subjects(text: str | None) -> tuple[str, ...]:
    """The subject filters of the flag --subjects; none without it. Raises ConfigError."""
    return () if text is None else parse_option(parse_subjects, "subjects", text)


def _read_with_progress(
    opened: Backup,
    subjects: tuple[str, ...],
    columns: tuple[str, ...],
    *,
    description: str,
    start: int | None = None,
    end: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read messages of a stream's backup in Arrow batches, with a progress bar on the terminal.

    Yields the messages under `subjects` from sequence `start` to before `end`, with these columns.
    `description`: the label of the bar.
    """
    opened.check_subjects("--subjects", subjects)
    # Messages that were removed during the backup are no error here: commands tell their number.
    batches = opened.read(start, end, subjects=subjects, columns=columns, fail_on_data_loss=False)
    text = "{task.completed:,.0f} of {task.total:,.0f} messages, {task.fields[read]}"
    total = opened.facts.messages
    with progress_bar(description, TextColumn(text), total=total, read="0 B") as update:
        rows = nbytes = 0
        for batch in batches:
            rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
            update(completed=rows, read=format_size(nbytes))
            yield batch
