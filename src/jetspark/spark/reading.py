"""What batch and streaming readers share: partitions, asking the stream, reading one partition."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from jetspark.bulk import links
from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.reader import read_range
from jetspark.bulk.stream_api import StreamAPI, StreamFacts
from jetspark.errors import ConfigError
from jetspark.spark import planning
from jetspark.spark.options import SourceOptions


class RangePartition(InputPartition):
    """One range of sequences; plain values only, it travels to an executor."""

    def __init__(self, wanted: SequenceRange) -> None:
        super().__init__(None)
        self.wanted = wanted

    def __repr__(self) -> str:
        wanted = self.wanted
        return f"RangePartition({wanted.stream} {wanted.start}..{wanted.end - 1})"


def stream_facts(options: SourceOptions) -> StreamFacts:
    """Ask the stream's leader, from the driver. Refuses retentions that reading would disturb."""
    link = links.borrow(options.connection)
    try:
        facts = StreamAPI(link).stream(options.stream)
    except BaseException:
        link.close()
        raise
    links.give_back(options.connection, link)
    if facts.retention != "limits":
        raise ConfigError(
            f"Stream {facts.name!r} has retention {facts.retention!r}: its messages go when "
            "another consumer acknowledges them, so a table of it cannot be exact. "
            "Use a stream with retention 'limits', or a mirror of this one."
        )
    return facts


def plan(options: SourceOptions, wanted: SequenceRange) -> list[RangePartition]:
    """The partitions of one batch."""
    return [
        RangePartition(part)
        for part in planning.split_all(
            [wanted],
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
    ]


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Runs on an executor. Spark sends a placeholder when there was nothing to plan."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return read_range(
        options.connection,
        partition.wanted,
        options.limits(),
        fail_on_data_loss=options.fail_on_data_loss,
    )
