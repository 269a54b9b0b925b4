"""`jetspark.read(…, table=…)`: what is read, and its rows, again with each use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from jetspark.connection.options import ConnectOptions
from jetspark.links.leaders import Leaders
from jetspark.payloads.schema import SchemaLookup
from jetspark.ranges.sample import first_rows, limits_for
from jetspark.ranges.scan import Scan
from jetspark.ranges.sequence_range import ReadLimits
from jetspark.tables.arguments import resolve_table
from jetspark.tables.formats import open_table
from jetspark.tails.table_and_tail import TableAndTail, plan_table_and_tail, table_columns


@dataclass(frozen=True)
class TableScan:
    """The arguments of `jetspark.read` with a table. Nothing is opened before `plan`."""

    scan: Scan
    table: str = field(kw_only=True)
    format: str | None = field(kw_only=True)
    storage: Mapping[str, str] = field(kw_only=True, repr=False)
    """Options for the library of the storage, with their prefix."""
    columns: tuple[str, ...] = field(kw_only=True)
    """The columns to read; empty: all of the table."""
    lookup: SchemaLookup | None = field(kw_only=True, repr=False)

    def plan(self) -> TableReadPlan:
        """Take the table's newest version, and the end of the stream after that.

        Raises ConfigError for a table that does not tell how the stream goes on, and the errors of
        `plan_table_and_tail` and of `Leaders.call`.
        """
        scan = self.scan
        assert scan.connection is not None  # noqa: S101 - only a backup has none
        assert scan.stream is not None  # noqa: S101 - a table goes with a stream
        stream = scan.stream
        table = open_table(*resolve_table(self.table, self.format, self.storage))
        columns = table_columns(table, self.columns)
        both = Leaders(scan.connection, scan.read_timeout, at_once_if_new=True).call(
            lambda api: plan_table_and_tail(
                table,
                api,
                [stream],
                columns,
                lookup=self.lookup,
                fail_on_data_loss=scan.fail_on_data_loss,
            )
        )
        return TableReadPlan(stream, both, scan.connection, scan)

    def __repr__(self) -> str:
        return f"jetspark.read({self.scan.stream!r}, table={self.table!r})"


@dataclass(frozen=True)
class TableReadPlan:
    """A version of a table, and the range of its stream after it."""

    name: str
    """The stream's."""
    both: TableAndTail
    connection: ConnectOptions
    scan: Scan
    rows: None = None
    """The number of rows is not known."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches."""
        return self.both.columns

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in no order. Those of the tail come first, since the stream may be trimmed."""
        return self._batches(self.scan.limits())

    def first(self, count: int) -> Iterator[pa.RecordBatch]:
        """Read `count` rows only."""
        limits = replace(limits_for(count), timeout=self.scan.read_timeout)
        return first_rows(self._batches(limits), count)

    def _batches(self, limits: ReadLimits) -> Iterator[pa.RecordBatch]:
        """All rows, read with these limits."""
        yield from self.both.tail_batches(
            self.connection,
            self.both.ranges,
            limits,
            fail_on_data_loss=self.scan.fail_on_data_loss,
        )
        yield from chain.from_iterable(map(self.both.file_batches, self.both.files))
