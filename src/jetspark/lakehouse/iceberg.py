"""Iceberg tables, through the library pyiceberg. Source: the Iceberg table specification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import (
    ArrowScan,
    UnsupportedPyArrowTypeException,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.upsert_util import create_match_filter
from pyiceberg.transforms import IdentityTransform

from jetspark.errors import CommitConflict, ConfigError
from jetspark.lakehouse.changes import Changes
from jetspark.lakehouse.iceberg_conditions import to_iceberg
from jetspark.lakehouse.iceberg_folder import catalog_of
from jetspark.lakehouse.iceberg_maintenance import compact, old_snapshots, unnamed_files
from jetspark.lakehouse.maintenance import Compaction, TableFacts, check_retention
from jetspark.lakehouse.new_files import FileWriter, Layout, NewFile
from jetspark.lakehouse.scans import Piece, pieces_of
from jetspark.lakehouse.schemas import nullable, plain, small
from jetspark.lakehouse.table import TableName

_MERGED_BYTES = 128 * 1024 * 1024
_NUMBER = "jetspark.number."
"""Prefix of the table properties that hold numbers; properties of snapshots would expire."""
_OF_NEW_TABLES = {
    # A streaming query commits often, and old versions of the metadata are of no use.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}
_NO_RETRIES = {"commit.retry.num-retries": "0"}


@dataclass(frozen=True)
class IcebergStorage:
    """Files of an Iceberg table."""

    location: str
    properties: Mapping[str, str] = field(repr=False)

    def create(self, path: str) -> Any:
        """A new file below the table's location."""
        return self._io().new_output(f"{self.location}/{path}").create()

    def open(self, path: str) -> Any:
        """A file below the table's location."""
        return self._io().new_input(f"{self.location}/{path}").open()

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._io().delete(f"{self.location}/{path}")

    def _io(self) -> Any:
        return load_file_io(dict(self.properties), self.location)


