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

from jetspark.bulk.stream_facts import LastMessage, StreamFacts
from jetspark.errors import ConfigError
from jetspark.lakehouse.formats import find_table
from jetspark.lakehouse.table import Table
from jetspark.spark.lakehouse.options import LakehouseOptions
from jetspark.spark.options import SourceOptions
from jetspark.spark.source_streams import streams_facts
from jetspark.spark.stream_identity import ORDER_BY_TIME, goes_on
from jetspark.timestamps import parse_isotime

_COLUMNS = ("seq", "timestamp", "stream")


def ordered_tables(options: LakehouseOptions) -> list[LakehouseOptions]:
    """Those of the tables that are ordered by `seq`."""
    every = (options, *(one.options for one in options.tables))
    return [one for one in every if one.sequence_by == "seq"]


def check_order(options: LakehouseOptions, source: SourceOptions) -> None:
    """Raise ConfigError if changes would be left out of a table as older than those of another
    stream, or of an earlier one of the same name; and as `streams_facts`."""
    there: list[tuple[Table, bool]] = []
    for one in ordered_tables(options):
        apart = "stream" in (one.keys or ())
        if not apart and len(source.streams) != 1:
            raise ConfigError(
                f"{one.name} is ordered by seq, but has many streams. {ORDER_BY_TIME}"
            )
        there += [(table, apart) for table in _there(one)]
    streams = streams_facts(source, sure=True).values() if there else ()  # asked once
    for (table, apart), facts in product(there, streams):
        *last, stream = _last_of_others(table, facts, apart=apart)
        if stream and not goes_on(source, facts, LastMessage(*last)):
            whose = "an earlier one" if stream == facts.name else f"the stream {stream}"
            raise ConfigError(
                f"{table.name} is ordered by seq, and has rows up to sequence {last[0]} that are "
                f"not of the stream {facts.name}, created at {facts.created}, but of {whose}. "
                f"{ORDER_BY_TIME}"
            )


def _there(options: LakehouseOptions) -> Iterator[Table]:
    """The tables that are known before the rows, and have the columns that identify a message."""
    places = [options]
    if options.route is not None:
        found = iglob("*".join(map(escape, options.route.texts)))
        places = [options.of_table(one) for one in found if options.name.path is not None]
    for one in places:
        table = find_table(one.format, one.name)
        if table is not None and {*_COLUMNS} <= {*table.schema.names}:
            yield table


def _last_of_others(table: Table, facts: StreamFacts, *, apart: bool) -> tuple[int, int, str]:
    """Sequence, time and stream of the last row that is older than this stream or, unless streams
    are kept `apart`, of another one."""
    last = (0, 0, "")
    unlike = f"timestamp < '{facts.created}' OR stream <> '{facts.name}'"
    for piece in table.scan_tasks(_COLUMNS, unlike, 1):
        for batch in piece.batches():
            times = batch["timestamp"].cast(pa.int64())
            rows = pa.table([batch["seq"], times, batch["stream"]], _COLUMNS)
            older = pc.field("timestamp") < parse_isotime(facts.created) // 1000
            own = pc.field("stream") == facts.name
            rows = rows.filter(own & older if apart else ~own | older)
            for seq, us, stream in zip(*rows.sort_by("seq")[-1:].to_pydict().values(), strict=True):
                last = max(last, (seq, us * 1000, stream))
    return last
