"""Commits to Iceberg tables whose outcome is known.

PyIceberg retries a commit on top of another one, even if that set the same properties, and takes a
lost answer for a failure. Here a commit fails if another one came first, and after any other error
the catalog is asked whether the table has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import CommitTableResponse, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots

from jetspark.errors import CommitConflict, TableError
from jetspark.lakehouse.iceberg_trust import METADATA_FILE
from jetspark.lakehouse.inside import file_outside_table, files_inside, relative_path
from jetspark.lakehouse.table import TableName

_NO_RETRIES = {"commit.retry.num-retries": "0"}


def stage_files(transaction: Transaction, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
    """Replace files by others, in one snapshot."""
    snapshot = transaction.update_snapshot()
    # Even without files, since a commit that only sets properties would not notice another one.
    with snapshot.overwrite() if old else snapshot.merge_append() as update:
        for file in old:
            update.delete_data_file(file)
        for file in new:
            update.append_data_file(file)


class ExpireByIds(ExpireSnapshots):
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
        table: Table,
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


def begin_transaction(name: TableName, table: Table, *, all_snapshots: bool = False) -> Transaction:
    """A transaction whose commit fails if another commit came first.

    By default the library retries on top of the other commit, even if that set the same
    properties. `all_snapshots`: keep all of them in the metadata, which the library copies some
    twenty times; otherwise only those that branches and tags name.
    """
    metadata = table.metadata
    location = table.location().rstrip("/")
    for option in (TableProperties.WRITE_METADATA_PATH, TableProperties.WRITE_DATA_PATH):
        path = metadata.properties.get(option)
        if path is not None and relative_path(location, path) is None:
            raise file_outside_table(location, f"{option}: {path}")
    changed: dict[str, Any] = {"properties": {**metadata.properties, **_NO_RETRIES}}
    if not all_snapshots:
        heads = {ref.snapshot_id for ref in metadata.refs.values()}
        heads.add(metadata.current_snapshot_id or 0)
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
    """Raises CommitConflict if it is proven that the table does not have the commit, and
    TableError if it may have it later."""
    try:
        transaction.commit_transaction()
    except CommitFailedException as error:
        raise CommitConflict(f"{name} was changed in the meantime ({error}).") from error
