"""Delta tables, through the library deltalake (delta-rs). Source: the Delta protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    TableNotFoundError,
)
from deltalake.schema import Field, Schema
from deltalake.transaction import AddAction

from jetspark.errors import CommitConflict, ConfigError, TableError, named
from jetspark.tables import file_layout, inside, maintenance
from jetspark.tables.changes import Changes
from jetspark.tables.delta import features, statistics
from jetspark.tables.delta.files import DeltaPartition, DeltaScanTask, DeltaStorage
from jetspark.tables.delta.log import check_log, check_sidecars
from jetspark.tables.delta.maintenance import (
    COMPACTION_MARK,
    bytes_to_merge,
    check_compacted_once,
    claim_table,
    list_files,
    list_unneeded,
    uncompactable_values,
)
from jetspark.tables.delta.sql import prepare_merge, to_sql
from jetspark.tables.generated import Generated
from jetspark.tables.new_files import NewFile, check_unchanged, table_changed
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

_LOG = "_delta_log"
_CHANGE_DATA = "_change_data"
_GENERATED = "delta.generationExpression"
_LOG_RETENTION = "delta.logRetentionDuration"
_LOG_RETENTION_OF_NEW_TABLES = timedelta(hours=36)
"""Log retention of new tables: a reader that follows once a day finds its place. Each commit lists
the whole log on a local disk, so Delta's 30 days cost seconds where commits are frequent."""
_COMMITS_PER_LOG_CLEANUP = 1000
"""Commits from one search through all files of the log to the next."""
_NO_LOG_CLEANUP = PostCommitHookProperties(cleanup_expired_logs=False)
"""Turns off the cleanup of the log, which deltalake would do after each commit."""


