"""Tables that are ordered by `seq` (`sequenceBy`) get the changes of one stream.

Each stream has its own sequences, and they begin anew when it is deleted and created again. Changes
with smaller sequences than the rows that are there would be left out as older ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape, iglob
from itertools import product

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
    """The tables that are ordered by `seq`."""
    tables = (options, *(table.options for table in options.tables))
    return [table for table in tables if table.sequence_by == "seq"]


def check_order(options: LakehouseOptions, source: SourceOptions) -> None:
    """Raise ConfigError if changes would be left out of a table as older than those of another
    stream, or of an earlier one of the same name; and as `fetch_source_facts`."""
    existing: list[tuple[Table, bool]] = []
    for table_options in tables_ordered_by_seq(options):
        streams_apart = "stream" in (table_options.keys or ())
        if not streams_apart and len(source.streams) != 1:
            raise ConfigError(
                f"{table_options.name} is ordered by seq, but has many streams. {ORDER_BY_TIME}"
            )
        existing += [(table, streams_apart) for table in _existing_tables(table_options)]
    streams = fetch_source_facts(source, linearizable=True).values() if existing else ()
    for (table, streams_apart), facts in product(existing, streams):
        *last, stream = _last_row_of_others(table, facts, streams_apart=streams_apart)
        if stream and not sequences_continue(source, facts, LastMessage(*last)):
            whose = "an earlier one" if stream == facts.name else f"the stream {stream}"
            raise ConfigError(
                f"{table.name} is ordered by seq, and has rows up to sequence {last[0]} that are "
                f"not of the stream {facts.name}, created at {facts.created}, but of {whose}. "
                f"{ORDER_BY_TIME}"
            )


def _existing_tables(options: LakehouseOptions) -> Iterator[Table]:
    """The tables that are known before the rows, and have the columns that identify a message."""
    candidates = [options]
    if options.route is not None:
        paths = iglob("*".join(map(escape, options.route.texts)))
        candidates = [
            options.of_table(table_options)
            for table_options in paths
            if options.name.path is not None
        ]
    for table_options in candidates:
        table = find_table(table_options.format, table_options.name)
        if table is not None and {*_COLUMNS} <= {*table.schema.names}:
            yield table


def _last_row_of_others(
    table: Table, facts: StreamFacts, *, streams_apart: bool
) -> tuple[int, int, str]:
    """Sequence, time and stream of the last row of an earlier stream.

    Unless the table keeps streams apart (`streams_apart`), rows of other streams count, too.
    """
    last = (0, 0, "")
    unlike = f"timestamp < '{facts.created}' OR stream <> '{facts.name}'"
    for piece in table.scan_tasks(_COLUMNS, unlike, 1):
        for batch in piece.batches():
            times = batch["timestamp"].cast(pa.int64())
            rows = pa.table([batch["seq"], times, batch["stream"]], _COLUMNS)
            older = pc.field("timestamp") < parse_isotime(facts.created) // 1000
            own = pc.field("stream") == facts.name
            rows = rows.filter(own & older if streams_apart else ~own | older)
            for seq, us, stream in zip(*rows.sort_by("seq")[-1:].to_pydict().values(), strict=True):
                last = max(last, (seq, us * 1000, stream))
    return last
