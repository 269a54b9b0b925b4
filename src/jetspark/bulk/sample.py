"""Reads a part of a range: its first rows, or a sample spread evenly over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from jetspark.bulk.ranges import ReadLimits, SequenceRange
from jetspark.bulk.reader import read_range
from jetspark.connection.options import ConnectOptions

_PLACES = 20


def read_sample(
    connection: ConnectOptions, wanted: SequenceRange, count: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """About `count` messages, what is lost left out. Raises as `read_range`."""
    parts = _PLACES if len(wanted) > count >= _PLACES else 1
    share = -(-count // parts)
    for part in range(parts):
        start, end = (wanted.start + len(wanted) * at // parts for at in (part, part + 1))
        piece = replace(wanted, start=start, end=end, from_earliest=True)
        found = read_range(
            connection, piece, limits_for(share), columns=columns, fail_on_data_loss=False
        )
        yield from first_rows(found, share)


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
