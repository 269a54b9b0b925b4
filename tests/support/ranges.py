"""Ranges of streams, read as tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from jetspark.connection.options import make_options
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges.arrow import SCHEMA
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange


def whole(facts: StreamFacts, **more: Any) -> SequenceRange:
    """All that a stream has."""
    start = max(facts.first_seq, 1)
    return SequenceRange(facts.name, start, facts.last_seq + 1, facts.created, **more)


def table_of(batches: Any, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_batches(list(batches), schema=schema).combine_chunks()


def read(
    url: str, wanted: SequenceRange, limits: ReadLimits | None = None, **more: Any
) -> pa.Table:
    """Every column of a range."""
    return table_of(read_range(make_options(url), wanted, limits, **more))


def sequences(batches: Any) -> list[int]:
    return [seq for batch in batches for seq in batch["seq"].to_pylist()]
