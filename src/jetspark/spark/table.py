"""Starts queries with a file sink, after checking that table and query belong together.

Before the first batch the table's folder, the checkpoint and the query are compared, and refused if
they do not belong together (`table_rules`). While the query runs, the table's note is updated with
its checkpoint (`table_note`, `table_keeper`), and a second writer is refused (`table_claim`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.errors import ConfigError
from jetspark.lakehouse.batches import begin_at
from jetspark.lakehouse.formats import open_table
from jetspark.spark import table_claim
from jetspark.spark.lakehouse.state import read_lakehouse_table
from jetspark.spark.lakehouse.target import check_columns, check_fit
from jetspark.spark.options import SourceOptions
from jetspark.spark.plan_sources import streaming_sources
from jetspark.spark.starting import begun
from jetspark.spark.table_batch import check_open_batch
from jetspark.spark.table_claim import claim_on
from jetspark.spark.table_files import (
    Files,
    HadoopFiles,
    LocalFiles,
    file_in_the_way,
    local_path,
    make_local_folder,
    not_writable,
)
from jetspark.spark.table_keeper import Keeper, check_own
from jetspark.spark.table_note import FOLDER, Note, Notes, Progress
from jetspark.spark.table_rules import LIKE, Step, Wanted, next_step
from jetspark.spark.table_state import (
    CheckpointState,
    TableState,
    entries,
    left_by_a_kill,
    named,
    partitions_of,
    read_checkpoint,
    read_table,
)

logger = logging.getLogger("jetspark.spark")

FORMATS = frozenset({"parquet", "json", "orc", "csv", "text", "xml", "avro"})
"""Formats that Spark's file sink writes."""


def streams_text(options: SourceOptions) -> str:
    """The streams of a source, as one string for the table's note."""
    if options.stream_pattern is not None:
        return LIKE + options.stream_pattern
    if options.keys:  # another choice would leave keys out, or keep them for ever
        return f"{named(options.streams)} (keys {', '.join(sorted(options.keys))})"
    return named(options.streams)


def look_ahead(wanted: Wanted) -> None:
    """Check local folders as far as possible before Spark is started; changes nothing.

    Raises ConfigError for a table, a checkpoint and a query that do not belong together.
    """
    table, checkpoint = local_path(wanted.table), local_path(wanted.checkpoint)
    _check_ways(wanted, table, checkpoint)
    if table is None or checkpoint is None:
        return
    table_claim.check_lock(wanted.table, table)
    next_step(*_states(LocalFiles(), table, checkpoint, wanted), wanted)
    if wanted.lakehouse is not None and wanted.names is not None:
        check_columns(wanted.lakehouse, wanted.names)


