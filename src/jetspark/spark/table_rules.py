"""Decides whether a table, a checkpoint and a query belong together. Pure: states in, a step out.

Spark plans a batch in the checkpoint, writes it, lists its files in the table, and commits it in
the checkpoint. So the table is at the last batch that the checkpoint has committed, or one batch
ahead, and then that is the planned one. Otherwise the checkpoint belongs to another table, and
continuing would lose rows, since the sink skips numbers that the table has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from jetspark.errors import ConfigError
from jetspark.spark.lakehouse.options import PREFIX, LakehouseOptions
from jetspark.spark.table_files import place
from jetspark.spark.table_note import Note
from jetspark.spark.table_state import CheckpointState, TableState

_BY_POSITION = ("csv", "text")
LIKE = "streams like "
"""Prefix of a source with a pattern in `Wanted.streams`."""


class Step(Enum):
    """What has to be done before the query may start."""

    BEGIN = "write the first note"
    GO_ON = "nothing"
    ADOPT = "write a note for a table that has none"
    REBUILD = "make the checkpoint again from the note"


@dataclass(frozen=True)
class Wanted:
    """What a query will write. None: not known yet."""

    table: str
    checkpoint: str
    format: str
    partition_by: Sequence[str]
    streams: Sequence[str] | None = None
    columns: Sequence[tuple[str, str]] | None = None
    names: Mapping[str, str] | None = None
    """Names of the columns, and their types as far as known without Spark, else ""."""
    is_messages: bool = False
    """Each message becomes one row with its own stream and seq."""
    adopt: bool = False
    """Accept a table without a note as that of the checkpoint's query."""
    lakehouse: LakehouseOptions | None = None
    """A Delta or Iceberg table, whose metadata has the last batch of each query; None: a table of
    Spark's file sink."""

    @property
    def elsewhere(self) -> str:
        """Advice that always helps, as part of a sentence."""
        return f"take another folder, such as {self.table}-2"

    @property
    def start_again(self) -> str:
        """Advice when the checkpoint cannot be used, either."""
        return (
            f"{self.elsewhere}, and another checkpoint, and the stream is read from its start again"
        )


def next_step(table: TableState, checkpoint: CheckpointState, wanted: Wanted) -> Step:
    """Raises ConfigError, with what to do, for everything that does not belong together."""
    here = wanted.table
    if table.is_file:
        _refuse(f"{here} is a file: name a folder for the table.")
    if place(wanted.checkpoint) == place(here):
        _refuse(
            f"{wanted.checkpoint} is the folder of the table itself: take another one for the "
            f"checkpoint, such as {here}/_checkpoint."
        )
    if table.within is not None:
        _refuse(
            f"{here} would lie in {table.within}, another table or a checkpoint, and be lost with "
            "it: name a folder outside of that."
        )
    _check_place(checkpoint, wanted)
    note = table.note
    if table.batch is None or note is None or checkpoint.query is not None:  # else it is rebuilt
        check_whole(checkpoint, wanted.checkpoint, f"and {here}, or {wanted.start_again}")
    if note is not None and note.progress is not None and note.format != wanted.format:
        _refuse(
            f"{here} is a table in {_format(note.format)}, not in {_format(wanted.format)}: "
            f"{wanted.elsewhere}."
        )
    if table.batch is None:
        # A note alone is that of a first batch that did not come to its end: nothing is listed, so
        # the table belongs to no query yet, and the note of the next one replaces it.
        _check_nothing_lost(table, checkpoint, wanted)
        if wanted.adopt and not table.found:
            _refuse(
                f"{here} has no table to adopt: name the folder of one, or leave out --adopt "
                "(adopt=True) to begin one there."
            )
        _check_streams_of(checkpoint, wanted)
        return Step.BEGIN
    if note is None:
        _check_adoption(table.batch, checkpoint, wanted)
        _check_streams_of(checkpoint, wanted)
        return Step.ADOPT
    _check_identity(note, wanted)
    if checkpoint.query is None or checkpoint.is_new:
        _check_rebuild(table.batch, note, wanted)
        return Step.REBUILD
    if checkpoint.query != note.query:
        _refuse(
            f"{wanted.checkpoint} is not the checkpoint of {here}: name the table's own, or, if "
            f"that is lost, {_otherwise(table.batch, note, wanted)}."
        )
    _check_numbers(table.batch, checkpoint, wanted, note)
    return Step.GO_ON


