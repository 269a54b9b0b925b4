"""A table and what its streams have beyond it, as of one moment, each row once.

One version of the table is taken first. Its commit says up to which message of each stream it has
the rows, and by which recipe they were made. Then the leaders are asked for the ends of the
streams. The rows are those of that version, and those that the recipe makes of the messages from
its positions to these ends. Commits that come in between change nothing: their rows are messages of
the tail. What the table's query would not have written as rows is left out, or is an error, as the
query itself would do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, TableError
from jetspark.links.leaders import confirmed_facts
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.nearest import check_column
from jetspark.payloads.decoder import REASON
from jetspark.payloads.schema import SchemaLookup
from jetspark.payloads.tolerant import CORRUPT
from jetspark.ranges.arrow import schema_of
from jetspark.ranges.fixed_range import fixed_range, head
from jetspark.ranges.losses import CONTINUE_ADVICE, Loss, raise_or_report
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
from jetspark.tables.file_layout import Layout
from jetspark.tables.file_writer import fit_to_layout
from jetspark.tables.misfits import misfit_mask, misfit_reason
from jetspark.tables.schemas import compare_schemas, normalized_type
from jetspark.tables.stream_positions import read_position
from jetspark.tables.table import ScanTask, Table
from jetspark.tails.row_recipe import RowRecipe

logger = logging.getLogger("jetspark.tables")

_NEW_FILE_BYTES = 128 * 1024 * 1024
"""The size of files in the table's layout; none is written."""


@dataclass(frozen=True)
class Tail:
    """Makes the table's rows of messages that it does not have yet. It is sent to executors."""

    recipe: RowRecipe
    layout: Layout
    """The columns of the table, and what they can hold."""
    table: str
    lookup: SchemaLookup | None

    def check(self, table: Table, columns: pa.Schema) -> None:
        """Raise ConfigError if the rows no longer fit the table, whose columns somebody changed.

        `columns`: of the messages.
        """
        rows = self.recipe.builder(self.lookup).schema(columns)
        names = {*self.layout.schema.names, *columns.names}
        if self.recipe.rejected != "row":
            names.add(CORRUPT)
        differences = compare_schemas(self.layout.schema, rows)
        missing = [column.name for column in differences.added if column.name not in names]
        changed = [name for name, _, _ in differences.changed]
        if missing or changed or differences.required:
            names_in_words = ", ".join((*missing, *changed, *differences.required))
            raise ConfigError(
                f"The columns of {table.name} have changed since its last batch ({names_in_words}),"
                " so the messages after it do not fit: run jetspark ingest once more."
            )

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make rows, with all columns of the table, of messages. Raises TableError for a record at
        which the table's query would end."""
        if self.recipe.framing is not None:
            batches = chain.from_iterable(map(self.recipe.framing.strip, batches))
        builder = self.recipe.builder(self.lookup)
        for messages in batches:
            for rows in builder.build(messages):
                yield fit_to_layout(self.layout, self._accepted(rows))

    def _accepted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that the table takes, with those of its columns that they have."""
        rejected = self.recipe.rejected
        if rejected != "row" and CORRUPT in rows.schema.names:
            mask = pc.is_valid(rows.column(CORRUPT))
            if pc.any(mask).as_py() and rejected == "error":
                record = rows.filter(mask).slice(0, 1)
                reason = record.column(REASON)[0].as_py() if REASON in rows.schema.names else ""
                raise self._error(record, reason)
            rows = rows.filter(pc.invert(mask))
        names = [name for name in rows.schema.names if name in self.layout.schema.names]
        columns = rows.select(names)
        if (mask := misfit_mask(self.layout, columns)) is not None:
            if rejected != "left out":
                raise self._error(
                    rows.filter(mask).slice(0, 1),
                    misfit_reason(self.layout, columns.filter(mask).slice(0, 1))[1],
                )
            columns = columns.filter(pc.invert(mask))
        return columns

    def _error(self, record: pa.RecordBatch, reason: str) -> TableError:
        """The error for a record that becomes no row, at which the table's query would end, too."""
        message = "A message"
        if "seq" in record.schema.names:
            message = f"The message with sequence {record.column('seq')[0].as_py()}"
        return TableError(f"{message} does not become a row of {self.table}: {reason}")


@dataclass(frozen=True)
class TableRows:
    """Reads files of the table: the rows of some streams. It is sent to executors."""

    scan_task: ScanTask
    streams: tuple[str, ...]
    """The streams whose rows are read; empty: the table has no other rows."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, with the columns of the scan task."""
        for batch in self.scan_task.batches():
            if self.streams:
                batch = batch.filter(
                    pc.is_in(batch.column("stream").cast(pa.string()), pa.array(self.streams))
                )
            yield batch