class OpenDelta(Table):
    """A Delta table at one version, which is read and changed through deltalake.

    `layout` refuses features that deltalake enforces only in files of its own, `compact` refuses
    those that it does not keep when it rewrites files.
    """

    def __init__(self, name: TableName, table: DeltaTable) -> None:
        self.name = name
        self._table = table

    @classmethod
    def find(cls, name: TableName) -> OpenDelta | None:
        """The table at its newest version; None when there is none. Before deltalake loads it, its
        log is checked for links and for files outside of the table's folder."""
        location = _path(name)
        inside.check_no_links_in(location, _LOG)
        if (folder := inside.local_folder_of(location)) is not None:
            check_sidecars(folder)
        try:
            return cls(name, _load(name))
        except TableNotFoundError:
            return None

    @classmethod
    def create(
        cls,
        name: TableName,
        schema: pa.Schema,
        partition_by: Sequence[PartitionBy],
        txn_versions: Mapping[str, int],
    ) -> OpenDelta:
        """Create an empty Delta table that has these transaction versions. Raises ConfigError for
        types that Delta does not have, and CommitConflict if another writer created it first."""
        features.check_types(schema)
        try:
            columns = Schema.from_arrow(pa.schema([as_nullable(column) for column in schema]))
        except Exception as error:  # the library's errors have several types
            raise ConfigError(f"Delta does not support a column: {error}") from error
        partition_columns = [partition.column for partition in partition_by]
        try:
            created = DeltaTable.create(
                _path(name),
                columns,
                partition_by=partition_columns,
                storage_options=dict(name.properties),
                configuration={_LOG_RETENTION: _as_interval(_LOG_RETENTION_OF_NEW_TABLES)}
                | statistics.statistics_property(schema, partition_columns),
                commit_properties=_commit_properties(txn_versions),
            )
        except DeltaError as error:
            if cls.find(name) is not None:  # so another writer did, whatever the error says
                raise CommitConflict(f"{name} was created by another writer.") from error
            raise
        return cls(name, created)

    @property
    def location(self) -> str:
        return self._table.table_uri

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._table.schema())

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def commits(self) -> int:
        return self.version

    @property
    def is_new(self) -> bool:
        return not self._table.get_add_actions().num_rows

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._table.metadata().partition_columns)

    @property
    def generated_columns(self) -> dict[str, Generated]:
        """The columns whose values a writer has to compute from others, by name."""
        schema = self.schema
        return {
            column.name: Generated.parse(
                schema.field(column.name), str(column.metadata[_GENERATED]), self.name, schema
            )
            for column in self._table.schema().fields
            if _GENERATED in column.metadata
        }

    @property
    def storage(self) -> DeltaStorage:
        return self.storage_of(self.name)

    @staticmethod
    def storage_of(folder: TableName) -> DeltaStorage:
        """Storage of a folder that may hold several tables."""
        return DeltaStorage(_path(folder), folder.properties)

    def layout(self, target_bytes: int, compression: str) -> file_layout.Layout:
        """How new data files are divided and written. Raises ConfigError for a table with rules
        that nobody would enforce in them."""
        features.check_no_enforced_rules(self.name, self._table)
        return file_layout.Layout(
            schema=self.schema,
            partition_by=tuple(DeltaPartition(name, name) for name in self.partition_by),
            keeps_partition_columns=False,
            derived=self.generated_columns,
            target_bytes=target_bytes,
            compression=compression,
        )

    def refresh(self) -> None:
        self._table.update_incremental()

    @property
    def _configuration(self) -> dict[str, str]:
        """The table's properties."""
        return self._table.metadata().configuration

    @property
    def _add_actions(self) -> pa.Table:
        """The log's entries of this version's files."""
        return pa.table(self._table.get_add_actions(flatten=True))

    # -- reading ---------------------------------------------------------------------------

    def at_version(self, version: int) -> OpenDelta:
        """The table at another version. Raises ConfigError if that does not exist."""
        try:
            return OpenDelta(self.name, _load(self.name, version))
        except DeltaError as error:
            raise ConfigError(
                f"{self.name} has no version {version}; the newest is {self.version}."
            ) from error

    def scan_tasks(
        self, columns: Sequence[str], prune: str | None, at_least: int
    ) -> list[DeltaScanTask]:
        """Divide the table's files into tasks of about the same size, which read these columns.
        `prune`: a condition by which files are skipped; `at_least`: the number of tasks, if there
        are as many files."""
        predicate = None
        if prune is not None:
            from jetspark.tables.conditions import parse_condition

            predicate = to_sql(parse_condition(prune, self.schema))
        try:
            files = self._table.to_pyarrow_dataset(file_pruning_predicate=predicate)
        except DeltaProtocolError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        self._check_files_inside()
        actions = self._add_actions
        sizes = dict(
            zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
        )
        return [
            DeltaScanTask(fragments=group, schema=files.schema, columns=tuple(columns))
            for group in group_into_tasks(
                files.get_fragments(), lambda file: sizes.get(file.path, 0), at_least
            )
        ]

    def facts(self) -> TableFacts:
        """What a command shows about the table. The number of rows is known only if all files have
        it in the log, and none has deleted rows in it."""
        files = self._add_actions
        row_counts = files["num_records"].to_pylist() if files.num_rows else []
        has_deleted_rows = "deletionVectors" in features.table_features(self._table)
        return TableFacts(
            format="delta",
            location=self.location,
            version=self.version,
            committed=self._committed(),
            rows=None if None in row_counts or has_deleted_rows else sum(row_counts),
            files=files.num_rows,
            bytes=sum(files["size_bytes"].to_pylist()),
            columns=describe_columns(self.schema),
            partition_by=list(self.partition_by),
            properties=dict(self._configuration),
        )

    def _committed(self) -> datetime | None:
        """When the newest version was committed, by its entry in the log."""
        commits = self._table.history(limit=1)
        return commit_time(commits[0].get("timestamp")) if commits else None

    def _check_files_inside(self) -> None:
        """Raise ConfigError if the log names a file that is not in the table's folder, or is behind
        a link: somebody else's file could be read, or removed."""
        location = _path(self.name)
        inside.check_relative_paths(location, self._add_actions["path"].to_pylist())
        # A local log is searched for deletion vectors even if the table does not declare them:
        # deltalake opens them all the same.
        is_local = inside.local_folder_of(location) is not None
        if is_local or "deletionVectors" in features.table_features(self._table):
            check_log(location, self.storage.files())

    def _check_folders(self) -> None:
        """Raise ConfigError for a link among the folders in which deltalake may write files. Hidden
        folders that belong to other programs, such as a checkpoint, are left out."""
        own = {_LOG, _CHANGE_DATA, *(column.partition("/")[0] for column in self.partition_by)}
        inside.check_no_folder_links(
            _path(self.name),
            is_foreign=lambda name: name[0] in "_." and "=" not in name and name not in own,
        )

    # -- transaction versions and properties -----------------------------------------------

    def txn_version(self, name: str) -> int | None:
        return self._table.transaction_version(name)

    def check_txn_versions_retained(self) -> None:
        features.check_txn_versions_retained(self.name, self._table)

    def repair_version_hint(self) -> None:
        """Do nothing: readers of Delta find the newest version by listing the log."""

    def was_set_back(self, version: int, name: str, txn_version: int) -> bool:
        """Whether a RESTORE after `version` went back to before the commit that set the transaction
        version `name` to `txn_version`. The log's history tells, since a restored table has the
        same transaction versions."""
        later = self.version - version
        return later > 0 and any(
            not self._restored_txn_version(commit["operationParameters"], name, txn_version)
            for commit in self._table.history(limit=later)
            if commit.get("operation") == "RESTORE"
        )

    def _restored_txn_version(
        self, restore: Mapping[str, Any], name: str, txn_version: int
    ) -> bool:
        """Whether the version to which a RESTORE went back had this transaction version, or a later
        one; False if that version no longer exists, so that nothing is known about it. `restore`:
        the parameters of the operation in the log."""
        table = _load(self.name)
        try:
            if "version" in restore:
                table.load_as_version(int(restore["version"]))
            else:
                seconds = int(restore["datetime"]) / 1000
                table.load_as_version(datetime.fromtimestamp(seconds, UTC))
        except (KeyError, TypeError, ValueError, DeltaError):
            return False
        restored = table.transaction_version(name)
        return restored is not None and restored >= txn_version

    def property(self, name: str) -> str | None:
        return self._configuration.get(name)

    def set_property(self, name: str, value: str) -> None:
        """Set a property of the table, unless it has this value, and read the newest version."""
        if self.property(name) == value:
            return
        with self._detecting_conflicts():
            self._table.alter.set_table_properties({name: value}, raise_if_not_exists=False)
        self.refresh()

    def keep_versions(self, span: timedelta) -> None:
        self.set_property(_LOG_RETENTION, _as_interval(span))

    # -- changes ---------------------------------------------------------------------------

    def append(self, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        self._commit("append", files, txn_versions)

    def replace(self, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        """Replace all files by these, with a claim on the table: deltalake does not notice that an
        overwrite and a compaction conflict."""
        features.check_not_append_only(self.name, self._table)
        with self._claim():
            self._commit("overwrite", files, txn_versions)

    def merge(self, changes: Changes, txn_versions: TxnVersions) -> None:
        """Merge a batch of upserts by deltalake's MERGE, and set the transaction versions, even if
        no row changes."""
        features.check_not_append_only(self.name, self._table)
        self._check_files_inside()
        self._check_folders()
        versions = self._resolve(txn_versions)
        if not changes.is_empty:
            merge = prepare_merge(
                self._table, changes, _commit_properties(versions), _NO_LOG_CLEANUP
            )
            with self._detecting_conflicts():
                merge.execute()
            self._clean_log_periodically()
        if any(self.txn_version(name) != value for name, value in versions.items()):
            self.append((), versions)  # the library commits nothing where no row changes

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Add columns, which are null in existing rows, and set the property that says which
        columns have statistics."""
        features.check_types(columns)
        before = self.schema
        with_statistics = statistics.columns_with_statistics(self._table)
        with self._detecting_conflicts():
            self._table.alter.add_columns(
                [Field.from_arrow(as_nullable(column)) for column in columns]
            )
        self.refresh()
        if self.is_new:  # no file lacks the columns, so they can have statistics
            properties = statistics.statistics_property(self.schema, self.partition_by)
        elif statistics.INDEXED_COLUMNS not in self._configuration:
            # deltalake takes a file without a column for one without nulls in it, if the column
            # may have statistics: so columns that are added later have none.
            properties = statistics.statistics_property_for(map(before.field, with_statistics))
        else:
            return  # the property is set already
        if properties:
            # If another commit is faster, the columns only have statistics as Delta has by default.
            with suppress(CommitConflict), self._detecting_conflicts():
                self._table.alter.set_table_properties(properties)

    def widen(self, columns: Sequence[pa.Field]) -> None:
        """Raise ConfigError: deltalake does not change the type of a column."""
        names = ", ".join(f"{column.name} ({column.type})" for column in columns)
        raise ConfigError(
            f"{self.name} would need wider types for {names}, and deltalake does not change the "
            "type of a Delta table's column: keep its type in the schema, or write to another "
            "table, or to one in Iceberg."
        )

    def _commit(self, mode: str, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        """Commit new files and transaction versions. `mode`: "append", or "overwrite", which
        removes all other files from the table."""
        columns = statistics.columns_with_statistics(self._table)
        now_ms = int(time.time() * 1000)
        with self._detecting_conflicts(files):
            # After another commit the library tries again by itself, on top of that one, unless the
            # other commit has set one of the same transaction versions.
            self._table.create_write_transaction(
                [self._add_action(file, columns, now_ms) for file in files],
                mode,
                self._table.schema(),
                list(self.partition_by),
                commit_properties=_commit_properties(self._resolve(txn_versions)),
                post_commithook_properties=_NO_LOG_CLEANUP,
            )
        self._clean_log_periodically()

    def _add_action(
        self, file: NewFile, columns_with_statistics: Sequence[str], now_ms: int
    ) -> AddAction:
        """The log's entry that adds a new data file, with its statistics. Raises TableError if the
        table's columns or partitions were changed since the file was written."""
        check_unchanged(self.name, self.schema, file)
        if file.partition_by != self.partition_by:
            raise table_changed(self.name, "its partitions")
        partition_values = {
            name: file_layout.partition_value(value)
            for name, value in zip(self.partition_by, file.partition, strict=True)
        }
        file_statistics = statistics.statistics_json(
            file.metadata,
            columns_with_statistics,
            with_nan=file.with_nan,
            long_texts=file.long_texts,
        )
        return AddAction(
            path=file.path,
            size=file.size,
            partition_values=partition_values,
            modification_time=now_ms,
            data_change=True,
            stats=file_statistics,
        )

    def _resolve(self, txn_versions: TxnVersions) -> dict[str, int]:
        """The transaction versions to commit, with the table's next version in place of None. The
        commit creates that version, or, if deltalake tries again after another commit, a later
        one."""
        return {
            name: self.version + 1 if value is None else value
            for name, value in txn_versions.items()
        }

    @contextmanager
    def _detecting_conflicts(self, files: Sequence[NewFile] = ()) -> Iterator[None]:
        """Run a commit that adds these files, and find out after an error whether the table has it;
        then the error is dropped. Raises CommitConflict if another commit came first, and
        TableError with the library's reason if none did."""
        before = self.version
        try:
            yield
        except Exception as error:  # of too many kinds to name them
            self.refresh()
            paths = self._add_actions["path"].to_pylist() if files else ()
            # A file's name is unique; the folders before it may be encoded in the log.
            if any(path.endswith(files[0].path.rpartition("/")[2]) for path in paths):
                return  # the answer was lost, or something failed after the commit
            if not isinstance(error, CommitFailedError):
                raise
            if self.version == before:  # so it was not another commit that made this one fail
                raise TableError(f"{self.name} cannot be written: {error}.") from error
            raise CommitConflict(f"{self.name} was changed in the meantime ({error}).") from error

    # -- maintenance -----------------------------------------------------------------------

    def bytes_to_merge(self, target_bytes: int) -> int:
        return bytes_to_merge(self._table, target_bytes)

    def compact(self, target_bytes: int) -> Compaction:
        """Merge small files into files of about this size by deltalake's OPTIMIZE. Raises
        ConfigError for features that it would not keep, and TableError if another program compacted
        the table at the same moment, which may have repeated rows."""
        features.check_features(
            self.name,
            self._table,
            features.REWRITABLE_FEATURES,
            "compact it with Delta's own connector (OPTIMIZE)",
        )
        self._check_files_inside()
        self._check_folders()
        with self._claim():
            before = self.version
            excluded = uncompactable_values(self.partition_by, list_files(self._table))
            with self._detecting_conflicts():
                metrics = self._table.optimize.compact(
                    [(name, "not in", values) for name, values in excluded.items()],
                    target_size=target_bytes,
                    commit_properties=CommitProperties(
                        custom_metadata={COMPACTION_MARK: "compact"}
                    ),
                )
            if metrics["numFilesRemoved"]:
                check_compacted_once(self.name, self._table, before)
        return Compaction(removed=metrics["numFilesRemoved"], added=metrics["numFilesAdded"])

    def delete_before(self, column: str, limit: pa.Scalar) -> Expiry:
        """Remove the rows with a value below the limit by deltalake's DELETE. Raises ConfigError
        for features that it would not keep, and for an append-only table."""
        from jetspark.tables.conditions import Comparison

        predicate = to_sql(Comparison(column, "<", limit.as_py(), limit.type))
        features.check_not_append_only(self.name, self._table)
        features.check_features(
            self.name,
            self._table,
            features.REWRITABLE_FEATURES,
            "remove rows with Delta's own connector (DELETE)",
        )
        self._check_files_inside()
        self._check_folders()
        files = self._table.to_pyarrow_dataset(file_pruning_predicate=predicate)
        if not files.count_rows(filter=ds.field(column) < limit):
            return Expiry(rows=0, removed=0, rewritten=0)
        with self._claim():
            with self._detecting_conflicts():
                metrics = self._table.delete(
                    predicate,
                    post_commithook_properties=_NO_LOG_CLEANUP,
                )
            self.refresh()
        return Expiry(
            rows=metrics.get("num_deleted_rows"),
            removed=metrics["num_removed_files"],
            rewritten=metrics["num_added_files"],
        )

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> Vacuum:
        """Remove the files that no version within the retention needs and that are proven to be the
        table's; returns their paths, and those of unproven files. `dry_run`: remove nothing."""
        maintenance.check_retention(retention)
        features.check_features(
            self.name,
            self._table,
            features.VACUUMABLE_FEATURES,
            "vacuum it with Delta's own connector for Spark",
        )
        if "delta.deletedFileRetentionDuration" in self._configuration:
            try:  # deltalake compares the retention with the property
                list_unneeded(self._table, retention, unlogged=False, enforce_property=True)
            except DeltaError as error:
                raise ConfigError(
                    f"{self.name} keeps the files of older versions for longer, by its property "
                    "delta.deletedFileRetentionDuration: give at least that time."
                ) from error
        # Files that the log names were the table's. Without a retention, all unneeded files are
        # listed, also those of other tables in the folder.
        result = maintenance.prove_removable(
            _path(self.name),
            unneeded=list_unneeded(self._table, retention, unlogged=True),
            expired={*list_unneeded(self._table, retention, unlogged=False)},
            all_paths=list_unneeded(self._table, timedelta(), unlogged=True),
        )
        if not dry_run:
            maintenance.remove_files(self.storage, result.removed)
            self._clean_log()
        return result

    def _claim(self) -> AbstractContextManager[None]:
        """Keep other compactions and overwrites from the table during a `with` block (see
        `claim_table`)."""
        renewing_table = OpenDelta.find(self.name)
        assert renewing_table is not None  # noqa: S101  it was opened
        return claim_table(self, renewing_table)

    def _clean_log_periodically(self) -> None:
        """Remove expired files of the log, but only after every so many commits, since each search
        lists the whole log."""
        if self.version % _COMMITS_PER_LOG_CLEANUP == 0:
            self._clean_log()

    def _clean_log(self) -> None:
        """Remove the files of the log that are older than the table's log retention, unless its
        property forbids it. Errors are ignored: nothing depends on it."""
        if self._configuration.get("delta.enableExpiredLogCleanup", "true") == "true":
            with suppress(Exception):  # another writer does the same; the rest follows later
                self._table.cleanup_metadata()


def _commit_properties(txn_versions: Mapping[str, int]) -> CommitProperties:
    """deltalake's options for a commit that also sets these transaction versions."""
    now_ms = int(time.time() * 1000)
    return CommitProperties(
        app_transactions=[
            Transaction(name, version, now_ms) for name, version in txn_versions.items()
        ]
    )


def _as_interval(span: timedelta) -> str:
    """A time as Delta's properties have it."""
    return f"interval {int(span.total_seconds())} seconds"


def _load(name: TableName, version: int | None = None) -> DeltaTable:
    """Open a table with deltalake, at its newest version by default."""
    return DeltaTable(_path(name), version=version, storage_options=dict(name.properties))


def _path(name: TableName) -> str:
    """The table's folder or URI. Raises ConfigError for a table of a catalog."""
    if name.path is None:
        raise ConfigError(f"A Delta table needs a folder or URI: give {named('path')}.")
    return name.path