def check_whole(checkpoint: CheckpointState, name: str, advice: str) -> None:
    """Raises ConfigError for a checkpoint that was removed while a query used it, and has only what
    was planned since. `advice`: what to remove beside it, or to do in place of that."""
    if checkpoint.lost is not None:
        _refuse(
            f"{name} has lost its batch {checkpoint.lost} and those before: it was removed, "
            f"perhaps with the table, while a query used it. To begin anew, remove it {advice}."
        )


def _check_place(checkpoint: CheckpointState, wanted: Wanted) -> None:
    """For a checkpoint that does not exist yet: it needs a folder of its own."""
    if not checkpoint.is_new:
        return
    advice = f"take another folder for the checkpoint, such as {wanted.table}/_checkpoint"
    if place(wanted.table).startswith(f"{place(wanted.checkpoint)}/"):
        _refuse(f"{wanted.table} would lie in its checkpoint {wanted.checkpoint}: {advice}.")
    if checkpoint.others:
        more = ", …" if len(checkpoint.others) > 1 else ""
        _refuse(
            f"{wanted.checkpoint} holds other things than a checkpoint ({checkpoint.others[0]}"
            f"{more}): {advice}."
        )
    if checkpoint.within is not None and checkpoint.within != place(wanted.table):
        _refuse(
            f"{wanted.checkpoint} would lie in {checkpoint.within}, another table or checkpoint, "
            f"and be lost with it: {advice}."
        )
    inside = f"{place(wanted.table)}/"
    if wanted.lakehouse is not None and place(wanted.checkpoint).startswith(inside):
        first = place(wanted.checkpoint).removeprefix(inside).partition("/")[0]
        if first[0] != "_":
            _refuse(
                f"{wanted.checkpoint} is inside of the table, where {first} would count as a part "
                f"of it: {advice}."
            )


def _check_nothing_lost(table: TableState, checkpoint: CheckpointState, wanted: Wanted) -> None:
    """For a table without a batch."""
    here = wanted.table
    if table.others and wanted.lakehouse is not None:
        if not wanted.adopt:
            _refuse(
                f"The {wanted.lakehouse.format.capitalize()} table {here} was made by another "
                f"program: {wanted.elsewhere}, or let the rows be added to those that are there "
                "(--adopt, adopt=True)."
            )
    elif table.others:
        more = ", …" if len(table.others) > 1 else ""
        _refuse(
            f"{here} holds files that no streaming query of Spark has listed ({table.others[0]}"
            f"{more}); Spark would hide them from the first batch on: {wanted.elsewhere}."
        )
    if table.note is not None and table.note.progress is not None:
        lost = (
            "Spark's list of its files (_spark_metadata)"
            if wanted.lakehouse is None
            else "the batches that its note knows: the table was removed or put back"
        )
        _refuse(f"{here} has lost {lost}: bring it back, or {wanted.start_again}.")
    if checkpoint.committed is not None:
        _refuse(
            f"{wanted.checkpoint} counts {_batches(checkpoint.committed)} as read that {here} does "
            "not have: it is the checkpoint of another table, or this table was removed. Take "
            "another checkpoint (or remove this one) to read the stream from its start."
        )


def _check_adoption(batch: int, checkpoint: CheckpointState, wanted: Wanted) -> None:
    """For a table with batches and without a note."""
    here = wanted.table
    whose = f"{here} was written by a streaming query that jetspark knows nothing of"
    if checkpoint.query is None or checkpoint.is_new:
        _refuse(
            f"{whose}, and {wanted.checkpoint} is not its checkpoint: {wanted.elsewhere}, or adopt "
            "the table with the checkpoint of that very query (--adopt --checkpoint FOLDER; in "
            "Python adopt=True, checkpoint=…)."
        )
    if not wanted.adopt:
        _refuse(
            f"{whose}: {wanted.elsewhere}, or, if {wanted.checkpoint} is the checkpoint of that "
            "very query, adopt the table (--adopt, adopt=True)."
        )
    _check_numbers(batch, checkpoint, wanted, None)


