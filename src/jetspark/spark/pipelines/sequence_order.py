"""Tables that are ordered by `seq` (`sequenceBy`) get the changes of one stream.

Each stream has its own sequences, and they begin anew when it is deleted and created again. Changes
with smaller sequences than the rows that are there would be left out as older ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape, iglob
from itertools import product
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError
from jetspark.links.stream_facts import LastMessage, StreamFacts
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.source_streams import fetch_source_facts
from jetspark.spark.source.stream_identity import ORDER_BY_TIME, sequences_continue
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.tables.formats import find_table
from jetspark.tables.table import Table
from jetspark.timestamps import parse_isotime

_COLUMNS = ("seq", "timestamp", "stream")


def tables_ordered_by_seq(options: LakehouseOptions) -> list[LakehouseOptions]:
    """The tables of a query (one, or those of a list) in which the change with the greatest `seq`,
    the message's sequence in its stream, wins: the option `sequenceBy`."""
    tables = (options, *(table.options for table in options.tables))
    return [table for table in tables if table.sequence_by == "seq"]


def check_order(options: LakehouseOptions, source: SourceOptions) -> None:
    """Check that a query's tables that are ordered by `seq` only have rows whose sequences the
    source's stream continues.

    Each stream has sequences of its own. If a table has greater ones of another stream, or of an
    earlier one of the same name, new changes would be left out as older. Raises ConfigError, and
    the errors of `fetch_source_facts`.
    """
    existing: list[tuple[Table, bool]] = []
    for table_options in tables_ordered_by_seq(options):
        # With the stream as a part of the key, rows of two streams never replace each other.
        streams_apart = "stream" in (table_options.keys or ())
        if not streams_apart and len(source.streams) != 1:
            raise ConfigError(
                f"{table_options.name} is ordered by seq, but has many streams. {ORDER_BY_TIME}"
            )
        existing += [(table, streams_apart) for table in _existing_tables(table_options)]
    streams = fetch_source_facts(source, linearizable=True).values() if existing else ()
    for (table, streams_apart), facts in product(existing, streams):
        last_row = _last_row_of_others(table, facts, streams_apart=streams_apart)
        if last_row is None or sequences_continue(source, facts, last_row.message):
            continue
        seq, stream = last_row.message.seq, last_row.stream
        owner = "an earlier one" if stream == facts.name else f"the stream {stream}"
        raise ConfigError(
            f"{table.name} is ordered by seq, and has rows up to sequence {seq} that are not of "
            f"the stream {facts.name}, created at {facts.created}, but of {owner}. {ORDER_BY_TIME}"
        )


def _existing_tables(options: LakehouseOptions) -> Iterator[Table]:
    """Find the existing tables of these options: the one that they name, or those whose folders
    match a template such as `lake/{site}`. Tables without the columns that tell which message a row
    comes from are skipped."""
    candidates = [options]
    if options.route is not None:
        # lake/{site} finds lake/*; the tables of a catalog are not listed.
        in_folders = options.name.path is not None
        folders = iglob("*".join(map(escape, options.route.texts))) if in_folders else ()
        candidates = [options.of_table(folder) for folder in folders]
    for candidate in candidates:
        table = find_table(candidate.format, candidate.name)
        if table is not None and {*_COLUMNS} <= {*table.schema.names}:
            yield table


class _LastRow(NamedTuple):
    """The row of a table with the greatest sequence: its message, and the stream of that."""

    message: LastMessage
    stream: str


def _last_row_of_others(
    table: Table, facts: StreamFacts, *, streams_apart: bool
) -> _LastRow | None:
    """Find the row with the greatest sequence that does not come from this stream; None if all rows
    do.

    `facts`: the stream; rows from before its creation are of an earlier stream of its name.
    `streams_apart`: the table's keys include the stream, so rows of other streams are ignored.
    """
    rows: list[_LastRow] = []
    # This skips files; rows are compared below.
    unlike = f"timestamp < '{facts.created}' OR stream <> '{facts.name}'"
    for scan_task in table.scan_tasks(_COLUMNS, prune=unlike, at_least=1):
        for batch in scan_task.batches():
            times = batch["timestamp"].cast(pa.int64())
            columns = pa.table([batch["seq"], times, batch["stream"]], _COLUMNS)
            older = pc.field("timestamp") < parse_isotime(facts.created) // 1000  # microseconds
            own = pc.field("stream") == facts.name
            columns = columns.filter(own & older if streams_apart else ~own | older)
            # A row without one of these values does not show its message.
            columns = columns.drop_null()
            last = columns.sort_by("seq")[-1:].to_pylist()
            rows += [
                _LastRow(LastMessage(row["seq"], row["timestamp"] * 1000), row["stream"])
                for row in last
            ]
    return max(rows, default=None)  # by the sequence, the first field of a message
