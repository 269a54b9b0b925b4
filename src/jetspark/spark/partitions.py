"""Partitions of ranges: planned on the driver, read on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from jetspark.bulk.current_values import read_current_values as read_bucket
from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.reader import read_range
from jetspark.bulk.stream_facts import StreamFacts
from jetspark.codecs.tolerant import decode_in_parts
from jetspark.spark.options import SourceOptions

# -- offsets of one stream -------------------------------------------------------------------


MAX_PARTS = 10_000
"""Of a range."""


def split(wanted: SequenceRange, *, min_partitions: int, max_records: int) -> list[SequenceRange]:
    """`min_partitions` of nearly equal length, none of them empty; more where one would have more
    than `max_records` sequences, but at most `MAX_PARTS`: a purge can leave a gap of any length."""
    length = len(wanted)
    count = min(length, max(min_partitions, min(-(-length // max_records), MAX_PARTS)))
    return [
        replace(
            wanted,
            start=wanted.start + length * index // count,
            end=wanted.start + length * (index + 1) // count,
            # Only the head of the first partition may have been removed without a loss.
            from_earliest=wanted.from_earliest and index == 0,
            witness=None if index else wanted.witness,
        )
        for index in range(count)
    ]


def split_all(
    ranges: Iterable[SequenceRange], *, min_partitions: int, max_records: int
) -> list[SequenceRange]:
    """Partitions of several ranges, each getting its share of `min_partitions` by length."""
    filled = [one for one in ranges if len(one)]
    total = sum(map(len, filled))
    return [
        part
        for one in filled
        for part in split(
            one,
            min_partitions=max(1, -(-min_partitions * len(one) // total)),
            max_records=max_records,
        )
    ]


_RANGE_COST = 1_000
"""A range costs about as much as so many messages: its consumer and its checks, 1 ms."""
TASK_COST = 64_000
"""Partitions get about this many messages, since each Spark task costs 15 to 60 ms.

A range of fewer sequences does not use a snapshot, which would save about 40 ms for so many
messages, but needs a task of its own.
"""


def shared(
    parts: Iterable[SequenceRange], *, min_partitions: int, max_records: int
) -> list[tuple[SequenceRange, ...]]:
    """Ranges by partition: small neighbours share one, of at most `max_records` sequences, while
    there are at least `min_partitions`."""
    parts = list(parts)
    total = sum(len(one) + _RANGE_COST for one in parts)
    most = min(TASK_COST, total // min_partitions)
    partitions: list[tuple[SequenceRange, ...]] = []
    cost = records = 0
    for number, one in enumerate(parts):
        cost += len(one) + _RANGE_COST
        records += len(one)
        missing = min_partitions - len(partitions)
        if partitions and cost <= most and records <= max_records and len(parts) - number > missing:
            partitions[-1] += (one,)
        else:
            partitions.append((one,))
            cost, records = len(one) + _RANGE_COST, len(one)
    return partitions


class RangePartition(InputPartition):
    """Ranges that are read one after the other; plain values, since it is sent to an executor."""

    def __init__(self, *ranges: SequenceRange) -> None:
        super().__init__(None)
        self.ranges = ranges

    def __repr__(self) -> str:
        ranges = ", ".join(f"{one.stream} {one.start}..{one.end - 1}" for one in self.ranges)
        return f"RangePartition({ranges})"


def plan(options: SourceOptions, wanted: Iterable[SequenceRange]) -> list[RangePartition]:
    """The partitions of one batch.

    Every partition of a range with snapshot takes its own, so there are at most `minPartitions`.
    """
    ranges = [replace(one, direct=options.removes) for one in wanted]
    parts = split_all(
        (one for one in ranges if not one.snapshot),
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    grouped = shared(
        parts,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    backlog = split_all(
        (one for one in ranges if one.snapshot),
        min_partitions=options.min_partitions,
        max_records=max(map(len, ranges), default=1),
    )
    return [*map(RangePartition, backlog), *(RangePartition(*one) for one in grouped)]


def backfilled(options: SourceOptions, wanted: SequenceRange) -> SequenceRange:
    """The range, with snapshot if the options say so and it is long enough."""
    worth = options.by_snapshot and len(wanted) >= TASK_COST
    return replace(wanted, snapshot=worth, blocking=worth and options.blocks_deletes)


def snapshot(options: SourceOptions, facts: StreamFacts) -> RangePartition:
    """The one partition of a bucket's current values."""
    return RangePartition(
        SequenceRange(
            facts.name,
            1,
            facts.last_seq + 1,
            facts.created,
            # A consumer of last messages needs a filter, even if no keys are chosen.
            options.subjects or (">",),
        )
    )


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a partition; runs on an executor. Raises the errors of `read_range`.

    Spark sends a placeholder when nothing was planned.
    """
    if not isinstance(partition, RangePartition):
        return
    read = partial(
        read_range,
        options.connection,
        limits=options.limits(),
        columns=options.columns,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    yield from decoded(options, chain.from_iterable(map(read, partition.ranges)))


def decoded(options: SourceOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, with the fields of payloads if the options have any."""
    if options.framing is not None:
        batches = chain.from_iterable(map(options.framing.bare, batches))
    decoder = options.decoder
    return batches if decoder is None else decode_in_parts(decoder, batches)


def read_current_values(
    options: SourceOptions, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """A bucket's current values, on an executor. Raises the errors of `read_last_per_subject`."""
    if not isinstance(partition, RangePartition):
        return
    yield from read_bucket(
        options.connection, partition.ranges[0], options.limits(), columns=options.columns
    )
