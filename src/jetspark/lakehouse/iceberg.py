"""Iceberg tables, through the library pyiceberg. Source: the Iceberg table specification."""

from __future__ import annotations

import time
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
from jetspark.lakehouse.iceberg_maintenance import manifests_of, old_snapshots, vacuumed
from jetspark.lakehouse.iceberg_partitions import (
    add_partitions,
    partitions_of,
    sort_keys_of,
    texts_of,
)
from jetspark.lakehouse.iceberg_storage import ConfinedFiles, confined_files
from jetspark.lakehouse.iceberg_trust import OF_METADATA
from jetspark.lakehouse.inside import check_files, files_inside, outside, relative_path
from jetspark.lakehouse.partitions import PartitionBy
from jetspark.lakehouse.schemas import nullable, plain
from jetspark.lakehouse.statistics import column_bounds, leaf_columns, upper_binary, upper_text
from jetspark.lakehouse.table import PLACE, Changes, Numbers, Piece, Table, TableName, pieces_of

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
            found: ex.BooleanExpression = _COMPARISONS[condition.operator](
                ex.Reference(condition.column), condition.value
            )
            # NaN is greater than every number in Spark, and above no file's bounds.
            if pa.types.is_floating(condition.type) and condition.operator in (">", ">=", "!="):
                return ex.Or(found, ex.IsNaN(term=ex.Reference(condition.column)))
            return found
        case IsNull():
            column = ex.Reference(condition.column)
            return ex.NotNull(term=column) if condition.negated else ex.IsNull(term=column)
        case All() | Some():
            first, *more = map(to_iceberg, condition.parts)
            # Built from all parts at once, the tree is not deep; its readers are recursive.
            return (
                (ex.And if isinstance(condition, All) else ex.Or)(first, *more) if more else first
            )


