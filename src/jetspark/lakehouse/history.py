"""A table with all that the row of a key has been, and when (a slowly changing dimension, type 2).

Each change is a row: valid from its time until the next change of its key. A deletion is a row,
too, which is valid for no time. What was true at a moment are the rows with `valid_from` at or
before it and `valid_to` after it, or null. A change that is there already, by its keys and its
place in the order, is not added again, and one that comes late takes its place between the others.
A truncate is a deletion of each key that is known when it comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError
from jetspark.lakehouse.new_files import NewFile
from jetspark.lakehouse.table import PLACE, Changes, Numbers, Table
from jetspark.lakehouse.upserts import Upsert

FROM, TO = "valid_from", "valid_to"
_NEW = "jetspark_new"
_NEVER = -(2**63)


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
        found = list(self.read(table.storage, files))
        rows = pa.table({})
        if found:
            new, truncates = (pa.concat_tables(one) for one in zip(*found, strict=True))
            rows = self._changed(table, new, truncates)
        keys = tuple(dict.fromkeys((*self.keys, self._order)))
        kept = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
        Upsert(keys).merge(table, Changes(rows, kept, keys, None), numbers)

    @property
    def _order(self) -> str:
        assert self.sequence_by is not None  # noqa: S101
        return self.sequence_by

    def _changed(self, table: Table, new: pa.Table, truncates: pa.Table) -> pa.Table:
        """The rows that the table lacks, or has with another end."""
        there = self._there(table, new, every=truncates.num_rows > 0)
        rows = self._once(pa.concat_tables([_marked(there, new=False), _marked(new, new=True)]))
        truncates = truncates.sort_by(self._order)
        for at in range(truncates.num_rows):
            ended = self._ended_by(rows, truncates.slice(at, 1))
            rows = self._once(pa.concat_tables([rows, _marked(ended, new=True)]))
        begins = rows[self.history_by].combine_chunks()
        next_ = pa.concat_arrays([begins[1:], pa.nulls(min(1, len(begins)), begins.type)])
        continued = pc.if_else(_as_next(rows, self.keys), next_, pa.scalar(None, begins.type))
        ends = pc.if_else(self._removes(rows), begins, continued)
        moved = pc.not_equal(_whole(ends), _whole(rows[TO].combine_chunks()))
        changed = pc.or_(rows[_NEW].combine_chunks(), moved)
        for name, values in ((FROM, begins), (TO, ends)):
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, new.schema.field(name), values)
        return rows.drop_columns([_NEW]).filter(changed)

    def _there(self, table: Table, new: pa.Table, *, every: bool) -> pa.Table:
        """The rows of the table, of every key or only of those of the new ones."""
        found = [new.slice(0, 0)]
        keys = Changes(new, new[self._order], self.keys, None)
        for piece in table.pieces(new.schema.names, None, 1):
            for batch in piece.batches():
                rows = pa.Table.from_batches([batch]).select(new.schema.names).cast(new.schema)
                if not every:
                    places = pa.array(range(rows.num_rows), pa.int64())
                    numbered = rows.append_column(PLACE, places)
                    rows = rows.take(keys.among(numbered, PLACE)[PLACE])
                found.append(rows)
        return pa.concat_tables(found)

    def _once(self, rows: pa.Table) -> pa.Table:
        """Each change once, by key and in order; rather as the table has it."""
        names = list(dict.fromkeys((*self.keys, self._order)))
        rows = rows.sort_by([(name, "ascending") for name in (*names, _NEW)]).combine_chunks()
        repeats = _as_before(rows, names)
        return rows.filter(pc.invert(repeats)).combine_chunks()

    def _removes(self, rows: pa.Table) -> pa.Array:
        """Whether each row says that its key is gone."""
        found = pa.repeat(pa.scalar(False), rows.num_rows)
        for one in (self.deletes, self.truncates):
            if one is not None and rows.num_rows:
                found = pc.or_(found, one.of(rows).combine_chunks())
        return found

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


def _marked(rows: pa.Table, *, new: bool) -> pa.Table:
    return rows.append_column(_NEW, pa.repeat(pa.scalar(new), rows.num_rows))


def _as_before(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Whether each row has the same values as the one before it."""
    same = pa.repeat(pa.scalar(True), max(rows.num_rows - 1, 0))
    for name in names:
        column = rows[name].combine_chunks()
        same = pc.and_(same, pc.equal(column[1:], column[:-1]))
    return pa.concat_arrays([pa.repeat(pa.scalar(False), min(rows.num_rows, 1)), same])


def _as_next(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Whether each row has the same values as the one after it."""
    return _shifted(_as_before(rows, names))


def _shifted(flags: pa.Array) -> pa.Array:
    """The flag of the row after each row."""
    return pa.concat_arrays([flags[1:], pa.repeat(pa.scalar(False), min(len(flags), 1))])


def _whole(times: pa.Array) -> pa.Array:
    return pc.fill_null(times.cast(pa.int64()), _NEVER)