@dataclass(frozen=True)
class IcebergPiece:
    """Some files of one snapshot."""

    tasks: Sequence[FileScanTask]
    metadata: TableMetadata
    columns: Schema
    properties: Mapping[str, str] = field(repr=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Their rows."""
        io = load_file_io(dict(self.properties), self.metadata.location)
        scan = ArrowScan(self.metadata, io, self.columns, AlwaysTrue())
        return iter(scan.to_record_batches(self.tasks))


class OpenIceberg:
    """An Iceberg table at one version."""

    def __init__(self, name: TableName, table: Table, snapshot: int | None = None) -> None:
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
    def create(cls, name: TableName, schema: pa.Schema, partition_by: Sequence[str]) -> OpenIceberg:
        """A new, empty table. Raises ConfigError for types that Iceberg does not have, and
        CommitConflict if another writer created it first."""
        catalog, identifier, location = catalog_of(name)
        try:
            with catalog.create_table_transaction(
                identifier,
                pa.schema([nullable(_widened(one)) for one in schema]),
                location=location,
                properties=_OF_NEW_TABLES,
            ) as making:
                if partition_by:
                    with making.update_spec() as spec:
                        for column in partition_by:
                            spec.add_identity(column)
        except (CommitFailedException, TableAlreadyExistsError) as error:
            raise CommitConflict(f"{name} was created by another writer.") from error
        except NoSuchNamespaceError:
            raise ConfigError(
                f"{name}: the catalog has no such namespace; create it first."
            ) from None
        except (TypeError, ValueError, UnsupportedPyArrowTypeException) as error:
            raise ConfigError(f"Iceberg does not support a column: {error}") from error
        return cls(name, catalog.load_table(identifier))

    @property
    def location(self) -> str:
        """Folder or URI of its files."""
        return self._table.location().rstrip("/")

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        schema = self._table.schema()
        if self._snapshot is not None:
            schema = self._table.scan(snapshot_id=self._snapshot).projection()
        return pa.schema([small(one) for one in schema_to_pyarrow(schema, include_field_ids=True)])

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        spec, schema = self._table.spec(), self._table.schema()
        return tuple(schema.find_column_name(one.source_id) or "" for one in spec.fields)

    @property
    def storage(self) -> IcebergStorage:
        """Storage for new files."""
        return IcebergStorage(self.location, {**self._table.io.properties})

    def layout(self, target_bytes: int, compression: str) -> Layout:
        """Layout of new files. Raises ConfigError for partitions by a transform of a column."""
        for one in self._table.spec().fields:
            if not isinstance(one.transform, IdentityTransform):
                raise ConfigError(
                    f"{self.name} is partitioned by {one.transform} of a column, which is not "
                    "supported here: write it with Iceberg's own connector for Spark."
                )
        return Layout(
            schema=self.schema,
            partition_by=self.partition_by,
            folder="data/",
            target_bytes=target_bytes,
            compression=compression,
        )

    def at_version(self, version: int) -> OpenIceberg:
        """The table at a snapshot. Raises ConfigError if that does not exist."""
        if self._table.snapshot_by_id(version) is None:
            raise ConfigError(f"{self.name} has no snapshot {version}.")
        return OpenIceberg(self.name, self._table, version)

    def pieces(self, columns: Sequence[str], prune: str | None, at_least: int) -> list[Piece]:
        """The pieces that tasks read. Raises ConfigError for an invalid condition."""
        scan = self._table.scan(selected_fields=tuple(columns), snapshot_id=self._snapshot)
        try:
            tasks = list(scan.filter(self._wanted(prune)).plan_files())
        except TypeError:  # PyIceberg 0.12 compares a null partition value by < and >
            tasks = list(scan.plan_files())
        whole = [FileScanTask(one.file, one.delete_files, AlwaysTrue()) for one in tasks]
        properties = dict(self._table.io.properties)
        return [
            IcebergPiece(group, self._table.metadata, scan.projection(), properties)
            for group in pieces_of(whole, lambda one: one.file.file_size_in_bytes, at_least)
        ]

    def _wanted(self, prune: str | None) -> BooleanExpression:
        if prune is None:
            return AlwaysTrue()
        from jetspark.lakehouse.condition_text import parse  # a parser of SQL takes time to import

        return to_iceberg(parse(prune, self.schema))

    @property
    def version(self) -> int:
        """The newest snapshot."""
        return self._table.metadata.current_snapshot_id or 0

    @property
    def is_new(self) -> bool:
        """Whether it has no snapshot."""
        return not self.version

    def number(self, name: str) -> int | None:
        """The number that the last commit set under this name; None if no commit has."""
        found = self._table.properties.get(_NUMBER + name)
        return None if found is None else int(found)

    def refresh(self) -> None:
        """Read the newest version."""
        self._table = self._table.refresh()

    def append(self, files: Sequence[NewFile], numbers: Mapping[str, int]) -> None:
        """Add the files. Raises CommitConflict if another commit came first."""
        with _conflicts(self.name):
            making = self._transaction()
            self._add(making, files, numbers)
            making.commit_transaction()

    def replace(self, files: Sequence[NewFile], numbers: Mapping[str, int]) -> None:
        """Replace all files of the table. Raises CommitConflict."""
        with _conflicts(self.name):
            making = self._transaction()
            if self._table.current_snapshot() is not None:
                making.delete(AlwaysTrue())
            self._add(making, files, numbers)
            making.commit_transaction()

    def merge(self, changes: Changes, numbers: Mapping[str, int], marks: str) -> None:
        """As `Table.merge`. Raises CommitConflict."""
        keys = list(changes.keys)
        making = self._transaction()
        files = FileWriter(self.layout(_MERGED_BYTES, "zstd"), self.storage, "merged")
        try:
            if changes.rows.num_rows:
                scan = self._table.scan(
                    create_match_filter(changes.rows, keys), selected_fields=tuple(changes.columns)
                )
                there = changes.like(scan.to_arrow())
                changes = changes.not_before(there)
                old = there.select(keys).join(
                    changes.rows.select(keys), keys, join_type="left semi"
                )
                if old.num_rows:
                    making.delete(create_match_filter(old, keys))
                for batch in changes.rows.filter(pc.invert(changes.deleted)).to_batches():
                    files.write(batch)
            with _conflicts(self.name):
                self._add(making, files.close(), numbers)
                made = making.table_metadata.current_snapshot_id
                making.set_properties({_NUMBER + marks: str(made)})
                making.commit_transaction()
        except BaseException:
            files.discard()
            raise

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add columns, which are null in existing rows. Raises CommitConflict."""
        with _conflicts(self.name), self._transaction() as making, making.update_schema() as change:
            change.union_by_name(pa.schema([nullable(_widened(one)) for one in columns]))

    def facts(self) -> TableFacts:
        """The newest version."""
        files = [one.file for one in self._table.scan().plan_files()]
        return TableFacts(
            format="iceberg",
            location=self.location,
            version=len(self._table.metadata.snapshots),
            rows=sum(one.record_count for one in files),
            files=len(files),
            bytes=sum(one.file_size_in_bytes for one in files),
            columns=[(one.name, str(plain(one.type))) for one in self.schema],
            partition_by=list(self.partition_by),
            properties=dict(self._table.properties),
        )

    def compact(self, target_bytes: int) -> Compaction:
        """Merge small files. Raises TableError if others commit without a break."""

        def commit(making: Transaction) -> None:
            try:
                with _conflicts(self.name):
                    making.commit_transaction()
            finally:
                self.refresh()

        return compact(
            lambda: self._table,
            self._transaction,
            self._data_file,
            commit,
            self.layout(target_bytes, "zstd"),
            self.storage,
        )

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> Sequence[str]:
        """Remove the files that no snapshot younger than the retention refers to. Raises
        ConfigError for a retention that is too short."""
        check_retention(retention)
        table = self._table
        old = old_snapshots(table, datetime.now(UTC) - retention)
        kept = [
            one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in set(old)
        ]
        found = unnamed_files(table, kept, retention)
        if not dry_run:
            # The metadata first, so that no snapshot refers to a removed file.
            if old:
                with _conflicts(self.name):
                    table.maintenance.expire_snapshots().by_ids(old).commit()
            for one in found:
                table.io.delete(one)
            self.refresh()
        return found

    def _transaction(self) -> Transaction:
        """A transaction whose commit fails if another commit came first.

        By default the library retries on top of the other commit, whichever numbers that has set.
        """
        metadata = self._table.metadata
        once = metadata.model_copy(update={"properties": {**metadata.properties, **_NO_RETRIES}})
        table = self._table
        return Table(
            table.name(), once, table.metadata_location, table.io, table.catalog, table.config
        ).transaction()

    def _add(
        self, making: Transaction, files: Sequence[NewFile], numbers: Mapping[str, int]
    ) -> None:
        # Also without files: a commit that only sets properties would not notice another one.
        with making.update_snapshot().merge_append() as adding:
            for one in files:
                adding.append_data_file(self._data_file(one))
        if numbers:
            making.set_properties({_NUMBER + name: str(value) for name, value in numbers.items()})

    def _data_file(self, file: NewFile) -> DataFile:
        metadata = self._table.metadata
        schema, spec = metadata.schema(), metadata.spec()
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=file.metadata,
            stats_columns=compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        key = PartitionKey(
            field_values=[
                PartitionFieldValue(field=one, value=value)
                for one, value in zip(spec.fields, file.partition, strict=True)
            ],
            partition_spec=spec,
            schema=schema,
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self.location}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=key.partition,
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


@contextmanager
def _conflicts(name: TableName) -> Iterator[None]:
    """Raises the library's error for a conflict as CommitConflict."""
    try:
        yield
    except CommitFailedException as error:
        raise CommitConflict(f"{name} was changed in the meantime.") from error


def _widened(field: pa.Field) -> pa.Field:
    """Iceberg's smallest integer type has 32 bits."""
    if pa.types.is_int8(field.type) or pa.types.is_int16(field.type):
        return field.with_type(pa.int32())
    return field
