"""A table with all that the row of a key has been, and when (a slowly changing dimension, type 2).

Each change is a row: valid from its time until the next change of its key. A deletion is a row,
too, which is valid for no time. What was true at a moment are the rows with `valid_from` at or
before it and `valid_to` after it, or null: of each key the last change in the order whose time is
not after the moment, also where the times do not have the order of the changes.

A change that is there already, by its keys and its place in the order, is not added again, and one
that comes late takes its place between the others. Changes with one place in a user's order have
that of their messages in the stream; a table that lacks the messages' sequences cannot hold two
changes of a key with one place. Changes of a database have a position
(`payloads.log_position`): those of one place in its log are told from repeats by what changed. If
there are several, a repeat moves its change to where it came last, as Debezium repeats all of them.

A truncate is a deletion of each key that has a row before it, and a row without a key, so that it
also ends rows that come later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError
from jetspark.payloads import log_position
from jetspark.tables.changes import ROW_ORDER, Changes, with_row_order
from jetspark.tables.new_files import NewFile
from jetspark.tables.schemas import values_differ
from jetspark.tables.table import Table
from jetspark.tables.upserts import Upsert, existing_rows

FROM, TO = "valid_from", "valid_to"
_IS_NEW = "_jetspark_new_row"
_LOG, _CHANGE = f"{ROW_ORDER}_log", f"{ROW_ORDER}_change"
_MESSAGE_IDENTITY = ("seq", "stream")
"""The columns of messages that tell apart changes with one place in the order."""


@dataclass(frozen=True)
class History(Upsert):
    """Merges the changes of a batch into a table of history, which has a row for each change of a
    key, with the times between which it was valid; a `CommitAction` of `batches`."""

    history_by: str = ""
    """The column with the time of a change; `sequence_by` is set, too."""

    added_columns = (FROM, TO)

    def table_schema(self, rows: pa.Schema) -> pa.Schema:
        """The columns of a table of history for these rows: theirs, `valid_from` and `valid_to`.
        Raises ConfigError if the column with the times of changes has no timestamps, or if the rows
        have a column of one of these names."""
        kind = rows.field(self.history_by).type
        if not pa.types.is_timestamp(kind):
            raise ConfigError(
                f": {self.history_by!r} has the type {kind}; name a timestamp.", option="history_by"
            )
        if clashes := set(self.added_columns) & set(rows.names):
            raise ConfigError(
                f": the rows have a column {min(clashes)}, which the table has "
                "for itself: leave it out, or give it another name.",
                option="history_by",
            )
        return pa.schema([*rows, pa.field(FROM, kind), pa.field(TO, kind)])

    def _columns_by_option(self) -> Iterator[tuple[str, str]]:
        yield from super()._columns_by_option()
        yield "history_by", self.history_by

    def changes(self, table: Table, files: Sequence[NewFile]) -> Changes:
        """Compute what the changes in these files do to a table of history: rows that it lacks,
        rows that it has with another `valid_to`, and rows that it loses."""
        rows, removed = pa.table({}), pa.table({})
        if rows_and_truncates := list(self.read(table, files)):
            new, truncates = map(pa.concat_tables, zip(*rows_and_truncates, strict=True))
            rows, removed = self._merge_into_history(table, new, truncates)
        return Changes(
            rows=pa.concat_tables([rows, removed.select(rows.schema.names)]),
            deleted=pa.chunked_array(
                [
                    pa.repeat(pa.scalar(False), rows.num_rows),
                    pa.repeat(pa.scalar(True), removed.num_rows),
                ]
            ),
            keys=self._identity(table.schema),
            sequence_by=None,
        )

    def _identity(self, schema: pa.Schema) -> tuple[str, ...]:
        """The columns that tell a change from all others, and by which changes are sorted: the
        keys, the order, and, where two changes can have one place in the order, the message's
        sequence and stream, as far as the table has them."""
        message = [
            name
            for name in _MESSAGE_IDENTITY
            if name in schema.names
            and (pa.types.is_integer(kind := schema.field(name).type) or pa.types.is_string(kind))
        ]
        tie_breakers = [] if self.by_position else message
        return tuple(dict.fromkeys((*self.keys, self._order, *tie_breakers)))

    @property
    def _order(self) -> str:
        """The column that orders changes, which a history always has."""
        assert self.sequence_by is not None  # noqa: S101
        return self.sequence_by

    def _merge_into_history(
        self, table: Table, new: pa.Table, truncates: pa.Table
    ) -> tuple[pa.Table, pa.Table]:
        """Compute (rows to insert or replace, rows to remove) of a table of history, for new
        changes and truncates.

        A row is replaced if its `valid_to` changes, since a change now follows it.
        """
        # A truncate ends the rows of all keys, so all of them are read.
        keys = None if truncates.num_rows else new.select(self.keys)
        existing = existing_rows(table, new.schema, keys)
        # The table remembers a truncate as a row without a key.
        is_truncate = existing[self.keys[0]].is_null()
        known_truncates = existing.filter(is_truncate)
        existing = existing.filter(pc.invert(is_truncate))
        all_truncates = pa.concat_tables([known_truncates, truncates]).sort_by(self._order)
        if self.by_position:
            new = self._place_in_log(new, existing, all_truncates)
        rows, removed = self._deduplicated(_mark_new(existing, new=False), new)
        # Each truncate deletes the keys that exist just before it. For truncates of the table this
        # was done before, so without a new one they only concern new changes that come before them.
        if not truncates.num_rows:
            first = pc.min(new[self._order])
            all_truncates = all_truncates.filter(pc.greater(all_truncates[self._order], first))
        for index in range(all_truncates.num_rows):
            deletions = self._deletions_by(all_truncates.slice(index, 1), rows)
            rows, removed_now = self._deduplicated(rows, deletions)
            removed = pa.concat_tables([removed, removed_now])
        # Deletions of keys that were already deleted are left out, or removed from the table.
        is_needless = self._deletes_nothing(rows)
        known = pc.invert(rows[_IS_NEW].combine_chunks())
        needless = rows.filter(pc.and_(is_needless, known)).drop_columns([_IS_NEW])
        removed = pa.concat_tables([removed, needless])
        rows = rows.filter(pc.invert(is_needless)).combine_chunks()
        rows = self._changed_rows(rows, new.schema)
        if all(table.schema.field(key).nullable for key in self.keys):  # else it cannot hold them
            truncates = self._missing_truncates(known_truncates, truncates)
            times = truncates[self.history_by].combine_chunks()
            truncates = _set_columns(truncates, {FROM: times, TO: times}, new.schema)
            rows = pa.concat_tables([rows, truncates])
        return rows, removed

    # -- which changes there are -----------------------------------------------------------

    def _place_in_log(self, new: pa.Table, existing: pa.Table, truncates: pa.Table) -> pa.Table:
        """The new changes of a database, where those that came without a place in its log get the
        place of the change of their key before them, or of the truncate before them. `existing`:
        rows of the table; `truncates`: old and new ones."""
        is_unplaced = log_position.without_log(new[self._order])
        if not pc.any(is_unplaced).as_py():
            return new
        placed, names = new.filter(pc.invert(is_unplaced)), [*self.keys, self._order]
        earlier = pa.concat_tables([placed.select(names), existing.select(names)])
        positions = truncates[self._order].to_pylist()
        newly_placed = self.place_in_log(
            new.filter(is_unplaced), placed=earlier, truncates=positions
        )
        return pa.concat_tables([placed, newly_placed])

    def _deduplicated(self, known: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Unite known and new changes: returns (each change once, in order; rows to remove from the
        table, since a repeat of their change came in another place).

        `known`: rows of the table, or a former result, with the column `_IS_NEW`.
        """
        names = self._identity(new.schema)
        rows = pa.concat_tables([known, _mark_new(new, new=True)])
        rows = rows.sort_by([(name, "ascending") for name in (*names, _IS_NEW)]).combine_chunks()
        repeats = _same_as_previous(rows, names)  # the table's row is first, and stays
        # Without the messages' sequences, two changes with one place cannot be told from a repeat.
        if not self.by_position and names[-1] not in _MESSAGE_IDENTITY:
            self._check_repeats_are_equal(rows, repeats)
        rows = rows.filter(pc.invert(repeats)).combine_chunks()
        if not self.by_position or not rows.num_rows:
            return rows, rows.slice(0, 0).drop_columns([_IS_NEW])
        # A repeated change of a database is another message, so its position differs.
        is_kept = self._first_or_last_of_each_change(rows)
        removed = pc.and_(pc.invert(is_kept), pc.invert(rows[_IS_NEW].combine_chunks()))
        return rows.filter(is_kept).combine_chunks(), rows.filter(removed).drop_columns([_IS_NEW])

    def _check_repeats_are_equal(self, rows: pa.Table, repeats: pa.Array) -> None:
        """Raise ConfigError if two different changes of a key have the same place in the order: for
        a repeat of a change, all columns have to be equal. `repeats`: mask of the rows with the
        same keys and place as the row before."""
        identity = (*self.keys, self._order)
        # Each repeat, and the row before it, of which it is one.
        repeated = rows.drop_columns([FROM, TO, _IS_NEW]).filter(
            pc.or_(repeats, _shift_up(repeats))
        )
        first: dict[str, Any] = {}
        for row in repeated.to_pylist():
            if any(name not in first or first[name] != row[name] for name in identity):
                first = row  # of the next change
            elif repr(row) != repr(first):
                key = ", ".join(f"{name}={row[name]!r}" for name in self.keys)
                raise ConfigError(
                    f"Two different changes of {key} have the same {self._order} "
                    f"({row[self._order]}), so the history cannot say which was first: order them "
                    "by a column whose values differ, or keep the message column seq in the table."
                )

    def _first_or_last_of_each_change(self, rows: pa.Table) -> pa.Array:
        """Mask of the rows that stay when repeats of a database's changes are dropped: of repeats
        the first one stays, or the last if other changes of the key have the same place in the log
        (Debezium then repeats all of them, in order). `rows`: all changes, in order."""
        ordered = with_row_order(rows.select(self.keys))
        ordered = ordered.append_column(_LOG, log_position.log_places(rows[self._order]))
        ordered = ordered.append_column(_CHANGE, log_position.change_ids(rows[self._order]))
        place = [*self.keys, _LOG]
        changes = ordered.group_by([*place, _CHANGE], use_threads=False).aggregate(
            [(ROW_ORDER, "min"), (ROW_ORDER, "max")]
        )
        if changes.num_rows == rows.num_rows:  # there are no repeats
            return pa.repeat(pa.scalar(True), rows.num_rows)
        # How many different changes of a key have this place.
        counts = changes.group_by(place).aggregate([(_CHANGE, "count")])
        changes = changes.join(counts, place)
        is_alone = pc.equal(changes[f"{_CHANGE}_count"], 1)
        kept = pc.if_else(is_alone, changes[f"{ROW_ORDER}_min"], changes[f"{ROW_ORDER}_max"])
        return pc.is_in(ordered[ROW_ORDER], value_set=kept.combine_chunks()).combine_chunks()

    # -- deletions and truncates -----------------------------------------------------------

    def _is_deletion(self, rows: pa.Table) -> pa.Array:
        """Boolean mask of the rows that delete their key, by themselves or for a truncate."""
        mask = pa.repeat(pa.scalar(False), rows.num_rows)
        for condition in (self.deletes, self.truncates):
            if condition is not None and rows.num_rows:
                mask = pc.or_(mask, condition.of(rows).combine_chunks())
        return mask

    def _deletions_by(self, truncate: pa.Table, rows: pa.Table) -> pa.Table:
        """Make rows that delete, at the place of a truncate, each key that exists just before it.
        `truncate`: a table with this row only; `rows`: all changes, in order."""
        is_before = pc.less(rows[self._order], truncate[self._order][0]).combine_chunks()
        next_is_before = pc.and_(_same_as_next(rows, self.keys), _shift_up(is_before))
        is_last_before = pc.and_(is_before, pc.invert(next_is_before))
        ended = rows.filter(pc.and_(is_last_before, pc.invert(self._is_deletion(rows))))
        # Copies of the truncate's row, with the keys that it deletes.
        deletions = truncate.take(pa.array([0] * ended.num_rows, pa.int64()))
        for key in self.keys:
            index = deletions.schema.get_field_index(key)
            deletions = deletions.set_column(index, key, ended[key])
        return deletions

    def _deletes_nothing(self, rows: pa.Table) -> pa.Array:
        """Mask of the deletions for a truncate whose key does not exist at that place, so that they
        delete nothing. They come about when a repeated change moves. `rows`: all changes, in
        order."""
        if self.truncates is None or not rows.num_rows:
            return pa.repeat(pa.scalar(False), rows.num_rows)
        # The deletions for a truncate are copies of its row, so they meet its condition, too.
        previous_is_deletion = _shift_down(self._is_deletion(rows))
        follows_a_row = pc.and_(_same_as_previous(rows, self.keys), pc.invert(previous_is_deletion))
        return pc.and_(self.truncates.of(rows).combine_chunks(), pc.invert(follows_a_row))

    def _missing_truncates(self, existing: pa.Table, truncates: pa.Table) -> pa.Table:
        """The truncates that a table of history does not have yet, each once. `existing`: those
        that it has, as rows without a key."""
        orders = pa.concat_tables([existing, truncates])[self._order]
        # A repeated truncate has another position, but the same id.
        ids = (log_position.change_ids(orders) if self.by_position else orders).to_pylist()
        known_ids, missing = {*ids[: existing.num_rows]}, []
        for index, change_id in enumerate(ids[existing.num_rows :]):
            if change_id not in known_ids:
                known_ids.add(change_id)
                missing.append(index)
        return truncates.take(pa.array(missing, pa.int64()))

    # -- when changes are valid ------------------------------------------------------------

    def _changed_rows(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """The rows to write: those that the table lacks, or whose `valid_to` changes, with
        `valid_from` and `valid_to` filled in. `rows`: all changes, in order; `schema`: of the
        result."""
        begins = rows[self.history_by].combine_chunks()
        ends = pa.array(
            _end_times(
                begins.cast(pa.int64()).to_pylist(),
                next_is_same_key=_same_as_next(rows, self.keys).to_pylist(),
                is_deletion=self._is_deletion(rows).to_pylist(),
            ),
            pa.int64(),
        ).cast(begins.type)
        has_other_end = values_differ(ends, rows[TO].combine_chunks())
        is_changed = pc.or_(rows[_IS_NEW].combine_chunks(), has_other_end)
        rows = _set_columns(rows, {FROM: begins, TO: ends}, schema)
        return rows.drop_columns([_IS_NEW]).filter(is_changed)


def _end_times(
    begins: Sequence[int | None], next_is_same_key: Sequence[bool], is_deletion: Sequence[bool]
) -> list[int | None]:
    """The time until which each change of a history is valid; None if it still is. The arguments
    are of all changes, in order: the time of each, whether the next one is of the same key, and
    whether it deletes its key.

    A change ends at the earliest time of all later changes of its key, but not before it begins:
    times need not have the order of the changes. A deletion ends when it begins.
    """
    ends: list[int | None] = []
    earliest: int | None = None  # of all later changes of the key
    for begin, has_next, deletes in zip(
        reversed(begins), reversed(next_is_same_key), reversed(is_deletion), strict=True
    ):
        earliest = earliest if has_next else None
        known_times = [time for time in (begin, earliest) if time is not None]
        if deletes:
            ends.append(begin)
        else:
            ends.append(None if earliest is None else max(known_times))
        earliest = min(known_times, default=None)
    return ends[::-1]


def _set_columns(rows: pa.Table, columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    """The rows with other values in these columns, whose fields are taken from the schema."""
    for name, values in columns.items():
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, schema.field(name), values)
    return rows


def _mark_new(rows: pa.Table, *, new: bool) -> pa.Table:
    """The rows with a boolean column `_IS_NEW` added, which is false for rows of the table, and
    true for rows that it lacks."""
    return rows.append_column(_IS_NEW, pa.repeat(pa.scalar(new), rows.num_rows))


def _same_as_previous(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Boolean mask of the rows that have the same values as the row before in these columns."""
    if not rows.num_rows:
        return pa.array([], pa.bool_())
    is_same = pa.repeat(pa.scalar(True), rows.num_rows - 1)
    for name in names:
        column = rows[name].combine_chunks()
        is_same = pc.and_(is_same, pc.invert(values_differ(column[1:], column[:-1])))
    return pa.concat_arrays([pa.array([False]), is_same])


def _same_as_next(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Boolean mask of the rows that have the same values as the row after in these columns."""
    return _shift_up(_same_as_previous(rows, names))


def _shift_up(mask: pa.Array) -> pa.Array:
    """The mask moved up by a row: each row has the value of the next one, the last has False."""
    return pa.concat_arrays([mask[1:], pa.array([False] * min(len(mask), 1), pa.bool_())])


def _shift_down(mask: pa.Array) -> pa.Array:
    """The mask moved down by a row: each has the value of the previous one, the first has False."""
    return pa.concat_arrays([pa.array([False] * min(len(mask), 1), pa.bool_()), mask[:-1]])