def _check_streams_of(checkpoint: CheckpointState, wanted: Wanted) -> None:
    known = checkpoint.streams
    if (
        known is None
        or wanted.streams is None
        or any(one.startswith(LIKE) for one in wanted.streams)
    ):
        return  # a pattern may since have found more, or fewer
    if known != list(wanted.streams):
        _refuse(
            f"{wanted.checkpoint} is the checkpoint of a query on {_several(known)}, not on "
            f"{_several(wanted.streams)}: take another checkpoint."
        )


def _check_identity(note: Note, wanted: Wanted) -> None:
    here, other = wanted.table, wanted.elsewhere
    if wanted.streams is not None and list(wanted.streams) != note.streams:
        _refuse(
            f"{here} is the table of {_several(note.streams)}, not of "
            f"{_several(wanted.streams)}: {other}."
        )
    if wanted.format != note.format:
        _refuse(
            f"{here} is a table in {_format(note.format)}, not in {_format(wanted.format)}: "
            f"{other}."
        )
    if list(wanted.partition_by) != note.partition_by:
        _refuse(
            f"{here} is partitioned by {_several(note.partition_by)}, not by "
            f"{_several(wanted.partition_by)}: leave that as it was, or {other}."
        )
    if wanted.lakehouse is not None:
        return  # the sink compares the columns, and may add some
    columns = wanted.columns
    if columns is None and wanted.names is not None:
        kinds = dict(note.columns)
        columns = [(name, kind or kinds.get(name, "")) for name, kind in wanted.names.items()]
    if columns is not None:
        changes = _changes(note.columns, columns, by_position=note.format in _BY_POSITION)
        if changes:
            _refuse(
                f"{here} would get other columns than it has ({changes}), and readers see only "
                f"one kind of row: leave the columns as they were, or {other}."
            )


def _changes(
    before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]], *, by_position: bool
) -> str:
    old, new = dict(before), dict(now)
    said = [f"new: {name} {new[name]}".rstrip() for name in new if name not in old]
    said += [f"missing: {name}" for name in old if name not in new]
    said += [
        f"{name}: {new[name]} in place of {old[name]}"
        for name in old
        if name in new and old[name] != new[name]
    ]
    if by_position and not said and list(old) != list(new):
        said = [f"in the order {', '.join(new)}"]
    return "; ".join(said)


def _check_rebuild(batch: int, note: Note, wanted: Wanted) -> None:
    if _has_all(batch, note):
        return
    known = "none" if note.progress is None else f"only {_batches(note.progress.batch)}"
    _refuse(
        f"{wanted.checkpoint} is not the checkpoint of {wanted.table}, which has "
        f"{_batches(batch)}, and it cannot be made again, since the table's note knows {known}: "
        f"name the table's checkpoint, or {wanted.start_again}."
    )


def _check_numbers(
    batch: int, checkpoint: CheckpointState, wanted: Wanted, note: Note | None
) -> None:
    done = -1 if checkpoint.committed is None else checkpoint.committed
    planned = -1 if checkpoint.planned is None else checkpoint.planned
    if done > batch:
        _refuse(
            f"{wanted.checkpoint} counts {_batches(done)} as read, but {wanted.table} has only "
            f"{_batches(batch)}: bring back the whole table, or {wanted.start_again}."
        )
    same = True
    if note is not None and note.progress is not None and planned == batch:
        same = note.progress.offsets.get(batch, checkpoint.end) == checkpoint.end
    if batch > done + 1 or planned < batch or not same:
        _refuse(
            f"{wanted.checkpoint} is older than {wanted.table}, which has {_batches(batch)}: name "
            f"the checkpoint that wrote the last of them, or {_otherwise(batch, note, wanted)}."
        )


def _has_all(batch: int, note: Note | None) -> bool:
    progress = None if note is None else note.progress
    return progress is not None and progress.batch == batch and bool(progress.offsets)


def _otherwise(batch: int, note: Note | None, wanted: Wanted) -> str:
    """Advice when the checkpoint is lost."""
    if _has_all(batch, note):
        return "name an empty folder as checkpoint, where it is rebuilt from the table's note"
    return wanted.start_again


def _batches(last: int) -> str:
    return "1 batch" if last == 0 else f"{last + 1:,} batches"


def _format(name: str) -> str:
    return name.removeprefix(PREFIX)


def _several(names: Sequence[str]) -> str:
    return " and ".join(names) or "nothing"


def _refuse(sentence: str) -> NoReturn:
    raise ConfigError(sentence)
