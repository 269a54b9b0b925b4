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
from jetspark.tables.new_files import NewFile
from jetspark.tables.table import ROW_ORDER, Changes, Table, TxnVersions
from jetspark.tables.upserts import Upsert

FROM, TO = "valid_from", "valid_to"
_IS_NEW = "_jetspark_new_row"
_LOG, _CHANGE = f"{ROW_ORDER}_log", f"{ROW_ORDER}_change"
_NEVER = -(2**63)
_OF_MESSAGE = ("seq", "stream")
"""The columns of messages that tell apart changes with one place in the order."""


@dataclass(frozen=True)
class History(Upsert):
    """Merges the changes of a batch into a table of history; a `CommitAction` of `batches`."""

    history_by: str = ""
    """The column with the time of a change; `sequence_by` is set, too."""

    added_columns = (FROM, TO)

    def table_schema(self, rows: pa.Schema) -> pa.Schema:
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

    def _columns(self) -> Iterator[tuple[str, str]]:
        yield from super()._columns()
        yield "history_by", self.history_by

    def __call__(self, table: Table, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        parts = list(self.read(table, files))
        rows, removed = pa.table({}), pa.chunked_array([pa.array([], pa.bool_())])
        if parts:
            new, truncates = (pa.concat_tables(tables) for tables in zip(*parts, strict=True))
            rows, removed = self._changed(table, new, truncates)
        self.merge(table, Changes(rows, removed, self._identity(table.schema), None), txn_versions)

    def _identity(self, columns: pa.Schema) -> tuple[str, ...]:
        """Columns that identify a change, in the order of the changes."""
        more = () if self.by_position else _OF_MESSAGE
        fields = (columns.field(name) for name in more if name in columns.names)
        ties = (
            column.name
            for column in fields
            if pa.types.is_integer(column.type) or pa.types.is_string(column.type)
        )
        return tuple(dict.fromkeys((*self.keys, self._order, *ties)))

    @property
    def _order(self) -> str:
        assert self.sequence_by is not None  # noqa: S101
        return self.sequence_by

    def _changed(
        self, table: Table, new: pa.Table, truncates: pa.Table
    ) -> tuple[pa.Table, pa.ChunkedArray]:
        """Rows to merge: those that the table lacks, or has with another end, and a mask of the
        rows to remove."""
        existing = self.existing_rows(table, new.schema, None if truncates.num_rows else new)
        is_truncate = existing[self.keys[0]].is_null()
        existing, known_truncates = (
            existing.filter(pc.invert(is_truncate)),
            existing.filter(is_truncate),
        )
        every = pa.concat_tables([known_truncates, truncates]).sort_by(self._order)
        if self.by_position:
            new = self._placed(new, existing, every)
        rows, removed = self._deduplicated(existing, new)
        if not truncates.num_rows:  # only new rows may come before one that is known
            first = pc.min(new[self._order])
            every = every.filter(pc.greater(every[self._order], first))
        for at in range(every.num_rows):
            rows, more = self._deduplicated(rows, self._closed_by(rows, every.slice(at, 1)))
            removed = pa.concat_tables([removed, more])
        idle = self._ends_nothing(rows)
        more = rows.filter(pc.and_(idle, pc.invert(rows[_IS_NEW].combine_chunks())))
        removed = pa.concat_tables([removed, more.drop_columns([_IS_NEW])])
        rows = rows.filter(pc.invert(idle)).combine_chunks()
        rows = self._with_times(rows, new.schema)
        if all(table.schema.field(key).nullable for key in self.keys):
            truncates = self._missing_truncates(known_truncates, truncates)
            times = truncates[self.history_by].combine_chunks()
            truncates = _with_columns(truncates, {FROM: times, TO: times}, new.schema)
            rows = pa.concat_tables([rows, truncates])
        is_removed = [pa.repeat(pa.scalar(False), rows.num_rows)]
        is_removed.append(pa.repeat(pa.scalar(True), removed.num_rows))
        return pa.concat_tables([rows, removed.select(rows.schema.names)]), pa.chunked_array(
            is_removed
        )

    def _missing_truncates(self, existing: pa.Table, truncates: pa.Table) -> pa.Table:
        """Truncates that the table does not have yet, each once."""
        orders = pa.concat_tables([existing, truncates])[self._order]
        ids = (log_position.change_ids(orders) if self.by_position else orders).to_pylist()
        seen, missing = {*ids[: existing.num_rows]}, []
        for at, change_id in enumerate(ids[existing.num_rows :]):
            if change_id not in seen:
                seen.add(change_id)
                missing.append(at)
        return truncates.take(pa.array(missing, pa.int64()))

    def _with_times(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Rows that are new, or get another end, with their times filled in."""
        begins = rows[self.history_by].combine_chunks()
        ends = pa.array(
            _end_times(
                begins.cast(pa.int64()).to_pylist(),
                _same_as_next(rows, self.keys).to_pylist(),
                self._removes(rows).to_pylist(),
            ),
            pa.int64(),
        ).cast(begins.type)
        moved = pc.not_equal(_as_integers(ends), _as_integers(rows[TO].combine_chunks()))
        changed = pc.or_(rows[_IS_NEW].combine_chunks(), moved)
        rows = _with_columns(rows, {FROM: begins, TO: ends}, schema)
        return rows.drop_columns([_IS_NEW]).filter(changed)

    def _placed(self, new: pa.Table, existing: pa.Table, truncates: pa.Table) -> pa.Table:
        """The new rows, each with a place in the log if a change before it has one."""
        without = log_position.without_log(new[self._order])
        if not pc.any(without).as_py():
            return new
        placed, names = new.filter(pc.invert(without)), [*self.keys, self._order]
        placed_before = pa.concat_tables([placed.select(names), existing.select(names)])
        positions = truncates[self._order].to_pylist()
        newly_placed = self.placed_in_log(new.filter(without), placed_before, positions)
        return pa.concat_tables([placed, newly_placed])

    def _row_numbers(self, keys: Changes, rows: pa.Table) -> pa.ChunkedArray:
        """Row numbers for these keys, and of truncates, which have no key."""
        row_numbers = pa.array(range(rows.num_rows), pa.int64())
        truncates = pa.chunked_array([row_numbers]).filter(rows[self.keys[0]].is_null())
        positions = super()._row_numbers(keys, rows)
        return pa.chunked_array([*positions.chunks, *truncates.chunks], pa.int64())

    def _deduplicated(self, existing: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Each change once, in order, with the column `_IS_NEW`; and the rows of the table to
        remove. `existing`: rows of the table, or a former result."""
        existing = existing if _IS_NEW in existing.schema.names else _mark_new(existing, new=False)
        names = self._identity(new.schema)
        rows = pa.concat_tables([existing, _mark_new(new, new=True)])
        rows = rows.sort_by([(name, "ascending") for name in (*names, _IS_NEW)]).combine_chunks()
        repeats = _same_as_previous(rows, names)
        if not self.by_position and names[-1] not in _OF_MESSAGE:
            self._check_alike(rows, repeats)
        rows = rows.filter(pc.invert(repeats)).combine_chunks()
        if not self.by_position or not rows.num_rows:
            return rows, rows.slice(0, 0).drop_columns([_IS_NEW])
        is_kept = self._once_by_change(rows)
        removed = pc.and_(pc.invert(is_kept), pc.invert(rows[_IS_NEW].combine_chunks()))
        return rows.filter(is_kept).combine_chunks(), rows.filter(removed).drop_columns([_IS_NEW])

    def _check_alike(self, rows: pa.Table, repeats: pa.Array) -> None:
        """Raise ConfigError for different changes with one place in the order."""
        both = rows.drop_columns([FROM, TO, _IS_NEW]).filter(pc.or_(repeats, _shift(repeats)))
        first: dict[str, Any] = {}
        for row in both.to_pylist():
            identity = [row[name] for name in (*self.keys, self._order)]
            if [first.get(name) for name in (*self.keys, self._order)] != identity:
                first = row
            elif repr(row) != repr(first):
                key = ", ".join(f"{name}={row[name]!r}" for name in self.keys)
                raise ConfigError(
                    f"Two different changes of {key} have the same {self._order} "
                    f"({row[self._order]}), so the history cannot say which was first: order them "
                    "by a column whose values differ, or keep the message column seq in the table."
                )

    def _once_by_change(self, rows: pa.Table) -> pa.Array:
        """Mask of the ordered rows without repeats: the first of the same changes, or the last
        where other changes of the key have the same place in the log."""
        row_numbers = pa.array(range(rows.num_rows), pa.int64())
        ordered = rows.select(self.keys).append_column(ROW_ORDER, row_numbers)
        ordered = ordered.append_column(_LOG, log_position.log_places(rows[self._order]))
        ordered = ordered.append_column(_CHANGE, log_position.change_ids(rows[self._order]))
        changes = ordered.group_by([*self.keys, _LOG, _CHANGE], use_threads=False).aggregate(
            [(ROW_ORDER, "min"), (ROW_ORDER, "max")]
        )
        if changes.num_rows == rows.num_rows:
            return pa.repeat(pa.scalar(True), rows.num_rows)
        at = [*self.keys, _LOG]
        counts = changes.group_by(at).aggregate([(_CHANGE, "count")])
        both = changes.join(counts, at)
        alone = pc.equal(both[f"{_CHANGE}_count"], 1)
        kept_rows = pc.if_else(alone, both[f"{ROW_ORDER}_min"], both[f"{ROW_ORDER}_max"])
        return pc.is_in(row_numbers, value_set=kept_rows.combine_chunks())

    def _removes(self, rows: pa.Table) -> pa.Array:
        """Boolean mask of the rows that delete their key."""
        removes = pa.repeat(pa.scalar(False), rows.num_rows)
        for condition in (self.deletes, self.truncates):
            if condition is not None and rows.num_rows:
                removes = pc.or_(removes, condition.of(rows).combine_chunks())
        return removes

    def _ends_nothing(self, rows: pa.Table) -> pa.Array:
        """Mask of the truncates of a key that was gone before: a repeat has moved its deletion for
        a time."""
        if self.truncates is None or not rows.num_rows:
            return pa.repeat(pa.scalar(False), rows.num_rows)
        removes = self._removes(rows)
        follows_a_row = pc.and_(_same_as_previous(rows, self.keys), pc.invert(_shift(removes, -1)))
        return pc.and_(self.truncates.of(rows).combine_chunks(), pc.invert(follows_a_row))

    def _closed_by(self, rows: pa.Table, truncate: pa.Table) -> pa.Table:
        """Deletions, at the place of a truncate, of all keys that it finds."""
        before = pc.less(rows[self._order], truncate[self._order][0]).combine_chunks()
        later = pc.and_(_same_as_next(rows, self.keys), _shift(before))
        last = pc.and_(before, pc.invert(later))
        last_rows = rows.filter(pc.and_(last, pc.invert(self._removes(rows))))
        ended = truncate.take(pa.array([0] * last_rows.num_rows, pa.int64()))
        for key in self.keys:
            ended = ended.set_column(ended.schema.get_field_index(key), key, last_rows[key])
        return ended


def _end_times(
    begins: Sequence[int | None], continued: Sequence[bool], removes: Sequence[bool]
) -> list[int | None]:
    """When each change ends, of changes in order. `continued`: whether the next is of its key."""
    ends: list[int | None] = []
    earliest: int | None = None  # of all later changes of the key
    for begin, goes_on, removed in zip(
        reversed(begins), reversed(continued), reversed(removes), strict=True
    ):
        earliest = earliest if goes_on else None
        begins_known = [time for time in (begin, earliest) if time is not None]
        if removed:
            ends.append(begin)
        else:
            ends.append(None if earliest is None else max(begins_known))
        earliest = min(begins_known, default=None)
    return ends[::-1]


def _with_columns(rows: pa.Table, columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    for name, values in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, schema.field(name), values)
    return rows


def _mark_new(rows: pa.Table, *, new: bool) -> pa.Table:
    return rows.append_column(_IS_NEW, pa.repeat(pa.scalar(new), rows.num_rows))


def _same_as_previous(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Whether each row has the same values as the one before it."""
    is_repeat = pa.repeat(pa.scalar(True), max(rows.num_rows - 1, 0))
    for name in names:
        column = rows[name].combine_chunks()
        equal = pc.fill_null(pc.equal(column[1:], column[:-1]), False)
        none = column.is_null()
        is_repeat = pc.and_(is_repeat, pc.or_(equal, pc.and_(none[1:], none[:-1])))
    return pa.concat_arrays([pa.repeat(pa.scalar(False), min(rows.num_rows, 1)), is_repeat])


def _same_as_next(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Whether each row has the same values as the one after it."""
    return _shift(_same_as_previous(rows, names))


def _shift(flags: pa.Array, by: int = 1) -> pa.Array:
    """The flag of the row after (1) or before (-1) each row."""
    none = pa.repeat(pa.scalar(False), min(len(flags), 1))
    return pa.concat_arrays([flags[1:], none] if by > 0 else [none, flags[:-1]])


def _as_integers(times: pa.Array) -> pa.Array:
    return pc.fill_null(times.cast(pa.int64()), _NEVER)
