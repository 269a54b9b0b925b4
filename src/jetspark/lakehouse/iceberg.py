"""Iceberg tables, through the library pyiceberg. Source: the Iceberg table specification."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.expressions as ex
import pyiceberg.io.pyarrow as arrow_io
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table import (
    CommitTableResponse,
    DataScan,
    FileScanTask,
    TableProperties,
    Transaction,
)
from pyiceberg.table import Table as PyTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType

from jetspark.errors import CommitConflict, ConfigError, TableError
from jetspark.lakehouse import maintenance, new_files
from jetspark.lakehouse.conditions import All, Comparison, Condition, IsNull, Some
from jetspark.lakehouse.iceberg_files import arrow_schema, read_files, read_table
from jetspark.lakehouse.iceberg_folder import catalog_of, local_folder
from jetspark.lakehouse.iceberg_maintenance import (
    find_unneeded_files,
    find_unneeded_manifests,
    old_snapshots,
)
from jetspark.lakehouse.iceberg_partitions import (
    add_partitions,
    partition_texts,
    partitions_of,
    sort_keys_of,
)
from jetspark.lakehouse.iceberg_storage import ConfinedFiles, confined_files
from jetspark.lakehouse.iceberg_trust import METADATA_FILE
from jetspark.lakehouse.inside import check_files, file_outside_table, files_inside, relative_path
from jetspark.lakehouse.optimistic_commits import commit_with_retries
from jetspark.lakehouse.partitions import PartitionBy
from jetspark.lakehouse.schemas import as_nullable, normalized_type
from jetspark.lakehouse.statistics import (
    column_bounds,
    leaf_columns,
    upper_bound_of_binary,
    upper_bound_of_text,
)
from jetspark.lakehouse.table import (
    ROW_ORDER,
    Changes,
    ScanTask,
    Table,
    TableName,
    TxnVersions,
    group_into_tasks,
)

# -------------------------------------------------------------------------------------------------
# Conditions that skip files, in PyIceberg's form.


_COMPARISONS: dict[str, Any] = {
    "=": ex.EqualTo, "!=": ex.NotEqualTo, "<": ex.LessThan, "<=": ex.LessThanOrEqual,
    ">": ex.GreaterThan, ">=": ex.GreaterThanOrEqual,
}  # fmt: skip


def to_iceberg(condition: Condition) -> ex.BooleanExpression:
    """The condition for a scan of PyIceberg."""
    match condition:
        case Comparison():
            expression: ex.BooleanExpression = _COMPARISONS[condition.operator](
                ex.Reference(condition.column), condition.value
            )
            # NaN is greater than every number in Spark, and above no file's bounds.
            if pa.types.is_floating(condition.type) and condition.operator in (">", ">=", "!="):
                return ex.Or(expression, ex.IsNaN(term=ex.Reference(condition.column)))
            return expression
        case IsNull():
            column = ex.Reference(condition.column)
            return ex.NotNull(term=column) if condition.negated else ex.IsNull(term=column)
        case All() | Some():
            first, *more = map(to_iceberg, condition.parts)
            # Built from all parts at once, the tree is not deep; its readers are recursive.
            return (
                (ex.And if isinstance(condition, All) else ex.Or)(first, *more) if more else first
            )


_EVERY_ROW: ex.BooleanExpression = ex.AlwaysTrue()
_MERGED_FILE_BYTES = 128 * 1024 * 1024
_TXN_VERSION_PREFIX = "jetspark.number."
"""Prefix of the table properties that hold numbers; properties of snapshots would expire."""
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
_NO_RETRIES = {"commit.retry.num-retries": "0"}


@dataclass(frozen=True)
class IcebergStorage(new_files.Storage):
    """Files of an Iceberg table."""

    location: str
    properties: Mapping[str, str] = field(repr=False)

    def create(self, path: str) -> Any:
        return self._files().new_output(f"{self.location}/{path}").create()

    def open(self, path: str) -> Any:
        return self._files().new_input(f"{self.location}/{path}").open()

    def remove(self, path: str) -> None:
        self._files().delete(f"{self.location}/{path}")

    def _files(self) -> ConfinedFiles:
        return confined_files(self.properties, self.location)


@dataclass(frozen=True)
class IcebergScanTask(ScanTask):
    """Some files of one snapshot."""

    tasks: Sequence[FileScanTask]
    metadata: TableMetadata
    columns: Schema
    properties: Mapping[str, str] = field(repr=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        io = confined_files(self.properties, self.metadata.location)
        return read_files(self.metadata, io, self.columns, self.tasks)


class OpenIceberg(Table):
    """An Iceberg table at one version.

    A layout is refused for partitions that nobody can compute, and for a version of the format that
    PyIceberg does not write. CommitConflict: it is proven that the table does not have the
    commit; TableError: it may have it later, or others commit without a break.
    """

    def __init__(self, name: TableName, table: PyTable, snapshot: int | None = None) -> None:
        self.name = name
        self._table = table
        self._snapshot = snapshot

    @classmethod
    def find(cls, name: TableName) -> OpenIceberg | None:
        """The table; None when there is none."""
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
        """A new, empty table. Raises ConfigError for types that Iceberg does not have, and
        CommitConflict if another writer created it first."""
        catalog, identifier, location = catalog_of(name)
        try:
            with catalog.create_table_transaction(
                identifier,
                pa.schema([as_nullable(_with_iceberg_integer(column)) for column in schema]),
                location=location,
                properties=_NEW_TABLE_PROPERTIES
                | {_TXN_VERSION_PREFIX + txn: str(value) for txn, value in txn_versions.items()},
            ) as making:
                if partition_by:
                    with making.update_spec() as spec:
                        add_partitions(spec, partition_by)
        except NoSuchNamespaceError:
            raise ConfigError(
                f"{name}: the catalog has no such namespace; create it first."
            ) from None
        except (TypeError, ValueError, arrow_io.UnsupportedPyArrowTypeException) as error:
            raise ConfigError(f"Iceberg does not support a column: {error}") from error
        except Exception as error:
            if cls.find(name) is not None:  # made by another writer, or by this one after all
                raise CommitConflict(f"{name} was created by another writer.") from error
            raise
        return cls(name, catalog.load_table(identifier))

    @property
    def location(self) -> str:
        return self._table.location().rstrip("/")

    @property
    def schema(self) -> pa.Schema:
        schema = self._table.schema()
        if self._snapshot is not None:
            schema = self._table.scan(snapshot_id=self._snapshot).projection()
        return arrow_schema(schema)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return partition_texts(self._table.metadata)

    @property
    def generated_columns(self) -> dict[str, new_files.DerivedColumn]:
        return {}

    @property
    def storage(self) -> IcebergStorage:
        return IcebergStorage(self.location, {**self._table.io.properties})

    @staticmethod
    def storage_of(folder: TableName) -> IcebergStorage:
        """The storage of a folder."""
        return IcebergStorage(f"file://{local_folder(folder.path or '')}", folder.properties)

    def layout(self, target_bytes: int, compression: str) -> new_files.Layout:
        if (format_ := self._table.metadata.format_version) > _MAX_FORMAT_VERSION:
            raise ConfigError(
                f"{self.name} is in version {format_} of the Iceberg format, which PyIceberg does "
                "not write: write it with Iceberg's own connector for Spark."
            )
        metadata = self._table.metadata
        return new_files.Layout(
            schema=self.schema,
            partition_by=partitions_of(self.name, metadata),
            folder="data/",
            target_bytes=target_bytes,
            compression=compression,
            sort_by=sort_keys_of(self.name, metadata),
            spec_id=metadata.default_spec_id,
            sort_order_id=metadata.default_sort_order_id,
        )

    def at_version(self, version: int) -> OpenIceberg:
        if self._table.snapshot_by_id(version) is None:
            raise ConfigError(f"{self.name} has no snapshot {version}.")
        return OpenIceberg(self.name, self._table, version)

    def scan_tasks(
        self, columns: Sequence[str], prune: str | None, at_least: int
    ) -> list[IcebergScanTask]:
        scan = self._table.scan(selected_fields=tuple(columns), snapshot_id=self._snapshot)
        predicate: ex.BooleanExpression = ex.AlwaysTrue()
        if prune is not None:
            from jetspark.lakehouse.prune import parse_condition

            predicate = to_iceberg(parse_condition(prune, self.schema))
        tasks = _plan_files(scan, predicate)
        properties = dict(self._table.io.properties)
        return [
            IcebergScanTask(group, self._table.metadata, scan.projection(), properties)
            for group in group_into_tasks(
                tasks, lambda task: task.file.file_size_in_bytes, at_least
            )
        ]

    @property
    def version(self) -> int:
        return self._table.metadata.current_snapshot_id or 0

    @property
    def commits(self) -> int:
        snapshot = self._table.current_snapshot()
        sequence_number = None if snapshot is None else snapshot.sequence_number
        return sequence_number or len(self._table.metadata.snapshots)

    @property
    def is_new(self) -> bool:
        return not self.version

    def txn_version(self, name: str) -> int | None:
        text = self._table.properties.get(_TXN_VERSION_PREFIX + name)
        return None if text is None else int(text)

    def check_txn_versions_retained(self) -> None:
        """Table properties stay."""

    def was_set_back(self, version: int, name: str, number: int) -> bool:
        snapshot = self._table.metadata.snapshot_by_id(version)
        line = list(ancestors_of(self._table.current_snapshot(), self._table.metadata))
        # Expiry cuts the line at a snapshot that is younger than this one.
        return (
            snapshot is not None
            and snapshot not in line
            and (not line or line[-1].timestamp_ms <= snapshot.timestamp_ms)
        )

    def keep_versions(self, span: timedelta) -> None:
        milliseconds = str(int(span.total_seconds() * 1000))
        if self.property(_SNAPSHOT_AGE) != milliseconds:
            self.set_property(_SNAPSHOT_AGE, milliseconds)

    def property(self, name: str) -> str | None:
        return self._table.properties.get(name)

    def set_property(self, name: str, value: str) -> None:
        transaction = self._transaction()
        transaction.set_properties({name: value})
        self._commit(transaction)
        self.refresh()

    def refresh(self) -> None:
        self._table = self._table.refresh()

    def append(self, files: Sequence[new_files.NewFile], txn_versions: TxnVersions) -> None:
        self._change(self._transaction(), files, txn_versions)

    def replace(self, files: Sequence[new_files.NewFile], txn_versions: TxnVersions) -> None:
        transaction = self._transaction()
        if self._table.current_snapshot() is not None:
            transaction.delete(ex.AlwaysTrue())
        self._change(transaction, files, txn_versions)

    def _change(
        self,
        transaction: Transaction,
        files: Sequence[new_files.NewFile],
        txn_versions: TxnVersions,
    ) -> None:
        self._add(transaction, files, txn_versions)
        self._commit(transaction)
        self._expire_now_and_then()

    def merge(self, changes: Changes, txn_versions: TxnVersions) -> None:
        transaction = self._transaction()
        files = new_files.FileWriter(
            self.layout(_MERGED_FILE_BYTES, "zstd"), self.storage, "merged"
        )
        try:
            replaced_files, changes = self._without_replaced(changes, files)
            if changes.rows.num_rows:
                for batch in changes.rows.filter(pc.invert(changes.deleted)).to_batches():
                    files.write(batch)
            self._add(transaction, files.close(), txn_versions, replaced_files)
        except BaseException:
            files.discard()
            raise
        try:
            self._commit(transaction)
        except CommitConflict:  # after any other error the commit may be there
            files.discard()
            raise
        self._expire_now_and_then()

    def _without_replaced(
        self, changes: Changes, files: new_files.FileWriter
    ) -> tuple[list[DataFile], Changes]:
        """The files with replaced rows, and the changes that are not older than the table's rows.

        The other rows of these files are written again. Rows are found by their keys as Arrow,
        since an expression with every key takes minutes, and the stack of the process.
        """
        affected: list[tuple[FileScanTask, pa.Table, bool]] = []
        if changes.rows.num_rows or changes.truncated_before is not None:
            scan = self._table.scan(selected_fields=tuple(changes.columns))
            for task in _plan_files(scan, _key_range(changes)):
                rows = self._rows(scan, task)
                matching = changes.matching_rows(rows)
                emptied = pc.any(changes.truncated_mask(rows), min_count=0).as_py()
                if matching.num_rows or emptied:
                    affected.append((task, matching, emptied))
        if affected:
            changes = changes.without_outdated(
                pa.concat_tables([matching for _, matching, _ in affected])
            )
        old = []
        for task, matching, emptied in affected:
            if emptied or changes.matching_rows(matching).num_rows:
                rows = self._rows(self._table.scan(), task)
                ordered = rows.append_column(ROW_ORDER, pa.array(range(rows.num_rows)))
                replaced = changes.matching_rows(ordered, ROW_ORDER)[ROW_ORDER]
                remaining = pc.invert(
                    pc.or_(
                        pc.is_in(ordered[ROW_ORDER], value_set=replaced),
                        changes.truncated_mask(rows),
                    )
                )
                for batch in rows.filter(remaining).to_batches():
                    files.write(batch)
                old.append(task.file)
        return old, changes

    def _rows(self, scan: DataScan, task: FileScanTask) -> pa.Table:
        """The columns of the scan in a file."""
        return read_table(self._table.metadata, self._table.io, scan.projection(), task)

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        transaction = self._transaction()
        with transaction.update_schema() as change:
            change.union_by_name(
                pa.schema([as_nullable(_with_iceberg_integer(column)) for column in columns])
            )
        self._commit(transaction)

    def widen(self, columns: Sequence[pa.Field]) -> None:
        transaction = self._transaction()
        with transaction.update_schema() as change:
            for column in columns:
                kind = LongType() if pa.types.is_integer(column.type) else DoubleType()
                change.update_column(column.name, kind)
        self._commit(transaction)

    def facts(self) -> maintenance.TableFacts:
        scan = self._table.scan()
        tasks = _plan_files(scan)
        files = [file.file for file in tasks]
        deleted = any(file.delete_files for file in tasks)  # only the rows themselves show it
        return maintenance.TableFacts(
            format="iceberg",
            location=self.location,
            version=len(self._table.metadata.snapshots),
            rows=scan.count() if deleted else sum(file.record_count for file in files),
            files=len(files),
            bytes=sum(file.file_size_in_bytes for file in files),
            columns=[(file.name, str(normalized_type(file.type))) for file in self.schema],
            partition_by=list(self.partition_by),
            properties=dict(self._table.properties),
        )

    def bytes_to_merge(self, target_bytes: int) -> int:
        return sum(
            task.file.file_size_in_bytes
            for group in self._small_files(target_bytes)
            for task in group
        )

    def compact(self, target_bytes: int) -> maintenance.Compaction:
        removed = added = 0
        for group in self._small_files(target_bytes):
            table = self._table
            batches = read_files(table.metadata, table.io, table.schema(), group)
            layout = self.layout(target_bytes, "zstd")
            new = new_files.write_files(layout, self.storage, "compacted", batches)
            if self._replace_files({task.file.file_path for task in group}, new):
                removed += len(group)
                added += len(new)
        return maintenance.Compaction(removed, added)

    def _small_files(self, target_bytes: int) -> Iterator[list[FileScanTask]]:
        """Each partition's small files, in groups; skips files with rows deleted elsewhere."""
        by_partition: dict[Any, list[FileScanTask]] = defaultdict(list)
        spec = self._table.metadata.default_spec_id
        for task in _plan_files(self._table.scan()):
            if not task.delete_files and task.file.spec_id == spec:
                by_partition[task.file.partition].append(task)
        for tasks in by_partition.values():
            sizes = [task.file.file_size_in_bytes for task in tasks]
            yield from maintenance.group_small_files(tasks, sizes, target_bytes)

    def _replace_files(self, old: set[str], new: Sequence[new_files.NewFile]) -> bool:
        """Commit files in place of others; False if these were replaced, or rows of them deleted.

        Raises CommitConflict if others commit without a break.
        """

        def attempt() -> bool:
            live = {
                task.file.file_path: task.file
                for task in self._table.scan().plan_files()
                if not task.delete_files
            }
            if not old <= live.keys():
                return False
            transaction = self._transaction()
            _stage(transaction, [live[path] for path in old], list(map(self._data_file, new)))
            self._commit(transaction)
            return True

        try:
            return commit_with_retries(self.name, attempt, self.refresh, error=CommitConflict)
        finally:
            self.refresh()

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> maintenance.Vacuum:
        maintenance.check_retention(retention)
        table = self._table
        if table.properties.get("gc.enabled", "true").casefold() == "false":
            raise ConfigError(
                f"{self.name} has the property gc.enabled=false: its files may belong to another "
                "table, too. Nothing was removed; set the property to true if they do not."
            )
        old = old_snapshots(table, datetime.now(UTC) - retention)
        result = find_unneeded_files(table, set(old), retention)
        if not dry_run:
            # Update the metadata first, so that no snapshot refers to a removed file.
            if old:
                self._expire(old)
            maintenance.remove_files(self.storage, result.removed)
            self.refresh()
        return result

    def _expire_now_and_then(self) -> None:
        """After a commit on top of this version, remove the snapshots that are older than the table
        says, and the manifests that only they name; data files are left to `vacuum`."""
        metadata = self._table.metadata
        age = metadata.properties.get(_SNAPSHOT_AGE)
        present = metadata.current_snapshot()
        if (
            present is None
            or (present.sequence_number or 1) % _COMMITS_PER_EXPIRY
            or age is None
            or metadata.properties.get("gc.enabled", "true").casefold() == "false"
            or set(metadata.refs) != {"main"}
        ):
            return
        with suppress(Exception):  # another writer does the same; the rest follows later
            self.refresh()
            old = old_snapshots(self._table, datetime.now(UTC) - timedelta(milliseconds=int(age)))
            old = old[: max(len(self._table.metadata.snapshots) - _COMMITS_PER_EXPIRY, 0)]
            named = find_unneeded_manifests(self._table, old)
            if named:
                self._expire(old)
                maintenance.remove_files(self.storage, named)

    def _expire(self, old: Sequence[int]) -> None:
        transaction = self._transaction(all_snapshots=True)
        with _ExpireByIds(transaction) as expiring:
            expiring.by_ids(list(old))
        self._commit(transaction)

    def _transaction(self, *, all_snapshots: bool = False) -> Transaction:
        """A transaction whose commit fails if another commit came first.

        By default the library retries on top of the other commit, even if that set the same
        numbers. `whole`: with all snapshots, which the library copies some twenty times.
        """
        metadata = self._table.metadata
        for name in (TableProperties.WRITE_METADATA_PATH, TableProperties.WRITE_DATA_PATH):
            path = metadata.properties.get(name)
            if path is not None and relative_path(self.location, path) is None:
                raise file_outside_table(self.location, f"{name}: {path}")
        changed: dict[str, Any] = {"properties": {**metadata.properties, **_NO_RETRIES}}
        if not all_snapshots:
            heads = {snapshot.snapshot_id for snapshot in metadata.refs.values()}
            heads.add(metadata.current_snapshot_id or 0)
            snapshots = [
                snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in heads
            ]
            changed |= {"snapshots": snapshots, "snapshot_log": []}
        staged = metadata.model_copy(update=changed)
        table = self._table
        return PyTable(
            table.name(), staged, table.metadata_location, table.io,
            _ConfirmingCatalog(self.name, table.catalog), table.config,
        ).transaction()  # fmt: skip

    def _add(
        self,
        transaction: Transaction,
        files: Sequence[new_files.NewFile],
        txn_versions: TxnVersions,
        replaced_files: Sequence[DataFile] = (),
    ) -> None:
        _stage(transaction, replaced_files, list(map(self._data_file, files)))
        snapshot_id = transaction.table_metadata.current_snapshot_id
        versions = {
            name: snapshot_id if value is None else value for name, value in txn_versions.items()
        }
        transaction.set_properties(
            {_TXN_VERSION_PREFIX + name: str(value) for name, value in versions.items()}
        )

    def _commit(self, transaction: Transaction) -> None:
        """Raises CommitConflict if it is proven that the table does not have the commit, and
        TableError if it may have it later."""
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise CommitConflict(f"{self.name} was changed in the meantime ({error}).") from error

    def _data_file(self, file: new_files.NewFile) -> DataFile:
        metadata = self._table.metadata
        schema, spec = metadata.schema(), metadata.spec()
        new_files.check_unchanged(self.name, self.schema, file)
        if file.spec_id != metadata.default_spec_id:
            raise new_files.table_changed(self.name, "its partitions")
        statistics = _statistics(file, schema, metadata.properties)
        # Not by PyIceberg's PartitionKey, which takes one transform of a column only.
        partition = Record(
            *(
                partition_record_value(partition_field, value, schema)
                for partition_field, value in zip(spec.fields, file.partition, strict=True)
            )
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self.location}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=partition,
            file_size_in_bytes=file.size,
            sort_order_id=file.sort_order_id or None,
            spec_id=file.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics,
        )