@dataclass(frozen=True)
class TableAndTail:
    """What is read: files of one version of a table, and a range of each of its streams."""

    columns: pa.Schema
    """Of the rows."""
    files: Sequence[TableRows]
    ranges: Sequence[SequenceRange]
    tail: Tail
    message_columns: tuple[str, ...]
    """Columns of the messages that are read."""

    def file_batches(self, rows: TableRows) -> Iterator[pa.RecordBatch]:
        """The rows of some files of the table."""
        return map(self._select, rows.batches())

    def tail_batches(
        self,
        connection: ConnectOptions,
        ranges: Iterable[SequenceRange],
        limits: ReadLimits,
        *,
        fail_on_data_loss: bool,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of ranges of the tail. Raises the errors of `read_range`."""
        messages = chain.from_iterable(
            read_range(
                connection,
                each,
                limits=limits,
                columns=self.message_columns,
                fail_on_data_loss=fail_on_data_loss,
            )
            for each in ranges
        )
        return map(self._select, self.tail.rows(messages))

    def _select(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The chosen columns of rows, in their types."""
        return pa.RecordBatch.from_arrays(
            [rows.column(column.name).cast(column.type) for column in self.columns],
            schema=self.columns,
        )


def table_columns(table: Table, names: Sequence[str] = ()) -> pa.Schema:
    """Columns of a table as rows have them; by default all. `names`: those to choose. Raises
    ConfigError for a name that the table does not have."""
    for name in names:
        check_column("columns", name, table.schema.names)
    return pa.schema(
        [
            pa.field(name, normalized_type(table.schema.field(name).type))
            for name in names or table.schema.names
        ]
    )


def plan_table_and_tail(
    table: Table,
    api: StreamAPI,
    streams: Sequence[str],
    columns: pa.Schema,
    *,
    lookup: SchemaLookup | None,
    fail_on_data_loss: bool,
    at_least: int = 1,
) -> TableAndTail:
    """Fix what is read: a version of the table, and the end of each of its streams after it.

    `table`: opened before this call, and refreshed if a stream was trimmed since; `streams`: those
    whose rows are read; `columns`: of the rows; `lookup`: of the registry that the user has named;
    `at_least`: the number of parts into which the table's files are divided. Raises ConfigError for
    a table that does not tell how its streams go on, DataLossError if a stream no longer has what
    comes next, and the errors of `confirmed_facts`.
    """
    facts, positions = _take_moment(table, api, streams)
    recipes = {recipe for _, recipe in positions.values()}
    if len(recipes) > 1:
        raise ConfigError(
            f"{table.name} has rows of {', '.join(streams)} that were made in different ways: read "
            "one stream at a time."
        )
    recipe = RowRecipe.parse(recipes.pop(), table.name)
    if recipe.keys:
        raise ConfigError(
            f"{table.name} has keys ({', '.join(recipe.keys)}): a message after its last batch may "
            "replace or remove any of its rows. Read the table alone; jetspark ingest --follow "
            "keeps it up to date."
        )
    tail = Tail(recipe, table.layout(_NEW_FILE_BYTES, "zstd"), str(table.name), lookup)
    tail.check(table, schema_of(recipe.columns))
    chosen = tuple(streams) if "stream" in table.schema.names else ()
    scanned = list(columns.names)
    if chosen and "stream" not in scanned:
        scanned.append("stream")
    return TableAndTail(
        columns=columns,
        files=[TableRows(task, chosen) for task in table.scan_tasks(scanned, None, at_least)],
        ranges=[
            _range_from(facts[name], position, recipe, table, fail=fail_on_data_loss)
            for name, (position, _) in positions.items()
        ],
        tail=tail,
        message_columns=recipe.columns,
    )


def _take_moment(
    table: Table, api: StreamAPI, streams: Sequence[str]
) -> tuple[dict[str, StreamFacts], dict[str, tuple[int, str]]]:
    """The facts of the streams, and the positions and recipes of the table.

    If a stream begins after the table's position, its query may have trimmed it since: then the
    table has newer commits, and is refreshed. Raises the errors of `read_position`.
    """
    while True:
        facts = confirmed_facts(api, streams)
        positions = {name: read_position(table, name, facts[name].created) for name in streams}
        if all(head(facts[name]) <= position for name, (position, _) in positions.items()):
            return facts, positions
        version = table.version
        table.refresh()
        if table.version == version:  # so the messages are lost, which the reader reports
            return facts, positions


def _range_from(
    facts: StreamFacts, position: int, recipe: RowRecipe, table: Table, *, fail: bool
) -> SequenceRange:
    """The range of a stream from the table's position to its end. Raises DataLossError for a stream
    that ends before that, as after an older copy was put back, unless losses are only logged."""
    end = facts.last_seq + 1
    if end < position:
        problem = (
            f"Stream {facts.name!r} ends at sequence {facts.last_seq}, but {table.name} has its "
            f"messages up to {position - 1}: the server has lost acknowledged messages."
        )
        loss = Loss(facts.name, problem)
        raise_or_report(logger, loss, end, position - 1, fail=fail, advice=CONTINUE_ADVICE)
        position = end
    return fixed_range(facts, position, "latest", recipe.subjects)
