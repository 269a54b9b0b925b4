"""Commits of new files to Iceberg tables: their entries in a manifest, and a known outcome.

PyIceberg retries a commit on top of another one, even if that set the same properties, and takes a
lost answer for a failure. Here a commit fails if another one came first, and after any other error
the catalog is asked whether the table has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyiceberg.io.pyarrow as arrow_io
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.typedef import Record

from jetspark.errors import CommitConflict, TableError
from jetspark.tables.iceberg.trust import METADATA_FILE
from jetspark.tables.inside import file_outside_table, files_inside, relative_path
from jetspark.tables.new_files import NewFile, check_unchanged, table_changed
from jetspark.tables.statistics import column_bounds, leaf_columns, upper_bound
from jetspark.tables.table import TableName

_NO_RETRIES = {"commit.retry.num-retries": "0"}


def _statistics(file: NewFile, schema: Schema, properties: Mapping[str, str]) -> dict[str, Any]:
    """The statistics of a new file for its entry in a manifest, as arguments of PyIceberg's
    DataFile.

    PyIceberg counts values and nulls. Minima and maxima are computed here, since PyIceberg's own
    fail, or do not cover all values, for some texts and row groups. `properties`: the table's,
    which say what statistics its columns have.
    """
    footer = file.metadata
    plan = arrow_io.compute_statistics_plan(schema, dict(properties))
    field_ids = arrow_io.parquet_path_to_id_mapping(schema)
    counts_only = arrow_io.MetricsMode(arrow_io.MetricModeTypes.COUNTS)
    counting_plan = {
        field_id: replace(collector, mode=counts_only) if _has_bounds(collector) else collector
        for field_id, collector in plan.items()
    }
    metrics = arrow_io.data_file_statistics_from_parquet_metadata(footer, counting_plan, field_ids)
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for path, index in leaf_columns(footer).items():
        collector = plan[field_ids[path]]
        if not _has_bounds(collector):
            continue
        low, high = column_bounds(footer, index, file.long_texts)
        width = collector.mode.length
        if width is not None and isinstance(low, (str, bytes)):
            low = low[:width]
            high = None if high is None else upper_bound(high, width)
        for bounds, value in ((lower, low), (upper, high)):
            if value is not None:
                bounds[collector.field_id] = to_bytes(collector.iceberg_type, value)
    return {**metrics.to_serialized_dict(), "lower_bounds": lower, "upper_bounds": upper}


def _has_bounds(collector: arrow_io.StatisticsCollector) -> bool:
    """Whether a column has a minimum and a maximum in the table's statistics, in full or cut."""
    return collector.mode.type in (
        arrow_io.MetricModeTypes.FULL,
        arrow_io.MetricModeTypes.TRUNCATE,
    )


def data_file(name: TableName, table: Table, columns: pa.Schema, file: NewFile) -> DataFile:
    """The entry of a new data file for a manifest of this Iceberg table, with its statistics.

    `name`, `columns`: the table's. Raises TableError if its columns or its partition spec have been
    changed since the file was written.
    """
    metadata = table.metadata
    schema, spec = metadata.schema(), metadata.spec()
    check_unchanged(name, columns, file)
    if file.spec_id != metadata.default_spec_id:
        raise table_changed(name, "its partitions")
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
        file_path=f"{table.location().rstrip('/')}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=file.size,
        sort_order_id=file.sort_order_id or None,  # 0: not sorted
        spec_id=file.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )


