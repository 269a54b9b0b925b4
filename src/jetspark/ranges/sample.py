"""Reads a part of a range: its first rows, or a sample spread evenly over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from jetspark.connection.options import ConnectOptions
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange

_PARTS = 20


def read_sample(
    connection: ConnectOptions, sequence_range: SequenceRange, count: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """About `count` messages, what is lost left out. Raises as `read_range`."""
    parts = _PARTS if len(sequence_range) > count >= _PARTS else 1
    share = -(-count // parts)
    for part in range(parts):
        start, end = (
            sequence_range.start + len(sequence_range) * at // parts for at in (part, part + 1)
        )
        part_range = replace(sequence_range, start=start, end=end, from_earliest=True)
        batches = read_range(
            connection, part_range, limits_for(share), columns=columns, fail_on_data_loss=False
        )
        yield from first_rows(batches, share)


def limits_for(count: int) -> ReadLimits:
    """Limits for reading the first `count` messages only."""
    return ReadLimits(max_rows=count, pull_messages=count)


def first_rows(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """The first `count` rows; then what reads the batches is closed."""
    with closing(cast(Any, batches)):
        for batch in batches:
            yield batch.slice(0, count)
            count -= batch.num_rows
            if count <= 0:
                return
