"""Partitions of ranges: planned on the driver, read on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from jetspark.links.stream_facts import StreamFacts
from jetspark.payloads.tolerant import decode_in_parts
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.spark.source.options import SourceOptions

MAX_PARTITIONS = 10_000
"""The most partitions of one range, however long it is."""


def split_range(
    range_: SequenceRange, *, min_partitions: int, max_records: int
) -> list[SequenceRange]:
    """Split a range into `min_partitions` parts of nearly equal length, none of them empty.

    There are more parts if they would have more than `max_records` sequences, but for that at most
    `MAX_PARTITIONS`, since a purge can leave a gap of any length.
    """
    length = len(range_)
    count = min(length, max(min_partitions, min(-(-length // max_records), MAX_PARTITIONS)))
    return [
        replace(
            range_,
            start=range_.start + length * index // count,
            end=range_.start + length * (index + 1) // count,
            # Only the head of the first partition may have been removed without a loss.
            from_earliest=range_.from_earliest and index == 0,
            # The witness is a message at the start of the whole range.
            witness=None if index else range_.witness,
        )
        for index in range(count)
    ]


def split_ranges(
    ranges: Iterable[SequenceRange], *, min_partitions: int, max_records: int
) -> list[SequenceRange]:
    """Split each of several ranges into parts, so that there are about `min_partitions` in all.

    A range gets a share of them by its length, rounded up. Parts have at most `max_records`
    sequences (see `split_range`); empty ranges are left out.
    """
    non_empty = [range_ for range_ in ranges if len(range_)]
    total = sum(map(len, non_empty))
    return [
        part
        for range_ in non_empty
        for part in split_range(
            range_,
            min_partitions=max(1, -(-min_partitions * len(range_) // total)),
            max_records=max_records,
        )
    ]


_RANGE_COST = 1_000
"""What it costs to begin a range (its consumer and its checks, about 1 ms), in messages."""
_TARGET_COST = 64_000
"""What a partition should cost, in messages, since each Spark task takes 15 to 60 ms.

A range of fewer sequences does not use a snapshot, which would save about 40 ms for so many
messages, but needs a task of its own.
"""


def group_ranges(
    parts: Iterable[SequenceRange], *, min_partitions: int, max_records: int
) -> list[tuple[SequenceRange, ...]]:
    """Group small neighbouring ranges, so that one partition (a task of Spark) reads several.

    Ranges together have at most `max_records` sequences. There are at least `min_partitions`
    groups, unless there are fewer ranges.
    """
    parts = list(parts)
    # Costs are counted in messages: those of a range, and what it takes to begin one.
    total = sum(len(range_) + _RANGE_COST for range_ in parts)
    max_cost = min(_TARGET_COST, total // min_partitions)
    partitions: list[tuple[SequenceRange, ...]] = []
    cost = records = 0  # of the last partition
    for index, range_ in enumerate(parts):
        cost += len(range_) + _RANGE_COST
        records += len(range_)
        fits = bool(partitions) and cost <= max_cost and records <= max_records
        # The remaining ranges must suffice for the partitions that are still missing.
        if fits and len(parts) - index > min_partitions - len(partitions):
            partitions[-1] += (range_,)
        else:
            partitions.append((range_,))
            cost, records = len(range_) + _RANGE_COST, len(range_)
    return partitions


class RangePartition(InputPartition):
    """The ranges of streams that one task of Spark reads, one after the other.

    It has plain values only, since Spark sends it to an executor.
    """

    def __init__(self, *ranges: SequenceRange) -> None:
        super().__init__(None)
        self.ranges = ranges

    def __repr__(self) -> str:
        ranges = ", ".join(f"{part.stream} {part.start}..{part.end - 1}" for part in self.ranges)
        return f"RangePartition({ranges})"


def plan_partitions(
    options: SourceOptions, batch_ranges: Iterable[SequenceRange]
) -> list[RangePartition]:
    """Divide the ranges of one batch into the partitions that tasks of Spark read.

    Every partition of a range with `snapshot` takes a snapshot of its own, which is expensive, so
    such a range is split only for `minPartitions`, not for `maxRecordsPerPartition`.
    """
    ranges = [replace(range_, direct=options.reads_by_direct_gets) for range_ in batch_ranges]
    count, max_records = options.min_partitions, options.max_records_per_partition
    by_snapshot = split_ranges(
        (range_ for range_ in ranges if range_.snapshot),
        min_partitions=count,
        max_records=max(map(len, ranges), default=1),  # no limit
    )
    by_consumer = split_ranges(
        (range_ for range_ in ranges if not range_.snapshot),
        min_partitions=count,
        max_records=max_records,
    )
    groups = group_ranges(by_consumer, min_partitions=count, max_records=max_records)
    return [*map(RangePartition, by_snapshot), *(RangePartition(*group) for group in groups)]


def choose_snapshot(options: SourceOptions, range_: SequenceRange) -> SequenceRange:
    """Mark a range to be read through a snapshot of the stream.

    It is returned unchanged if the option `backfill` does not say so, or it is too short for that
    to be faster.
    """
    if not options.backfills_by_snapshot or len(range_) < _TARGET_COST:
        return range_
    return replace(range_, snapshot=True, blocking=options.may_block_deletes)


def plan_bucket(options: SourceOptions, facts: StreamFacts) -> RangePartition:
    """Plan the only partition of a batch read of a bucket's current values: its whole stream."""
    return RangePartition(
        SequenceRange(
            facts.name,
            start=1,
            end=facts.last_seq + 1,
            created=facts.created,
            # A consumer of last messages needs a filter, even if no keys are chosen.
            subjects=options.subjects or (">",),
        )
    )


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read the rows of a partition, on an executor, with payloads decoded as the options say.

    Raises the errors of `read_range`.
    """
    # Spark sends a placeholder when no partition was planned.
    if not isinstance(partition, RangePartition):
        return
    read = partial(
        read_range,
        options.connection,
        limits=options.limits(),
        columns=options.columns,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    yield from decode_payloads(options, chain.from_iterable(map(read, partition.ranges)))


def decode_payloads(
    options: SourceOptions, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decode the payloads of batches as the options say: to columns, or only out of their frame.

    Without such options the batches are returned unchanged.
    """
    if options.framing is not None:
        batches = chain.from_iterable(map(options.framing.strip, batches))
    decoder = options.decoder
    return batches if decoder is None else decode_in_parts(decoder, batches)