def stage_files(transaction: Transaction, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
    """Add a snapshot to a transaction of a table, which has new files in place of old ones.
    Without old files it only adds."""
    snapshot = transaction.update_snapshot()
    # Even without files, since a commit that only sets properties would not notice another one.
    with snapshot.overwrite() if old else snapshot.merge_append() as update:
        for file in old:
            update.delete_data_file(file)
        for file in new:
            update.append_data_file(file)


class ExpireByIds(ExpireSnapshots):
    """Removes snapshots, given by their ids, from a table's metadata as part of a transaction; the
    files that only they need stay."""

    def by_ids(self, snapshot_ids: list[int]) -> ExpireSnapshots:
        """Remove these snapshots. The library's own method copies all snapshots twice for each."""
        self._snapshot_ids_to_expire.update(snapshot_ids)
        return self


class _ConfirmingCatalog(NoopCatalog):
    """Passes a table's commits on to its catalog, and looks in the table, after an error, whether
    it has the commit.

    Even a refusal leaves the outcome open: the request may have been sent twice on its way to the
    catalog, and the second one then conflicts with the first. The library removes the manifests of
    refused commits.
    """

    def __init__(self, name: TableName, catalog: Catalog) -> None:
        """Wrap the table's catalog. `name`: the table's, for errors."""
        super().__init__("confirming")
        self._table = name
        self._catalog = catalog

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete old versions of the metadata, as the library does, but only those below the
        table's location: its log of them could name any file."""
        paths = files_inside(base.location, (entry.metadata_file for entry in base.metadata_log))
        own = [
            entry
            for entry in base.metadata_log
            if METADATA_FILE.fullmatch(paths.get(entry.metadata_file, ""))
        ]
        Catalog._delete_old_metadata(io, base.model_copy(update={"metadata_log": own}), metadata)

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Commit updates through the table's catalog; succeeds also if the catalog raises an error,
        but the table has the updates. Raises CommitFailedException if it is proven that the table
        does not have them, and TableError if that is not known."""
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except Exception as error:  # of too many kinds to name them
            try:
                current = self._catalog.load_table(table.name())
            except Exception:
                raise _unconfirmed(self._table, error) from error
            if _has_updates(updates, current.metadata):
                return CommitTableResponse.model_validate(
                    {"metadata": current.metadata, "metadata-location": current.metadata_location}
                )
            if isinstance(error, CommitFailedException):  # refused, and the table lacks them
                raise
            # After another error, such as a lost answer, the catalog may still be at work on it.
            raise _unconfirmed(self._table, error) from error


_CONTENT = (AddSnapshotUpdate, RemoveSnapshotsUpdate, AddSchemaUpdate)
"""Updates by which a table tells a commit of ours from one of another writer."""


def _has_updates(updates: tuple[TableUpdate, ...], metadata: TableMetadata) -> bool:
    """Whether a table with this metadata has a commit's updates, so that the commit got there
    although its answer did not.

    A commit is stored as a whole. So where it has rows or a schema, these decide, since another
    writer may have changed a property again.
    """
    content = [update for update in updates if isinstance(update, _CONTENT)]
    return all(_has_update(update, metadata) for update in content or updates)


def _has_update(update: TableUpdate, metadata: TableMetadata) -> bool:
    """Whether a table with this metadata has one update; False for a kind that cannot be told."""
    match update:
        case AddSnapshotUpdate():
            return metadata.snapshot_by_id(update.snapshot.snapshot_id) is not None
        case RemoveSnapshotsUpdate():
            return not any(map(metadata.snapshot_by_id, update.snapshot_ids))
        case AddSchemaUpdate():
            return update.schema_.as_struct() == metadata.schema().as_struct()
        case SetPropertiesUpdate():
            return update.updates.items() <= metadata.properties.items()
    return False


def _unconfirmed(name: TableName, error: Exception) -> TableError:
    """The error for a commit whose outcome is not known: it may still come into force. `error`:
    what the catalog raised."""
    reason = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
    return TableError(
        f"{name}: the catalog did not confirm a commit ({reason}), and so far the table does not "
        "have it. No file was removed: run it again."
    )


def begin_transaction(name: TableName, table: Table, *, all_snapshots: bool = False) -> Transaction:
    """Begin a transaction on an Iceberg table, whose commit fails if another commit came first; by
    default PyIceberg would try again on top of the other one, even if that set the same properties.

    `all_snapshots`: keep all snapshots in the transaction's metadata, which PyIceberg copies some
    twenty times; otherwise only those that branches and tags name. Raises ConfigError for a table
    whose properties let it write outside of its location.
    """
    metadata = table.metadata
    location = table.location().rstrip("/")
    for option in (TableProperties.WRITE_METADATA_PATH, TableProperties.WRITE_DATA_PATH):
        path = metadata.properties.get(option)
        if path is not None and relative_path(location, path) is None:
            raise file_outside_table(location, f"{option}: {path}")
    changed: dict[str, Any] = {"properties": {**metadata.properties, **_NO_RETRIES}}
    if not all_snapshots:
        heads = {metadata.current_snapshot_id, *(ref.snapshot_id for ref in metadata.refs.values())}
        snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in heads]
        changed |= {"snapshots": snapshots, "snapshot_log": []}
    return Table(
        table.name(),
        metadata.model_copy(update=changed),
        table.metadata_location,
        table.io,
        _ConfirmingCatalog(name, table.catalog),
        table.config,
    ).transaction()


def commit(name: TableName, transaction: Transaction) -> None:
    """Commit a transaction of `begin_transaction`. Raises CommitConflict if another commit came
    first, so that the table does not have this one, and TableError if that is not known."""
    try:
        transaction.commit_transaction()
    except CommitFailedException as error:
        raise CommitConflict(f"{name} was changed in the meantime ({error}).") from error
