"""A table with all that the row of a key has been, and when (a slowly changing dimension, type 2).

Each change is a row: valid from its time until the next change of its key. A deletion is a row,
too, which is valid for no time. What was true at a moment are the rows with `valid_from` at or
before it and `valid_to` after it, or null: of each key the last change in the order whose time is
not after the moment, also where the times do not have the order of the changes.

A change that is there already, by its keys and its place in the order, is not added again, and one
that comes late takes its place between the others. Changes with one place in a user's order have
that of their messages in the stream; a table that lacks the messages' sequences cannot hold two
changes of a key with one place. Changes of a database have a position
(`codecs.log_position`): those of one place in its log are told from repeats by what changed. If
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

from jetspark.codecs import log_position
from jetspark.errors import ConfigError
from jetspark.lakehouse.new_files import NewFile
from jetspark.lakehouse.table import PLACE, Changes, Numbers, Table
from jetspark.lakehouse.upserts import Upsert

FROM, TO = "valid_from", "valid_to"
_NEW = "_jetspark_new_row"
_LOG, _CHANGE = f"{PLACE}_log", f"{PLACE}_change"
_NEVER = -(2**63)
_OF_MESSAGE = ("seq", "stream")
"""The columns of messages that tell apart changes with one place in the order."""


@dataclass(frozen=True)
class History(Upsert):
    """How the rows of a batch change such a table; a `Change` of `batches`."""

    history_by: str = ""
    """The column with the time of a change; `sequence_by` is set, too."""

    added = (FROM, TO)

    def with_added(self, rows: pa.Schema) -> pa.Schema:
        kind = rows.field(self.history_by).type
        if not pa.types.is_timestamp(kind):
            raise ConfigError(
                f"Option 'historyBy': {self.history_by!r} has the type {kind}; name a timestamp."
            )
        if taken := set(self.added) & set(rows.names):
            raise ConfigError(
                f"Option 'historyBy': the rows have a column {min(taken)}, which the table has "
                "for itself: leave it out, or give it another name."
            )
        return pa.schema([*rows, pa.field(FROM, kind), pa.field(TO, kind)])

    def _columns(self) -> Iterator[tuple[str, str]]:
        yield from super()._columns()
        yield "historyBy", self.history_by

    def __call__(self, table: Table, files: Sequence[NewFile], numbers: Numbers) -> None:
        found = list(self.read(table, files))
        rows, gone = pa.table({}), pa.chunked_array([pa.array([], pa.bool_())])
        if found:
            new, truncates = (pa.concat_tables(one) for one in zip(*found, strict=True))
            rows, gone = self._changed(table, new, truncates)
        self.merge(table, Changes(rows, gone, self._identity(table.schema), None), numbers)

    def _identity(self, columns: pa.Schema) -> tuple[str, ...]:
        """The columns whose values a change has alone, in the order of the changes."""
        more = () if self.by_position else _OF_MESSAGE
        there = (columns.field(name) for name in more if name in columns.names)
        ties = (
            one.name
            for one in there
            if pa.types.is_integer(one.type) or pa.types.is_string(one.type)
        )
        return tuple(dict.fromkeys((*self.keys, self._order, *ties)))

    @property
    def _order(self) -> str:
        assert self.sequence_by is not None  # noqa: S101
        return self.sequence_by

    def _changed(
        self, table: Table, new: pa.Table, truncates: pa.Table
    ) -> tuple[pa.Table, pa.ChunkedArray]:
        """The rows that the table lacks, or has with another end, and which of them are to go."""
        there = self.existing_rows(table, new.schema, None if truncates.num_rows else new)
        is_truncate = there[self.keys[0]].is_null()
        there, known = there.filter(pc.invert(is_truncate)), there.filter(is_truncate)
        every = pa.concat_tables([known, truncates]).sort_by(self._order)
        if self.by_position:
            new = self._placed(new, there, every)
        rows, removed = self._once(there, new)
        if not truncates.num_rows:  # only new rows may come before one that is known
            first = pc.min(new[self._order])
            every = every.filter(pc.greater(every[self._order], first))
        for at in range(every.num_rows):
            rows, more = self._once(rows, self._ended_by(rows, every.slice(at, 1)))
            removed = pa.concat_tables([removed, more])
        idle = self._ends_nothing(rows)
        more = rows.filter(pc.and_(idle, pc.invert(rows[_NEW].combine_chunks())))
        removed = pa.concat_tables([removed, more.drop_columns([_NEW])])
        rows = rows.filter(pc.invert(idle)).combine_chunks()
        rows = self._with_times(rows, new.schema)
        if all(table.schema.field(key).nullable for key in self.keys):
            truncates = self._lacking_truncates(known, truncates)
            times = truncates[self.history_by].combine_chunks()
            truncates = _with_columns(truncates, {FROM: times, TO: times}, new.schema)
            rows = pa.concat_tables([rows, truncates])
        gone = [pa.repeat(pa.scalar(False), rows.num_rows)]
        gone.append(pa.repeat(pa.scalar(True), removed.num_rows))
        return pa.concat_tables([rows, removed.select(rows.schema.names)]), pa.chunked_array(gone)

    def _lacking_truncates(self, known: pa.Table, truncates: pa.Table) -> pa.Table:
        """The truncates that the table does not have, each once."""
        found = pa.concat_tables([known, truncates])[self._order]
        ids = (log_position.change_ids(found) if self.by_position else found).to_pylist()
        seen, lacking = {*ids[: known.num_rows]}, []
        for at, one in enumerate(ids[known.num_rows :]):
            if one not in seen:
                seen.add(one)
                lacking.append(at)
        return truncates.take(pa.array(lacking, pa.int64()))

    def _with_times(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Those of the rows that are new, or get another end."""
        begins = rows[self.history_by].combine_chunks()
        ends = pa.array(
            _ends(
                begins.cast(pa.int64()).to_pylist(),
                _as_next(rows, self.keys).to_pylist(),
                self._removes(rows).to_pylist(),
            ),
            pa.int64(),
        ).cast(begins.type)
        moved = pc.not_equal(_whole(ends), _whole(rows[TO].combine_chunks()))
        changed = pc.or_(rows[_NEW].combine_chunks(), moved)
        rows = _with_columns(rows, {FROM: begins, TO: ends}, schema)
        return rows.drop_columns([_NEW]).filter(changed)

    def _placed(self, new: pa.Table, there: pa.Table, truncates: pa.Table) -> pa.Table:
        """The new rows, each with a place in the log if a change before it has one."""
        without = log_position.without_log(new[self._order])
        if not pc.any(without).as_py():
            return new
        placed, names = new.filter(pc.invert(without)), [*self.keys, self._order]
        others = pa.concat_tables([placed.select(names), there.select(names)])
        positions = truncates[self._order].to_pylist()
        found = self.placed_in_log(new.filter(without), others, positions)
        return pa.concat_tables([placed, found])

    def _places(self, keys: Changes, rows: pa.Table) -> pa.ChunkedArray:
        """Also those of truncates, which have no key."""
        numbers = pa.array(range(rows.num_rows), pa.int64())
        truncates = pa.chunked_array([numbers]).filter(rows[self.keys[0]].is_null())
        found = super()._places(keys, rows)
        return pa.chunked_array([*found.chunks, *truncates.chunks], pa.int64())

    def _once(self, there: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Each change once, in order, with `_NEW`; and the rows of the table to remove. `there`:
        rows of the table, or a former result."""
        there = there if _NEW in there.schema.names else _marked(there, new=False)
        names = self._identity(new.schema)
        rows = pa.concat_tables([there, _marked(new, new=True)])
        rows = rows.sort_by([(name, "ascending") for name in (*names, _NEW)]).combine_chunks()
        again = _as_before(rows, names)
        if not self.by_position and names[-1] not in _OF_MESSAGE:
            self._check_alike(rows, again)
        rows = rows.filter(pc.invert(again)).combine_chunks()
        if not self.by_position or not rows.num_rows:
            return rows, rows.slice(0, 0).drop_columns([_NEW])
        kept = self._once_by_change(rows)
        removed = pc.and_(pc.invert(kept), pc.invert(rows[_NEW].combine_chunks()))
        return rows.filter(kept).combine_chunks(), rows.filter(removed).drop_columns([_NEW])

    def _check_alike(self, rows: pa.Table, again: pa.Array) -> None:
        """Raise ConfigError for different changes with one place in the order."""
        both = rows.drop_columns([FROM, TO, _NEW]).filter(pc.or_(again, _shifted(again)))
        first: dict[str, Any] = {}
        for row in both.to_pylist():
            place = [row[name] for name in (*self.keys, self._order)]
            if [first.get(name) for name in (*self.keys, self._order)] != place:
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
        numbers = pa.array(range(rows.num_rows), pa.int64())
        places = rows.select(self.keys).append_column(PLACE, numbers)
        places = places.append_column(_LOG, log_position.log_places(rows[self._order]))
        places = places.append_column(_CHANGE, log_position.change_ids(rows[self._order]))
        changes = places.group_by([*self.keys, _LOG, _CHANGE], use_threads=False).aggregate(
            [(PLACE, "min"), (PLACE, "max")]
        )
        if changes.num_rows == rows.num_rows:
            return pa.repeat(pa.scalar(True), rows.num_rows)
        at = [*self.keys, _LOG]
        counts = changes.group_by(at).aggregate([(_CHANGE, "count")])
        both = changes.join(counts, at)
        alone = pc.equal(both[f"{_CHANGE}_count"], 1)
        kept = pc.if_else(alone, both[f"{PLACE}_min"], both[f"{PLACE}_max"])
        return pc.is_in(numbers, value_set=kept.combine_chunks())

    def _removes(self, rows: pa.Table) -> pa.Array:
        """Whether each row says that its key is gone."""
        found = pa.repeat(pa.scalar(False), rows.num_rows)
        for one in (self.deletes, self.truncates):
            if one is not None and rows.num_rows:
                found = pc.or_(found, one.of(rows).combine_chunks())
        return found

    def _ends_nothing(self, rows: pa.Table) -> pa.Array:
        """Mask of the truncates of a key that was gone before: a repeat has moved its deletion for
        a time."""
        if self.truncates is None or not rows.num_rows:
            return pa.repeat(pa.scalar(False), rows.num_rows)
        removes = self._removes(rows)
        there = pc.and_(_as_before(rows, self.keys), pc.invert(_shifted(removes, -1)))
        return pc.and_(self.truncates.of(rows).combine_chunks(), pc.invert(there))

    def _ended_by(self, rows: pa.Table, truncate: pa.Table) -> pa.Table:
        """The rows that say that the keys which a truncate finds are gone."""
        before = pc.less(rows[self._order], truncate[self._order][0]).combine_chunks()
        later = pc.and_(_as_next(rows, self.keys), _shifted(before))
        last = pc.and_(before, pc.invert(later))
        found = rows.filter(pc.and_(last, pc.invert(self._removes(rows))))
        ended = truncate.take(pa.array([0] * found.num_rows, pa.int64()))
        for key in self.keys:
            ended = ended.set_column(ended.schema.get_field_index(key), key, found[key])
        return ended


def _ends(
    begins: Sequence[int | None], continued: Sequence[bool], removes: Sequence[bool]
) -> list[int | None]:
    """When each change ends, of changes in order. `continued`: whether the next is of its key."""
    ends: list[int | None] = []
    earliest: int | None = None  # of all later changes of the key
    for begin, goes_on, removed in zip(
        reversed(begins), reversed(continued), reversed(removes), strict=True
    ):
        earliest = earliest if goes_on else None
        known = [one for one in (begin, earliest) if one is not None]
        if removed:
            ends.append(begin)
        else:
            ends.append(None if earliest is None else max(known))
        earliest = min(known, default=None)
    return ends[::-1]


def _with_columns(rows: pa.Table, columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    for name, values in columns.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, schema.field(name), values)
    return rows


def _marked(rows: pa.Table, *, new: bool) -> pa.Table:
    return rows.append_column(_NEW, pa.repeat(pa.scalar(new), rows.num_rows))


def _as_before(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Whether each row has the same values as the one before it."""
    same = pa.repeat(pa.scalar(True), max(rows.num_rows - 1, 0))
    for name in names:
        column = rows[name].combine_chunks()
        equal = pc.fill_null(pc.equal(column[1:], column[:-1]), False)
        none = column.is_null()
        same = pc.and_(same, pc.or_(equal, pc.and_(none[1:], none[:-1])))
    return pa.concat_arrays([pa.repeat(pa.scalar(False), min(rows.num_rows, 1)), same])


def _as_next(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Whether each row has the same values as the one after it."""
    return _shifted(_as_before(rows, names))


def _shifted(flags: pa.Array, by: int = 1) -> pa.Array:
    """The flag of the row after (1) or before (-1) each row."""
    none = pa.repeat(pa.scalar(False), min(len(flags), 1))
    return pa.concat_arrays([flags[1:], none] if by > 0 else [none, flags[:-1]])


def _whole(times: pa.Array) -> pa.Array:
    return pc.fill_null(times.cast(pa.int64()), _NEVER)