def _statistics(
    file: new_files.NewFile, schema: Schema, properties: Mapping[str, str]
) -> dict[str, Any]:
    """The statistics of a file: counts by the library, and bounds that are cut here, since its own
    fail or are too narrow for some texts and row groups."""
    footer = file.metadata
    plan = arrow_io.compute_statistics_plan(schema, dict(properties))
    field_ids = arrow_io.parquet_path_to_id_mapping(schema)
    counts = arrow_io.MetricsMode(arrow_io.MetricModeTypes.COUNTS)
    of_bounds = (arrow_io.MetricModeTypes.FULL, arrow_io.MetricModeTypes.TRUNCATE)
    counted = {
        field_id: replace(collector, mode=counts) if collector.mode.type in of_bounds else collector
        for field_id, collector in plan.items()
    }
    metrics = arrow_io.data_file_statistics_from_parquet_metadata(footer, counted, field_ids)
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for path, index in leaf_columns(footer).items():
        collector = plan[field_ids[path]]
        if collector.mode.type not in of_bounds:
            continue
        low, high = column_bounds(footer, index, file.long_texts)
        if (width := collector.mode.length) is not None and isinstance(low, (str, bytes)):
            low = low[:width]
            high = high and (
                upper_bound_of_text if isinstance(high, str) else upper_bound_of_binary
            )(high, width)
        for bounds, value in ((lower, low), (upper, high)):
            if value is not None:
                bounds[collector.field_id] = to_bytes(collector.iceberg_type, value)
    return {**metrics.to_serialized_dict(), "lower_bounds": lower, "upper_bounds": upper}