def start(rows: DataFrame, wanted: Wanted, write: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start the query of `write`, if the table belongs to it.

    Raises ConfigError; then nothing was written.
    """
    files = HadoopFiles(rows.sparkSession)
    wanted = replace(
        wanted,
        streams=_streams_of(rows),
        columns=[(field.name, field.dataType.simpleString()) for field in rows.schema],
    )
    _check_ways(wanted, files.local(wanted.table), files.local(wanted.checkpoint))
    place = files.qualified(wanted.table)
    check_own(wanted.table, place)
    claim = claim_on(files, wanted.table)
    claim.check()
    states = _states(files, wanted.table, wanted.checkpoint, wanted)
    step = _checked(files, rows, wanted, *states)
    claim.take()
    try:
        # Another query may have written in the meantime.
        if (now := _states(files, wanted.table, wanted.checkpoint, wanted)) != states:
            step = _checked(files, rows, wanted, *now)
        note = _prepare(files, step, wanted)
        keeper = Keeper(files, place, wanted, note, claim)
    except BaseException:
        claim.release()
        raise
    try:
        keeper.query = begun(write)
    except BaseException:
        keeper.end()
        raise
    return keeper.query


# -- before the query ------------------------------------------------------------------------


def _check_ways(wanted: Wanted, table: str | None, checkpoint: str | None) -> None:
    """Raises ConfigError for local folders that cannot be created or written."""
    for what, name, here in (
        ("table", wanted.table, table),
        ("checkpoint", wanted.checkpoint, checkpoint),
    ):
        if here is not None:
            check_way(what, name, here)


def check_way(what: str, name: str, here: str) -> None:
    """Raises ConfigError if a local folder cannot be created or written."""
    file = file_in_the_way(here)
    if file is not None:
        which = "" if file == str(Path(here)) else f"{name} cannot be made: "
        shown = name if not which else file
        raise ConfigError(f"{which}{shown} is a file: name a folder for the {what}.")
    if (reason := not_writable(here)) is not None:
        raise ConfigError(
            f"{name} cannot be written: {reason}; name another folder for the {what}."
        )


def _streams_of(rows: DataFrame) -> list[str]:
    """The streams of each source of a streaming DataFrame, in Spark's order."""
    return [one if isinstance(one, str) else streams_text(one) for one in streaming_sources(rows)]


def _states(
    files: Files, table: str, checkpoint: str, wanted: Wanted
) -> tuple[TableState, CheckpointState]:
    there = read_checkpoint(files, checkpoint)
    if wanted.lakehouse is not None:
        return read_lakehouse_table(files, table, wanted.lakehouse, there.query), there
    return read_table(files, table, checkpoint), there


def _checked(
    files: HadoopFiles,
    rows: DataFrame,
    wanted: Wanted,
    table: TableState,
    checkpoint: CheckpointState,
) -> Step:
    """The first step. Raises ConfigError, also for what only Spark knows."""
    step = next_step(table, checkpoint, wanted)
    if wanted.lakehouse is not None:
        check_fit(wanted.lakehouse, rows.schema)
        return step
    if step is Step.GO_ON and table.batch is not None and checkpoint.committed != table.batch:
        check_open_batch(files, rows, wanted, table.batch)
    if step is Step.ADOPT and table.batch is not None:
        _check_columns(rows, wanted)
        by = partitions_of(files, wanted.table, table.batch)
        if by != list(wanted.partition_by):
            raise ConfigError(
                f"{wanted.table} is partitioned by {', '.join(by) or 'nothing'}: say the same, or "
                f"{wanted.elsewhere}."
            )
    return step


def _check_columns(rows: DataFrame, wanted: Wanted) -> None:
    """For a table without a note: compare the columns that readers see."""
    reader = rows.sparkSession.read.format(wanted.format)
    there = {
        field.name: field.dataType.simpleString() for field in reader.load(wanted.table).schema
    }
    # Readers guess the types of partition columns from the folders' names.
    for name, kind in wanted.columns or ():
        if name in wanted.partition_by and name in there:
            there[name] = kind
    if there != dict(wanted.columns or ()):
        raise ConfigError(
            f"{wanted.table} has the columns {', '.join(f'{n} {k}' for n, k in there.items())}, "
            f"and this query writes others: {wanted.elsewhere}."
        )


def _prepare(files: HadoopFiles, step: Step, wanted: Wanted) -> Note:
    """Write the note and what the checkpoint lacks; a kill in between leaves an equivalent state.

    The query's id is chosen here, since Spark uses the one in the checkpoint.
    """
    table, checkpoint = wanted.table, wanted.checkpoint
    for name in files.names(f"{table}/{FOLDER}") or ():
        if name.startswith(".") and ".tmp" in name:
            files.remove(f"{table}/{FOLDER}/{name}")
    notes = Notes(files, table)
    before = notes.newest()
    query = read_checkpoint(files, checkpoint).query
    if query is None or step is Step.REBUILD:
        query = str(uuid.uuid4())  # a new one, so that the lost checkpoint is not accepted again
    if step is Step.GO_ON and before is not None:
        return before
    progress = before.progress if step is Step.REBUILD and before is not None else None
    note = Note(
        query=query,
        streams=list(wanted.streams or ()),
        format=wanted.format,
        columns=list(wanted.columns or ()),
        partition_by=list(wanted.partition_by),
        progress=progress,
    )
    new = {} if progress is None else _rebuilt(progress, files, checkpoint)
    # The checkpoint first: when it cannot be written to, the note still names the former one. Until
    # it has metadata, a rebuilt checkpoint belongs to no query.
    if (here := files.local(checkpoint)) is not None:
        make_local_folder(checkpoint, here)
    files.make_folder(checkpoint)
    if wanted.lakehouse is not None and progress is not None:
        begin_at(open_table(wanted.lakehouse.format, wanted.lakehouse.name), query, progress.batch)
    if step is Step.REBUILD:
        files.remove(f"{checkpoint}/metadata")
        for path, text in new.items():
            files.write(f"{checkpoint}/{path}", text)
    if note != before:
        notes.write(files, note)
    if step is Step.REBUILD:
        logger.warning(
            "%s: rebuilt after the last batch of %s, from the table's note.",
            checkpoint,
            table,
        )
    if read_checkpoint(files, checkpoint).is_new:
        for path in left_by_a_kill(files, checkpoint):
            files.remove(path)
    metadata = f"{checkpoint}/metadata"
    if step is Step.REBUILD or read_checkpoint(files, checkpoint).query is None:
        files.remove(metadata)
        files.write(metadata, msgspec.json.encode({"id": query}).decode())
    return note


def _rebuilt(progress: Progress, files: HadoopFiles, checkpoint: str) -> Mapping[str, str]:
    """The entries that the checkpoint lacks. Raises ConfigError if it has other ones instead."""
    all_ = {f"offsets/{number}": text for number, text in progress.offsets.items()}
    all_[f"commits/{progress.batch}"] = progress.commit
    there = entries(files, checkpoint)
    last = max(int(path.rpartition("/")[2]) for path in [*there, *all_])
    if last > progress.batch or any(
        all_[path] != text for path, text in there.items() if path in all_
    ):
        raise ConfigError(
            f"{checkpoint} has lost its file metadata: name an empty folder as checkpoint, where "
            "it is rebuilt from the table's note."
        )
    return {path: text for path, text in all_.items() if path not in there}
