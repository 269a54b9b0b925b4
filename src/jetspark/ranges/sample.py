"""Reads only some rows of a range: the first ones, or a sample spread evenly over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from jetspark.connection.options import ConnectOptions
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange

_SAMPLE_SLICES = 20


def read_sample(
    connection: ConnectOptions, sequence_range: SequenceRange, count: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Read about `count` messages spread over a range, for example to see their fields.

    They are the first messages of equal slices of the range. Lost messages are left out. Raises the
    other errors of `read_range`.
    """
    slices = _SAMPLE_SLICES if len(sequence_range) > count >= _SAMPLE_SLICES else 1
    rows_per_slice = -(-count // slices)
    limits = limits_for(rows_per_slice)
    for index in range(slices):
        start = sequence_range.start + len(sequence_range) * index // slices
        end = sequence_range.start + len(sequence_range) * (index + 1) // slices
        # From the earliest, so that messages removed from a slice meanwhile are no loss.
        one_slice = replace(sequence_range, start=start, end=end, from_earliest=True)
        batches = read_range(
            connection, one_slice, limits, columns=columns, fail_on_data_loss=False
        )
        yield from first_rows(batches, rows_per_slice)


def limits_for(count: int) -> ReadLimits:
    """Limits of batches and pulls for a reader that wants only `count` messages."""
    return ReadLimits(max_rows=count, pull_messages=count)


def first_rows(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Yield the first `count` rows of `batches`, and close that generator."""
    with closing(cast(Any, batches)):
        for batch in batches:
            yield batch.slice(0, count)
            count -= batch.num_rows
            if count <= 0:
                return