def _stage(transaction: Transaction, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
    """Replace files by others, in one snapshot."""
    snapshot = transaction.update_snapshot()
    # Even without files, since a commit that only sets properties would not notice another one.
    with snapshot.overwrite() if old else snapshot.merge_append() as update:
        for file in old:
            update.delete_data_file(file)
        for file in new:
            update.append_data_file(file)


class _ExpireByIds(ExpireSnapshots):
    """Removes snapshots from the metadata."""

    def by_ids(self, snapshot_ids: list[int]) -> ExpireSnapshots:
        """Remove these snapshots. The library's own method copies all snapshots twice for each."""
        self._snapshot_ids_to_expire.update(snapshot_ids)
        return self


class _ConfirmingCatalog(NoopCatalog):
    """A catalog that looks up the outcome of a commit that it did not confirm.

    Even a refusal leaves the outcome open: the request may have been sent twice on its way to the
    catalog, and the second one then conflicts with the first. The library removes the manifests of
    refused commits.
    """

    def __init__(self, name: TableName, catalog: Catalog) -> None:
        super().__init__("asking")
        self._table = name
        self._catalog = catalog

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete old versions, as the library does, of which any could be named: only files of
        metadata below the table's location are its own."""
        inside = files_inside(base.location, (entry.metadata_file for entry in base.metadata_log))
        log = [
            entry
            for entry in base.metadata_log
            if METADATA_FILE.fullmatch(inside.get(entry.metadata_file, ""))
        ]
        Catalog._delete_old_metadata(io, base.model_copy(update={"metadata_log": log}), metadata)

    def commit_table(
        self,
        table: PyTable,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Raises CommitFailedException if it is proven that the table does not have the updates,
        and TableError if that is not known."""
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except Exception as error:  # of too many kinds to name them
            try:
                current = self._catalog.load_table(table.name())
            except Exception:
                raise _unconfirmed(self._table, error) from error
            if all(_has_update(update, current.metadata) for update in updates):
                return CommitTableResponse.model_validate(
                    {"metadata": current.metadata, "metadata-location": current.metadata_location}
                )
            if isinstance(error, CommitFailedException):
                raise
            raise _unconfirmed(self._table, error) from error


def _has_update(update: TableUpdate, metadata: TableMetadata) -> bool:
    """Whether the table has an update; True for updates that follow from these."""
    match update:
        case AddSnapshotUpdate():
            return metadata.snapshot_by_id(update.snapshot.snapshot_id) is not None
        case RemoveSnapshotsUpdate():
            return not any(map(metadata.snapshot_by_id, update.snapshot_ids))
        case AddSchemaUpdate():
            return update.schema_.as_struct() == metadata.schema().as_struct()
    return True


def _unconfirmed(name: TableName, error: Exception) -> TableError:
    reason = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
    return TableError(
        f"{name}: the catalog did not confirm a commit ({reason}), and so far the table does not "
        "have it. No file was removed: run it again."
    )


def _plan_files(scan: DataScan, condition: ex.BooleanExpression = _EVERY_ROW) -> list[FileScanTask]:
    """The files that may have a row for the condition, with all of their rows. Raises ConfigError
    for files that are not below the table's location."""
    try:
        tasks = list(scan.filter(condition).plan_files())
    except TypeError:  # PyIceberg 0.12 compares a null partition value by < and >
        tasks = list(scan.plan_files())
    files = [file for task in tasks for file in (task.file, *task.delete_files)]
    check_files(scan.table_metadata.location, (file.file_path for file in files))
    return [FileScanTask(file.file, file.delete_files, ex.AlwaysTrue()) for file in tasks]


def _key_range(changes: Changes) -> ex.BooleanExpression:
    """A condition that holds for every row with one of these keys, and for all if all may go."""
    if changes.truncated_before is not None:
        return ex.AlwaysTrue()
    ranges = []
    for key in changes.keys:
        column = changes.rows[key]
        ends = pc.min_max(column).as_py()
        if ends["min"] is None:  # truncates of a history, which replace nothing
            continue
        ranges.append(Comparison(key, ">=", ends["min"], column.type))
        ranges.append(Comparison(key, "<=", ends["max"], column.type))
    return to_iceberg(All(tuple(ranges)))


def _with_iceberg_integer(field: pa.Field) -> pa.Field:
    """Iceberg's smallest integer type has 32 bits."""
    if pa.types.is_int8(field.type) or pa.types.is_int16(field.type):
        return field.with_type(pa.int32())
    return field
