"""What a batch of upserts does to a table: a row for each key, to be merged. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

PLACE = "jetspark_place"
"""Of a row among others; a column that no table has."""


@dataclass(frozen=True)
class Changes:
    """The last row of each key."""

    rows: pa.Table
    deleted: pa.ChunkedArray
    """For each row whether its key is to be removed."""
    keys: tuple[str, ...]
    sequence_by: str | None

    @property
    def columns(self) -> list[str]:
        """Keys, and what orders their rows."""
        order = () if self.sequence_by is None else (self.sequence_by,)
        return list(dict.fromkeys((*self.keys, *order)))

    def among(self, there: pa.Table, *more: str) -> pa.Table:
        """The rows of a table that have one of these keys, with these columns in the types that
        they have here; `more`: further ones."""
        kinds = pa.schema([self.rows.field(name) for name in self.columns])
        kinds = pa.schema([*kinds, *(there.field(name) for name in more)])
        keys = list(self.keys)
        return (
            there.select(kinds.names)
            .cast(kinds)
            .join(self.rows.select(keys), keys, join_type="left semi")
        )

    def not_before(self, there: pa.Table) -> Changes:
        """Without those that are older than the rows with their keys in the table."""
        if self.sequence_by is None or not there.num_rows:
            return self
        own = self.rows.select(self.columns)
        own = own.append_column(PLACE, pa.array(range(own.num_rows)))
        if self.sequence_by in self.keys:
            return self
        newest = there.group_by(list(self.keys)).aggregate([(self.sequence_by, "max")])
        both = own.join(newest, list(self.keys))
        newer = pc.greater_equal(both[self.sequence_by], both[f"{self.sequence_by}_max"])
        places = both.filter(pc.fill_null(newer, True))[PLACE]
        return Changes(
            self.rows.take(places), self.deleted.take(places), self.keys, self.sequence_by
        )