_ALL: ex.BooleanExpression = ex.AlwaysTrue()
_MERGED_BYTES = 128 * 1024 * 1024
_NUMBER = "jetspark.number."
"""Prefix of the table properties that hold numbers; properties of snapshots would expire."""
_SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
_OF_NEW_TABLES = {
    # A streaming query commits often, and old metadata versions are useless.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    # Each commit reads and writes all snapshots; with Iceberg's five days that takes seconds.
    _SNAPSHOT_AGE: "3600000",
}
_NEWEST_WRITTEN = 2
_EXPIRED_EVERY = 100
"""Commits from one removal of old snapshots to the next, and snapshots that it leaves at least."""
_CONFLICT_SECONDS = 120.0
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
class IcebergPiece(Piece):
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
        numbers: Mapping[str, int],
    ) -> OpenIceberg:
        """A new, empty table. Raises ConfigError for types that Iceberg does not have, and
        CommitConflict if another writer created it first."""
        catalog, identifier, location = catalog_of(name)
        try:
            with catalog.create_table_transaction(
                identifier,
                pa.schema([nullable(_widened(one)) for one in schema]),
                location=location,
                properties=_OF_NEW_TABLES
                | {_NUMBER + number: str(value) for number, value in numbers.items()},
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
        return texts_of(self._table.metadata)

    @property
    def made(self) -> dict[str, new_files.Made]:
        return {}

    @property
    def storage(self) -> IcebergStorage:
        return IcebergStorage(self.location, {**self._table.io.properties})

    @staticmethod
    def storage_of(folder: TableName) -> IcebergStorage:
        """The storage of a folder."""
        return IcebergStorage(f"file://{local_folder(folder.path or '')}", folder.properties)

    def layout(self, target_bytes: int, compression: str) -> new_files.Layout:
        if (format_ := self._table.metadata.format_version) > _NEWEST_WRITTEN:
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
            numbers=(metadata.default_spec_id, metadata.default_sort_order_id),
        )

    def at_version(self, version: int) -> OpenIceberg:
        if self._table.snapshot_by_id(version) is None:
            raise ConfigError(f"{self.name} has no snapshot {version}.")
        return OpenIceberg(self.name, self._table, version)

    def pieces(
        self, columns: Sequence[str], prune: str | None, at_least: int
    ) -> list[IcebergPiece]:
        scan = self._table.scan(selected_fields=tuple(columns), snapshot_id=self._snapshot)
        within: ex.BooleanExpression = ex.AlwaysTrue()
        if prune is not None:
            from jetspark.lakehouse.prune import parse

            within = to_iceberg(parse(prune, self.schema))
        tasks = _planned(scan, within)
        properties = dict(self._table.io.properties)
        return [
            IcebergPiece(group, self._table.metadata, scan.projection(), properties)
            for group in pieces_of(tasks, lambda one: one.file.file_size_in_bytes, at_least)
        ]

    @property
    def version(self) -> int:
        return self._table.metadata.current_snapshot_id or 0

    @property
    def commits(self) -> int:
        present = self._table.current_snapshot()
        numbered = None if present is None else present.sequence_number
        return numbered or len(self._table.metadata.snapshots)

    @property
    def is_new(self) -> bool:
        return not self.version

    def number(self, name: str) -> int | None:
        found = self._table.properties.get(_NUMBER + name)
        return None if found is None else int(found)

    def check_numbers_stay(self) -> None:
        """Table properties stay."""

    def was_set_back(self, version: int, name: str, number: int) -> bool:
        made = self._table.metadata.snapshot_by_id(version)
        line = list(ancestors_of(self._table.current_snapshot(), self._table.metadata))
        # Expiry cuts the line at a snapshot that is younger than this one.
        return (
            made is not None
            and made not in line
            and (not line or line[-1].timestamp_ms <= made.timestamp_ms)
        )

    def keep_versions(self, span: timedelta) -> None:
        kept = str(int(span.total_seconds() * 1000))
        if self.property(_SNAPSHOT_AGE) != kept:
            self.set_property(_SNAPSHOT_AGE, kept)

    def property(self, name: str) -> str | None:
        return self._table.properties.get(name)

    def set_property(self, name: str, value: str) -> None:
        making = self._transaction()
        making.set_properties({name: value})
        self._commit(making)
        self.refresh()

    def refresh(self) -> None:
        self._table = self._table.refresh()

    def append(self, files: Sequence[new_files.NewFile], numbers: Numbers) -> None:
        self._change(self._transaction(), files, numbers)

    def replace(self, files: Sequence[new_files.NewFile], numbers: Numbers) -> None:
        making = self._transaction()
        if self._table.current_snapshot() is not None:
            making.delete(ex.AlwaysTrue())
        self._change(making, files, numbers)

    def _change(
        self, making: Transaction, files: Sequence[new_files.NewFile], numbers: Numbers
    ) -> None:
        self._add(making, files, numbers)
        self._commit(making)
        self._expire_now_and_then()

    def merge(self, changes: Changes, numbers: Numbers) -> None:
        making = self._transaction()
        files = new_files.FileWriter(self.layout(_MERGED_BYTES, "zstd"), self.storage, "merged")
        try:
            old, changes = self._without_replaced(changes, files)
            if changes.rows.num_rows:
                for batch in changes.rows.filter(pc.invert(changes.deleted)).to_batches():
                    files.write(batch)
            self._add(making, files.close(), numbers, old)
        except BaseException:
            files.discard()
            raise
        try:
            self._commit(making)
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
        found: list[tuple[FileScanTask, pa.Table, bool]] = []
        if changes.rows.num_rows or changes.emptied is not None:
            scan = self._table.scan(selected_fields=tuple(changes.columns))
            for task in _planned(scan, _between(changes)):
                rows = self._rows(scan, task)
                there = changes.among(rows)
                emptied = pc.any(changes.emptied_of(rows), min_count=0).as_py()
                if there.num_rows or emptied:
                    found.append((task, there, emptied))
        if found:
            changes = changes.not_before(pa.concat_tables([there for _, there, _ in found]))
        old = []
        for task, there, emptied in found:
            if emptied or changes.among(there).num_rows:
                rows = self._rows(self._table.scan(), task)
                numbered = rows.append_column(PLACE, pa.array(range(rows.num_rows)))
                gone = changes.among(numbered, PLACE)[PLACE]
                kept = pc.invert(
                    pc.or_(pc.is_in(numbered[PLACE], value_set=gone), changes.emptied_of(rows))
                )
                for batch in rows.filter(kept).to_batches():
                    files.write(batch)
                old.append(task.file)
        return old, changes

    def _rows(self, scan: DataScan, task: FileScanTask) -> pa.Table:
        """The columns of the scan in a file."""
        return read_table(self._table.metadata, self._table.io, scan.projection(), task)

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        making = self._transaction()
        with making.update_schema() as change:
            change.union_by_name(pa.schema([nullable(_widened(one)) for one in columns]))
        self._commit(making)

    def widen(self, columns: Sequence[pa.Field]) -> None:
        making = self._transaction()
        with making.update_schema() as change:
            for one in columns:
                kind = LongType() if pa.types.is_integer(one.type) else DoubleType()
                change.update_column(one.name, kind)
        self._commit(making)

    def facts(self) -> maintenance.TableFacts:
        scan = self._table.scan()
        tasks = _planned(scan)
        files = [one.file for one in tasks]
        deleted = any(one.delete_files for one in tasks)  # only the rows themselves show it
        return maintenance.TableFacts(
            format="iceberg",
            location=self.location,
            version=len(self._table.metadata.snapshots),
            rows=scan.count() if deleted else sum(one.record_count for one in files),
            files=len(files),
            bytes=sum(one.file_size_in_bytes for one in files),
            columns=[(one.name, str(plain(one.type))) for one in self.schema],
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
        for task in _planned(self._table.scan()):
            if not task.delete_files and task.file.spec_id == spec:
                by_partition[task.file.partition].append(task)
        for tasks in by_partition.values():
            sizes = [task.file.file_size_in_bytes for task in tasks]
            yield from maintenance.groups_of(tasks, sizes, target_bytes)

    def _replace_files(self, old: set[str], new: Sequence[new_files.NewFile]) -> bool:
        """Commit files in place of others; False if these were replaced, or rows of them deleted.

        Raises CommitConflict if others commit without a break.
        """
        deadline = time.monotonic() + _CONFLICT_SECONDS
        while True:
            live = {
                one.file.file_path: one.file
                for one in self._table.scan().plan_files()
                if not one.delete_files
            }
            if not old <= live.keys():
                return False
            making = self._transaction()
            _stage(making, [live[path] for path in old], list(map(self._data_file, new)))
            try:
                self._commit(making)
                return True
            except CommitConflict:
                if time.monotonic() >= deadline:
                    raise CommitConflict(
                        "Other writers committed without a break: compact the table later."
                    ) from None
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
        found = vacuumed(table, set(old), retention)
        if not dry_run:
            # Update the metadata first, so that no snapshot refers to a removed file.
            if old:
                self._expire(old)
            maintenance.remove_all(self.storage, found.removed)
            self.refresh()
        return found

    def _expire_now_and_then(self) -> None:
        """After a commit on top of this version, remove the snapshots that are older than the table
        says, and the manifests that only they name; data files are left to `vacuum`."""
        metadata = self._table.metadata
        age = metadata.properties.get(_SNAPSHOT_AGE)
        present = metadata.current_snapshot()
        if (
            present is None
            or (present.sequence_number or 1) % _EXPIRED_EVERY
            or age is None
            or metadata.properties.get("gc.enabled", "true").casefold() == "false"
            or set(metadata.refs) != {"main"}
        ):
            return
        with suppress(Exception):  # another writer does the same; the rest follows later
            self.refresh()
            old = old_snapshots(self._table, datetime.now(UTC) - timedelta(milliseconds=int(age)))
            old = old[: max(len(self._table.metadata.snapshots) - _EXPIRED_EVERY, 0)]
            named = manifests_of(self._table, old)
            if named:
                self._expire(old)
                maintenance.remove_all(self.storage, named)

    def _expire(self, old: Sequence[int]) -> None:
        making = self._transaction(whole=True)
        with _Expiring(making) as expiring:
            expiring.by_ids(list(old))
        self._commit(making)

    def _transaction(self, *, whole: bool = False) -> Transaction:
        """A transaction whose commit fails if another commit came first.

        By default the library retries on top of the other commit, even if that set the same
        numbers. `whole`: with all snapshots, which the library copies some twenty times.
        """
        metadata = self._table.metadata
        for name in (TableProperties.WRITE_METADATA_PATH, TableProperties.WRITE_DATA_PATH):
            place = metadata.properties.get(name)
            if place is not None and relative_path(self.location, place) is None:
                raise outside(self.location, f"{name}: {place}")
        changed: dict[str, Any] = {"properties": {**metadata.properties, **_NO_RETRIES}}
        if not whole:
            heads = {one.snapshot_id for one in metadata.refs.values()}
            heads.add(metadata.current_snapshot_id or 0)
            snapshots = [one for one in metadata.snapshots if one.snapshot_id in heads]
            changed |= {"snapshots": snapshots, "snapshot_log": []}
        once = metadata.model_copy(update=changed)
        table = self._table
        return PyTable(
            table.name(), once, table.metadata_location, table.io,
            _Asking(self.name, table.catalog), table.config,
        ).transaction()  # fmt: skip

    def _add(
        self,
        making: Transaction,
        files: Sequence[new_files.NewFile],
        numbers: Numbers,
        old: Sequence[DataFile] = (),
    ) -> None:
        _stage(making, old, list(map(self._data_file, files)))
        made = making.table_metadata.current_snapshot_id
        found = {name: made if value is None else value for name, value in numbers.items()}
        making.set_properties({_NUMBER + name: str(value) for name, value in found.items()})

    def _commit(self, making: Transaction) -> None:
        """Raises CommitConflict if it is proven that the table does not have the commit, and
        TableError if it may have it later."""
        try:
            making.commit_transaction()
        except CommitFailedException as error:
            raise CommitConflict(f"{self.name} was changed in the meantime ({error}).") from error

    def _data_file(self, file: new_files.NewFile) -> DataFile:
        metadata = self._table.metadata
        schema, spec = metadata.schema(), metadata.spec()
        new_files.check_unchanged(self.name, self.schema, file)
        spec_id, sort_order = file.numbers
        if spec_id != metadata.default_spec_id:
            raise new_files.changed(self.name, "its partitions")
        statistics = _statistics(file, schema, metadata.properties)
        # Not by PyIceberg's PartitionKey, which takes one transform of a column only.
        partition = Record(
            *(
                partition_record_value(one, value, schema)
                for one, value in zip(spec.fields, file.partition, strict=True)
            )
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self.location}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=partition,
            file_size_in_bytes=file.size,
            sort_order_id=sort_order or None,
            spec_id=spec_id,
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
    numbers = arrow_io.parquet_path_to_id_mapping(schema)
    counts = arrow_io.MetricsMode(arrow_io.MetricModeTypes.COUNTS)
    of_bounds = (arrow_io.MetricModeTypes.FULL, arrow_io.MetricModeTypes.TRUNCATE)
    counted = {
        number: replace(one, mode=counts) if one.mode.type in of_bounds else one
        for number, one in plan.items()
    }
    found = arrow_io.data_file_statistics_from_parquet_metadata(footer, counted, numbers)
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for path, index in leaf_columns(footer).items():
        one = plan[numbers[path]]
        if one.mode.type not in of_bounds:
            continue
        low, high = column_bounds(footer, index, file.long_texts)
        if (width := one.mode.length) is not None and isinstance(low, (str, bytes)):
            low = low[:width]
            high = high and (upper_text if isinstance(high, str) else upper_binary)(high, width)
        for bounds, value in ((lower, low), (upper, high)):
            if value is not None:
                bounds[one.field_id] = to_bytes(one.iceberg_type, value)
    return {**found.to_serialized_dict(), "lower_bounds": lower, "upper_bounds": upper}


def _stage(making: Transaction, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
    """Replace files by others, in one snapshot."""
    snapshot = making.update_snapshot()
    # Even without files, since a commit that only sets properties would not notice another one.
    with snapshot.overwrite() if old else snapshot.merge_append() as changing:
        for one in old:
            changing.delete_data_file(one)
        for one in new:
            changing.append_data_file(one)


class _Expiring(ExpireSnapshots):
    """Removes snapshots from the metadata."""

    def by_ids(self, snapshot_ids: list[int]) -> ExpireSnapshots:
        """Remove these snapshots. The library's own method copies all snapshots twice for each."""
        self._snapshot_ids_to_expire.update(snapshot_ids)
        return self


class _Asking(NoopCatalog):
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
        inside = files_inside(base.location, (one.metadata_file for one in base.metadata_log))
        log = [
            one
            for one in base.metadata_log
            if OF_METADATA.fullmatch(inside.get(one.metadata_file, ""))
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
                there = self._catalog.load_table(table.name())
            except Exception:
                raise _unconfirmed(self._table, error) from error
            if all(_is_there(one, there.metadata) for one in updates):
                return CommitTableResponse.model_validate(
                    {"metadata": there.metadata, "metadata-location": there.metadata_location}
                )
            if isinstance(error, CommitFailedException):
                raise
            raise _unconfirmed(self._table, error) from error


def _is_there(update: TableUpdate, metadata: TableMetadata) -> bool:
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
    said = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
    return TableError(
        f"{name}: the catalog did not confirm a commit ({said}), and so far the table does not "
        "have it. No file was removed: run it again."
    )


def _planned(scan: DataScan, wanted: ex.BooleanExpression = _ALL) -> list[FileScanTask]:
    """The files that may have a row for the condition, with all of their rows. Raises ConfigError
    for files that are not below the table's location."""
    try:
        tasks = list(scan.filter(wanted).plan_files())
    except TypeError:  # PyIceberg 0.12 compares a null partition value by < and >
        tasks = list(scan.plan_files())
    files = [one for task in tasks for one in (task.file, *task.delete_files)]
    check_files(scan.table_metadata.location, (one.file_path for one in files))
    return [FileScanTask(one.file, one.delete_files, ex.AlwaysTrue()) for one in tasks]


def _between(changes: Changes) -> ex.BooleanExpression:
    """A condition that holds for every row with one of these keys, and for all if all may go."""
    if changes.emptied is not None:
        return ex.AlwaysTrue()
    found = []
    for key in changes.keys:
        column = changes.rows[key]
        ends = pc.min_max(column).as_py()
        if ends["min"] is None:  # truncates of a history, which replace nothing
            continue
        found.append(Comparison(key, ">=", ends["min"], column.type))
        found.append(Comparison(key, "<=", ends["max"], column.type))
    return to_iceberg(All(tuple(found)))


def _widened(field: pa.Field) -> pa.Field:
    """Iceberg's smallest integer type has 32 bits."""
    if pa.types.is_int8(field.type) or pa.types.is_int16(field.type):
        return field.with_type(pa.int32())
    return field
