"""option("backup", folder) of spark.read: a backup's messages, without a server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jetspark.bulk.backup import Backup, Part, open_backup
from jetspark.bulk.losses import Loss, left_out
from jetspark.errors import DataLossError
from jetspark.spark import planning
from jetspark.spark.options import SourceOptions
from jetspark.spark.positions import Position, Positions, resolve
from jetspark.spark.reading import with_json
from jetspark.spark.short_errors import without_traceback

logger = logging.getLogger("jetspark.spark")


class BackupPartition(InputPartition):
    """A part of a backup; plain values only, since it is sent to an executor."""

    def __init__(self, backup: Backup, part: Part) -> None:
        super().__init__(None)
        self.backup, self.part = backup, part

    def __repr__(self) -> str:
        return f"BackupPartition({self.backup.stream} {self.part.start}..{self.part.end - 1})"


class JetStreamBackupReader(DataSourceReader):
    """The folder must be visible under the same path to driver and executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_batch()

    @without_traceback
    def partitions(self) -> list[BackupPartition]:
        """The range of the options in parts.

        The driver reads the archive's index or, of a list of messages (server 2.15), the whole
        archive if there is more than one part. Raises ConfigError, DataLossError, BackupError.
        """
        options = self._options
        backup = open_backup(options.backup or "")
        start = self._position(backup, options.starting_positions("earliest"), end=False)
        end = self._position(backup, options.ending_positions(), end=True)
        wanted = planning.fixed_range(backup.facts, start, end)
        self._check_head(backup, wanted.start, start)
        backup.check_subjects("Option 'subjects'", options.subjects)
        backup.check_removed(fail=options.fail_on_data_loss)
        share = -(-min(len(wanted), backup.messages) // options.min_partitions)
        most = max(1, min(options.max_records_per_partition, share))
        parts = backup.parts(wanted.start, wanted.end, most=most)
        return [BackupPartition(replace(backup), part) for part in parts]

    def _position(self, backup: Backup, positions: Positions, *, end: bool) -> Position:
        positions.check([backup.stream])
        return resolve(
            positions.of(backup.stream),
            backup.stream,
            lambda _, ns: backup.sequence_at(ns),
            none_is_latest=end or self._options.strategy == "latest",
        )

    def _check_head(self, backup: Backup, first: int, asked: Position) -> None:
        facts = backup.facts
        if not isinstance(asked, int) or first >= planning.head(facts):
            return
        if facts.keeps_last_per_subject:
            return
        message = (
            f"The backup of stream {facts.name!r} begins at sequence {facts.first_seq}: "
            f"{first} to {facts.first_seq - 1} had been removed."
        )
        if self._options.fail_on_data_loss:
            hint = " Set failOnDataLoss to false to begin there."
            raise DataLossError(facts.name, first, facts.first_seq - 1, message + hint)
        left_out(logger, message, Loss(facts.name, message))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs on an executor; Spark sends a placeholder when nothing was planned."""
        if not isinstance(partition, BackupPartition):
            return iter(())
        options = self._options
        batches = partition.backup.read_part(
            partition.part,
            subjects=options.subjects,
            columns=options.columns,
            limits=options.limits(),
        )
        return with_json(options, batches)
