"""The option `backup` of `spark.read`: the messages of a stream's backup, without a server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jetspark.errors import named
from jetspark.ranges.backup import Backup, Part, open_backup
from jetspark.ranges.fixed_range import Position, fixed_range, resolve_position
from jetspark.spark.failures import names_of_spark, without_traceback
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.partitions import decode_payloads
from jetspark.spark.source.position_options import Positions

logger = logging.getLogger("jetspark.spark")


class BackupPartition(InputPartition):
    """A part of a stream's backup, which one task of Spark reads.

    It has plain values only, since Spark sends it to an executor.
    """

    def __init__(self, backup: Backup, part: Part) -> None:
        super().__init__(None)
        self.backup, self.part = backup, part

    def __repr__(self) -> str:
        return f"BackupPartition({self.backup.stream} {self.part.start}..{self.part.end - 1})"


class JetStreamBackupReader(DataSourceReader):
    """Reads the messages of a stream's backup (option `backup`) for `spark.read`, without a server.

    The backup's folder must have the same path on the driver and all executors.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_batch()

    @without_traceback
    def partitions(self) -> list[BackupPartition]:
        """Plan the parts of the backup that tasks read, within the start and end of the options.

        The driver reads the archive's index, or the whole archive if it is a list of messages
        (server 2.15) and there is more than one part. Raises ConfigError, DataLossError,
        BackupError.
        """
        options = self._options
        backup = open_backup(options.backup or "")
        start = self._resolve_position(backup, options.batch_start, end=False)
        end = self._resolve_position(backup, options.ending, end=True)
        range_ = fixed_range(backup.facts, start, end)
        if isinstance(start, int):  # "earliest" is wherever the backup begins
            backup.check_head(range_.start, fail=options.fail_on_data_loss)
        backup.check_subjects(named("subjects"), options.subjects)
        backup.check_removed(fail=options.fail_on_data_loss)
        # Messages per partition, rounded up, for at least `minPartitions`.
        share = -(-min(len(range_), backup.messages) // options.min_partitions)
        max_messages = max(1, min(options.max_records_per_partition, share))
        parts = backup.parts(range_.start, range_.end, max_messages=max_messages)
        # A copy for each, without what `backup` has read and remembers.
        return [BackupPartition(replace(backup), part) for part in parts]

    def _resolve_position(self, backup: Backup, positions: Positions, *, end: bool) -> Position:
        """The sequence, "earliest" or "latest" at which the read begins, or with `end` ends.

        A time in the options becomes the first sequence stored at or after it. Raises ConfigError
        for a position in another stream, or a time after the last message where the start must
        have one.
        """
        positions.check([backup.stream])
        return resolve_position(
            positions.of(backup.stream),
            backup.stream,
            backup.sequence_at,
            none_is_latest=end or self._options.starting_offsets_by_timestamp_strategy == "latest",
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition; Spark calls this on an executor."""
        # Spark sends a placeholder when no partition was planned.
        if not isinstance(partition, BackupPartition):
            return
        options = self._options
        batches = partition.backup.read_part(
            partition.part,
            subjects=options.subjects,
            columns=options.columns,
            limits=options.limits(),
        )
        with names_of_spark():
            yield from decode_payloads(options, batches)
