"""Iceberg tables, through the library pyiceberg. Source: the Iceberg table specification."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.expressions as ex
import pyiceberg.io.pyarrow as arrow_io
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table import Table as PyTable
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import DoubleType, LongType

from jetspark.errors import CommitConflict, ConfigError
from jetspark.tables import file_layout, file_writer, maintenance
from jetspark.tables.batches import commit_with_retries
from jetspark.tables.changes import Changes
from jetspark.tables.iceberg import maintenance as iceberg_maintenance
from jetspark.tables.iceberg import partitions as iceberg_partitions
from jetspark.tables.iceberg import scan as iceberg_scan
from jetspark.tables.iceberg.commits import (
    ExpireByIds,
    begin_transaction,
    commit,
    data_file,
    stage_files,
)
from jetspark.tables.iceberg.folder import FolderCatalog, catalog_of, local_folder
from jetspark.tables.iceberg.merge import write_merged_rows
from jetspark.tables.iceberg.storage import IcebergStorage
from jetspark.tables.new_files import NewFile
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.schemas import as_nullable
from jetspark.tables.table import (
    Compaction,
    Expiry,
    Table,
    TableFacts,
    TableName,
    TxnVersions,
    Vacuum,
    commit_time,
    describe_columns,
    group_into_tasks,
)

_MERGED_FILE_BYTES = 128 * 1024 * 1024
"""Target size of the files that a merge writes."""
_TXN_VERSION_PREFIX = "jetspark.number."
"""Prefix of the table properties that hold transaction versions; properties of snapshots would
expire."""
_SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
_NEW_TABLE_PROPERTIES = {
    # A streaming query commits often, and old metadata versions are useless.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    # Each commit reads and writes all snapshots; with Iceberg's five days that takes seconds.
    _SNAPSHOT_AGE: "3600000",
}
_MAX_FORMAT_VERSION = 2
_COMMITS_PER_EXPIRY = 100
"""Commits from one removal of old snapshots to the next, and snapshots that it leaves at least."""


class OpenIceberg(Table):
    """An Iceberg table at one version, which is read and changed through PyIceberg.

    A layout is refused for partitions that nobody can compute, and for a version of the format that
    PyIceberg does not write. A commit raises CommitConflict if it is proven that the table does not
    have it, and TableError if the table may have it later, or others commit without a break.
    """

    def __init__(self, name: TableName, table: PyTable, snapshot: int | None = None) -> None:
        """Take a table that PyIceberg has loaded. `snapshot`: the id of the one to read; None: the
        newest."""
        self.name = name
        self._table = table
        self._snapshot = snapshot

    @classmethod
    def find(cls, name: TableName) -> OpenIceberg | None:
        """The table at its newest version; None if the catalog, or the folder, has none."""
        catalog, identifier, _ = catalog_of(name)
        try:
            return cls(name, catalog.load_table(identifier))
        except NoSuchTableError:
            return None

    @classmethod
    def create(
        cls,
        name: TableName,
        schema: pa.Schema,
        partition_by: Sequence[PartitionBy],
        txn_versions: Mapping[str, int],
    ) -> OpenIceberg:
        """Create an empty Iceberg table that has these transaction versions. Raises ConfigError for
        types that Iceberg does not have, and CommitConflict if another writer created it first."""
        catalog, identifier, location = catalog_of(name)
        try:
            with catalog.create_table_transaction(
                identifier,
                pa.schema([as_nullable(_with_iceberg_integer(column)) for column in schema]),
                location=location,
                properties=_NEW_TABLE_PROPERTIES
                | {_TXN_VERSION_PREFIX + txn: str(value) for txn, value in txn_versions.items()},
            ) as transaction:
                if partition_by:
                    with transaction.update_spec() as spec:
                        iceberg_partitions.add_partitions(spec, partition_by)
        except NoSuchNamespaceError:
            raise ConfigError(
                f"{name}: the catalog has no such namespace; create it first."
            ) from None
        except (TypeError, ValueError, arrow_io.UnsupportedPyArrowTypeException) as error:
            raise ConfigError(f"Iceberg does not support a column: {error}") from error
        except Exception as error:
            if cls.find(name) is not None:  # of another writer, or of this one after all
                raise CommitConflict(f"{name} was created by another writer.") from error
            raise
        return cls(name, catalog.load_table(identifier))

    @property
    def location(self) -> str:
        return self._table.location().rstrip("/")

    @property
    def schema(self) -> pa.Schema:
        """The columns: of the newest version, or of the snapshot that is read."""
        schema = self._table.schema()
        if self._snapshot is not None:
            schema = self._table.scan(snapshot_id=self._snapshot).projection()
        return iceberg_scan.arrow_schema(schema)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return iceberg_partitions.partition_texts(self._table.metadata)

    @property
    def generated_columns(self) -> dict[str, file_layout.DerivedColumn]:
        return {}

    @property
    def storage(self) -> IcebergStorage:
        return IcebergStorage(self.location, {**self._table.io.properties})

    @staticmethod
    def storage_of(folder: TableName) -> IcebergStorage:
        """Storage of a folder that may hold several tables."""
        return IcebergStorage(f"file://{local_folder(folder.path or '')}", folder.properties)

    def layout(self, target_bytes: int, compression: str) -> file_layout.Layout:
        """How new data files are divided, sorted and written. Raises ConfigError for a version of
        the format that PyIceberg does not write, and for unknown transforms."""
        metadata = self._table.metadata
        if metadata.format_version > _MAX_FORMAT_VERSION:
            raise ConfigError(
                f"{self.name} is in version {metadata.format_version} of the Iceberg format, which "
                "PyIceberg does not write: write it with Iceberg's own connector for Spark."
            )
        return file_layout.Layout(
            schema=self.schema,
            partition_by=iceberg_partitions.partitions_of(self.name, metadata),
            folder="data/",
            target_bytes=target_bytes,
            compression=compression,
            sort_by=iceberg_partitions.sort_keys_of(self.name, metadata),
            spec_id=metadata.default_spec_id,
            sort_order_id=metadata.default_sort_order_id,
        )

    def at_version(self, version: int) -> OpenIceberg:
        """The table at a snapshot, given by its id. Raises ConfigError if that does not exist."""
        if self._table.snapshot_by_id(version) is None:
            raise ConfigError(f"{self.name} has no snapshot {version}.")
        return OpenIceberg(self.name, self._table, snapshot=version)

    def scan_tasks(
        self, columns: Sequence[str], prune: str | None, at_least: int
    ) -> list[iceberg_scan.IcebergScanTask]:
        """Divide the table's files into tasks of about the same size, which read these columns.
        `prune`: a condition by which files are skipped; `at_least`: the number of tasks, if there
        are as many files."""
        scan = self._table.scan(selected_fields=tuple(columns), snapshot_id=self._snapshot)
        condition = None
        if prune is not None:
            from jetspark.tables.conditions import parse_condition

            condition = iceberg_scan.to_iceberg(parse_condition(prune, self.schema))
        tasks = iceberg_scan.plan_files(scan, condition)
        properties = dict(self._table.io.properties)
        return [
            iceberg_scan.IcebergScanTask(group, self._table.metadata, scan.projection(), properties)
            for group in group_into_tasks(tasks, _file_bytes, at_least)
        ]

    @property
    def version(self) -> int:
        return self._table.metadata.current_snapshot_id or 0

    @property
    def commits(self) -> int:
        """The number of commits: Iceberg numbers snapshots, except in version 1 of the format,
        where those that exist are counted."""
        snapshot = self._table.current_snapshot()
        sequence_number = None if snapshot is None else snapshot.sequence_number
        return sequence_number or len(self._table.metadata.snapshots)

    @property
    def is_new(self) -> bool:
        return not self.version

    def txn_version(self, name: str) -> int | None:
        """The transaction version of this name, which is kept in a table property."""
        text = self._table.properties.get(_TXN_VERSION_PREFIX + name)
        return None if text is None else int(text)

    def check_txn_versions_retained(self) -> None:
        """Do nothing: Iceberg keeps table properties, which have the transaction versions."""

    def repair_version_hint(self) -> None:
        if isinstance(self._table.catalog, FolderCatalog):
            self._table.catalog.repair_version_hint()

    def was_set_back(self, version: int, name: str, txn_version: int) -> bool:
        """Whether a rollback has left the snapshot `version`: it exists, but the current snapshot
        does not descend from it. False if it has expired, so that nothing is known about it. The
        other arguments are needed for Delta."""
        snapshot = self._table.metadata.snapshot_by_id(version)
        ancestors = list(ancestors_of(self._table.current_snapshot(), self._table.metadata))
        if snapshot is None or snapshot in ancestors:
            return False
        # Expiry ends the ancestors at a snapshot that may be younger than this one.
        return not ancestors or ancestors[-1].timestamp_ms <= snapshot.timestamp_ms

    def keep_versions(self, span: timedelta) -> None:
        self.set_property(_SNAPSHOT_AGE, str(int(span.total_seconds() * 1000)))

    def property(self, name: str) -> str | None:
        return self._table.properties.get(name)

    def set_property(self, name: str, value: str) -> None:
        """Set a property of the table, unless it has this value, and read the newest version."""
        if self.property(name) == value:
            return
        transaction = self._begin()
        transaction.set_properties({name: value})
        commit(self.name, transaction)
        self.refresh()

    def refresh(self) -> None:
        self._table = self._table.refresh()

    def append(self, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        self._commit_files(self._begin(), files, txn_versions)

    def replace(self, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        """Replace all files of the table by these, and set transaction versions, in one commit."""
        transaction = self._begin()
        if self._table.current_snapshot() is not None:
            transaction.delete(ex.AlwaysTrue())
        self._commit_files(transaction, files, txn_versions)

    def _commit_files(
        self, transaction: Transaction, files: Sequence[NewFile], txn_versions: TxnVersions
    ) -> None:
        """Add new files and transaction versions to a transaction that was begun, and commit it;
        now and then old snapshots are removed, too."""
        self._stage(transaction, files, txn_versions)
        commit(self.name, transaction)
        self._expire_periodically()

    def merge(self, changes: Changes, txn_versions: TxnVersions) -> None:
        """Merge a batch of upserts: files with replaced rows are written anew, and replaced in one
        commit. The new files are removed if the table certainly does not have that."""
        transaction = self._begin()
        files = file_writer.FileWriter(
            self.layout(_MERGED_FILE_BYTES, "zstd"), self.storage, "merged"
        )
        try:
            replaced = write_merged_rows(self._table, changes, files)
            self._stage(transaction, files.close(), txn_versions, replaced_files=replaced)
        except BaseException:
            files.discard()
            raise
        try:
            commit(self.name, transaction)
        except CommitConflict:  # after any other error the commit may be there
            files.discard()
            raise
        self._expire_periodically()

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add columns, which are null in existing rows."""
        transaction = self._begin()
        with transaction.update_schema() as change:
            change.union_by_name(
                pa.schema([as_nullable(_with_iceberg_integer(column)) for column in columns])
            )
        commit(self.name, transaction)

    def widen(self, columns: Sequence[pa.Field]) -> None:
        """Give columns of INT the type BIGINT, and those of FLOAT the type DOUBLE."""
        transaction = self._begin()
        with transaction.update_schema() as change:
            for column in columns:
                kind = LongType() if pa.types.is_integer(column.type) else DoubleType()
                change.update_column(column.name, kind)
        commit(self.name, transaction)

    def facts(self) -> TableFacts:
        """What a command shows about the table. Rows are counted by the entries of the files, or by
        reading them if some are deleted."""
        scan = self._table.scan()
        tasks = iceberg_scan.plan_files(scan)
        files = [task.file for task in tasks]
        snapshot = self._table.current_snapshot()
        deleted = any(task.delete_files for task in tasks)  # only the rows themselves show it
        return TableFacts(
            format="iceberg",
            location=self.location,
            version=len(self._table.metadata.snapshots),
            committed=None if snapshot is None else commit_time(snapshot.timestamp_ms),
            rows=scan.count() if deleted else sum(file.record_count for file in files),
            files=len(files),
            bytes=sum(file.file_size_in_bytes for file in files),
            columns=describe_columns(self.schema),
            partition_by=list(self.partition_by),
            properties=dict(self._table.properties),
        )

    def bytes_to_merge(self, target_bytes: int) -> int:
        return sum(_file_bytes(task) for group in self._small_files(target_bytes) for task in group)

    def compact(self, target_bytes: int) -> Compaction:
        """Merge small files into files of about this size, each group in a commit of its own; a
        group of which another program changed a file meanwhile is left as it is."""
        removed = added = 0
        for group in self._small_files(target_bytes):
            batches = iceberg_scan.read_files(
                self._table.metadata, self._table.io, self._table.schema(), group
            )
            layout = self.layout(target_bytes, "zstd")
            new = file_writer.write_files(layout, self.storage, "compacted", batches)
            if self._replace_files(old={task.file.file_path for task in group}, new=new):
                removed += len(group)
                added += len(new)
        return Compaction(removed=removed, added=added)

    def _small_files(self, target_bytes: int) -> Iterator[list[FileScanTask]]:
        """Yield groups of small files of one partition that a compaction merges into one file.
        Leaves out files with deleted rows, which other files name, and those of older partition
        specs."""
        by_partition: dict[Any, list[FileScanTask]] = defaultdict(list)
        spec = self._table.metadata.default_spec_id
        for task in iceberg_scan.plan_files(self._table.scan()):
            if not task.delete_files and task.file.spec_id == spec:
                by_partition[task.file.partition].append(task)
        for tasks in by_partition.values():
            yield from maintenance.group_small_files(tasks, _file_bytes, target_bytes)

    def _replace_files(self, old: set[str], new: Sequence[NewFile]) -> bool:
        """Commit a compaction: new files in place of old ones, given by their paths. Returns False,
        and changes nothing, if an old file was replaced meanwhile, or rows of it were deleted.

        Raises CommitConflict if others commit without a break.
        """

        def attempt() -> bool:
            """Commit on top of the version that was read; False if it lacks an old file."""
            files_by_path = {
                task.file.file_path: task.file
                for task in self._table.scan().plan_files()
                if not task.delete_files
            }
            if not old <= files_by_path.keys():
                return False
            transaction = self._begin()
            old_files = [files_by_path[path] for path in old]
            stage_files(transaction, old=old_files, new=self._data_files(new))
            commit(self.name, transaction)
            return True

        try:
            return commit_with_retries(self.name, attempt, self.refresh, error=CommitConflict)
        finally:
            self.refresh()

    def delete_before(self, column: str, limit: pa.Scalar) -> Expiry:
        """Remove the rows with a value below the limit: of a file only this column is read, unless
        some of its rows stay, which are written anew. The new files are removed if the table
        certainly does not have the commit."""
        from jetspark.tables.conditions import Comparison

        condition = Comparison(column, "<", limit.as_py(), limit.type)
        scan = self._table.scan(selected_fields=(column,))
        old: set[str] = set()
        count = 0
        files = file_writer.FileWriter(
            self.layout(_MERGED_FILE_BYTES, "zstd"), self.storage, "merged"
        )
        try:
            for task in iceberg_scan.plan_files(scan, iceberg_scan.to_iceberg(condition)):
                rows = iceberg_scan.read_table(
                    self._table.metadata, self._table.io, scan.projection(), task
                )
                is_met = pc.fill_null(pc.less(rows[column], limit), False)
                if not (met := pc.sum(is_met).as_py() or 0):
                    continue
                if task.delete_files:
                    raise ConfigError(
                        f"{self.name} has files with deleted rows (merge-on-read): remove rows "
                        "with Iceberg's own connector (DELETE FROM)."
                    )
                count += met
                old.add(task.file.file_path)
                if met < rows.num_rows:
                    whole = iceberg_scan.read_table(
                        self._table.metadata, self._table.io, self._table.schema(), task
                    )
                    for batch in whole.filter(pc.invert(is_met)).to_batches():
                        files.write(batch)
            new = files.close()
        except BaseException:
            files.discard()
            raise
        if old and not self._replace_files(old=old, new=new):
            files.discard()
            raise CommitConflict(f"{self.name} was changed in the meantime.")
        return Expiry(rows=count, removed=len(old), rewritten=len(new))

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> Vacuum:
        """Remove the snapshots that were replaced before the retention, and the files that no other
        one needs and that are proven to be the table's; returns the paths of these, and of unproven
        files. `dry_run`: remove nothing."""
        maintenance.check_retention(retention)
        if self._keeps_all_files():
            raise ConfigError(
                f"{self.name} has the property gc.enabled=false: its files may belong to another "
                "table, too. Nothing was removed; set the property to true if they do not."
            )
        old = iceberg_maintenance.old_snapshots(self._table, datetime.now(UTC) - retention)
        result = iceberg_maintenance.find_unneeded_files(self._table, set(old), retention)
        if not dry_run:
            # Update the metadata first, so that no snapshot refers to a removed file.
            if old:
                self._expire(old)
            maintenance.remove_files(self.storage, result.removed)
            self.refresh()
        return result

    def _expire_periodically(self) -> None:
        """After every so many commits, remove the snapshots that are older than the table's
        property says, and the manifests that only they need; data files are left to `vacuum`.
        Tables with other branches or tags are left as they are."""
        metadata = self._table.metadata
        age = metadata.properties.get(_SNAPSHOT_AGE)
        before = metadata.current_snapshot()
        is_due = before is not None and not (before.sequence_number or 1) % _COMMITS_PER_EXPIRY
        if not is_due or age is None or self._keeps_all_files() or set(metadata.refs) != {"main"}:
            return
        with suppress(Exception):  # another writer does the same; the rest follows later
            self.refresh()
            limit = datetime.now(UTC) - timedelta(milliseconds=int(age))
            old = iceberg_maintenance.old_snapshots(self._table, limit)
            # The oldest come first; some snapshots stay, however old they are.
            old = old[: max(len(self._table.metadata.snapshots) - _COMMITS_PER_EXPIRY, 0)]
            manifests = iceberg_maintenance.find_unneeded_manifests(self._table, old)
            if manifests:
                self._expire(old)
                maintenance.remove_files(self.storage, manifests)

    def _keeps_all_files(self) -> bool:
        """Whether nothing may be removed, since files may belong to another table, too."""
        return self._table.properties.get("gc.enabled", "true").casefold() == "false"

    def _expire(self, snapshot_ids: Sequence[int]) -> None:
        """Remove snapshots, given by their ids, from the table's metadata in a commit; the files
        that only they need stay."""
        transaction = self._begin(all_snapshots=True)
        with ExpireByIds(transaction) as expiring:
            expiring.by_ids(list(snapshot_ids))
        commit(self.name, transaction)

    def _begin(self, *, all_snapshots: bool = False) -> Transaction:
        """A transaction on top of this version, see `begin_transaction`."""
        return begin_transaction(self.name, self._table, all_snapshots=all_snapshots)

    def _data_files(self, files: Sequence[NewFile]) -> list[DataFile]:
        """The entries of new files for a manifest. Raises TableError if the table's columns or
        partitions were changed since the files were written."""
        return [data_file(self.name, self._table, self.schema, file) for file in files]

    def _stage(
        self,
        transaction: Transaction,
        files: Sequence[NewFile],
        txn_versions: TxnVersions,
        replaced_files: Sequence[DataFile] = (),
    ) -> None:
        """Add new files, in place of others, and transaction versions to a transaction, which is
        not committed yet. A version of None becomes the id of the new snapshot."""
        stage_files(transaction, old=replaced_files, new=self._data_files(files))
        snapshot_id = transaction.table_metadata.current_snapshot_id
        versions = {
            name: snapshot_id if value is None else value for name, value in txn_versions.items()
        }
        transaction.set_properties(
            {_TXN_VERSION_PREFIX + name: str(value) for name, value in versions.items()}
        )


def _file_bytes(task: FileScanTask) -> int:
    """Size of a task's data file."""
    return task.file.file_size_in_bytes


def _with_iceberg_integer(field: pa.Field) -> pa.Field:
    """The column, with the type INT in place of TINYINT and SMALLINT, which Iceberg lacks."""
    if pa.types.is_int8(field.type) or pa.types.is_int16(field.type):
        return field.with_type(pa.int32())
    return field
