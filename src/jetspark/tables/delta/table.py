"""Delta tables, through the library deltalake (delta-rs). Source: the Delta protocol."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
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
from jetspark.tables.delta import statistics as delta_statistics
from jetspark.tables.delta.claim import claim_table
from jetspark.tables.delta.files import DeltaPartition, DeltaScanTask, DeltaStorage
from jetspark.tables.delta.log import check_log, check_sidecars
from jetspark.tables.delta.sql import quote_name, to_literal, to_sql
from jetspark.tables.generated import Generated
from jetspark.tables.new_files import NewFile, check_unchanged, table_changed
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.schemas import as_nullable, is_list, normalized_type
from jetspark.tables.table import Changes, Table, TableName, TxnVersions, group_into_tasks

_LOG = "_delta_log"
_CHANGE_DATA = "_change_data"
_DELETED = "_jetspark_deleted"
_COMMIT_MARK = "jetspark"
"""Key in a commit's metadata for the jetspark call that made the commit."""
_MAX_COMMITS_SEARCHED = 200
"""Newest commits that are searched for compactions of other programs."""
_ENFORCED_BY_WRITERS = ("delta.invariants", "delta.identity")
"""Prefixes of column metadata that every writer has to enforce."""
_GENERATED = "delta.generationExpression"
_REWRITABLE_FEATURES = frozenset(
    {
        "appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors", "generatedColumns",
        "invariants", "timestampNtz",
    }
)  # fmt: skip
"""Features of tables whose files deltalake may replace by others with the same rows."""
_VACUUMABLE_FEATURES = _REWRITABLE_FEATURES | {
    "allowColumnDefaults", "clustering", "columnMapping", "domainMetadata", "icebergCompatV1",
     "icebergCompatV2", "identityColumns", "inCommitTimestamp", "rowTracking",
    "typeWidening", "v2Checkpoint", "vacuumProtocolCheck", "variantType",
}  # fmt: skip
"""Features of tables whose log names every data file that a version has."""
_LOG_RETENTION = "delta.logRetentionDuration"
_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_LOG_RETENTION_OF_NEW_TABLES = timedelta(hours=36)
"""Log retention of new tables: a reader that follows once a day finds its place. Each commit lists
the whole log on a local disk, so Delta's 30 days cost seconds where commits are frequent."""
_COMMITS_PER_LOG_CLEANUP = 1000
"""Commits from one search through all files of the log to the next."""
_NO_LOG_CLEANUP = PostCommitHookProperties(cleanup_expired_logs=False)
"""Turns off the cleanup of the log, which deltalake would do after each commit."""


def _check_types(columns: Iterable[pa.Field]) -> None:
    """Raise ConfigError for a column with which deltalake makes a table that nobody can open."""
    for column in columns:
        if _has_local_times_in_a_map(column.type, in_a_map=False):
            raise ConfigError(
                f"Delta does not support a column: {column.name} has times without a zone "
                "(TIMESTAMP_NTZ) in a map. Make them TIMESTAMP, or texts."
            )


def _has_local_times_in_a_map(kind: pa.DataType, *, in_a_map: bool) -> bool:
    if pa.types.is_timestamp(kind):
        return in_a_map and kind.tz is None
    in_a_map = in_a_map or pa.types.is_map(kind)
    parts = [kind.key_type, kind.item_type] if pa.types.is_map(kind) else []
    if pa.types.is_struct(kind) or is_list(kind):
        parts = [kind.field(at).type for at in range(kind.num_fields)]
    return any(_has_local_times_in_a_map(part, in_a_map=in_a_map) for part in parts)


class OpenDelta(Table):
    """A Delta table at one version.

    `layout` refuses features that deltalake enforces only in files of its own, `compact` refuses
    those that it does not keep when it rewrites files.
    """

    def __init__(self, name: TableName, table: DeltaTable) -> None:
        self.name = name
        self._table = table

    @classmethod
    def find(cls, name: TableName) -> OpenDelta | None:
        """The table; None when there is none."""
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
        """A new, empty table. Raises ConfigError for types that Delta does not have, and
        CommitConflict if another writer created it first."""
        _check_types(schema)
        try:
            columns = Schema.from_arrow(pa.schema([as_nullable(column) for column in schema]))
        except Exception as error:  # the library's errors have several types
            raise ConfigError(f"Delta does not support a column: {error}") from error
        names = [partition.column for partition in partition_by]
        try:
            created = DeltaTable.create(
                _path(name),
                columns,
                partition_by=names,
                storage_options=dict(name.properties),
                configuration={_LOG_RETENTION: _as_interval(_LOG_RETENTION_OF_NEW_TABLES)}
                | delta_statistics.statistics_property(schema, names),
                commit_properties=_commit_properties(txn_versions),
            )
        except DeltaError as error:
            if cls.find(name) is not None:
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
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._table.metadata().partition_columns)

    @property
    def generated_columns(self) -> dict[str, Generated]:
        return {
            column.name: Generated.parse(
                schema.field(column.name), str(column.metadata[_GENERATED]), self.name, schema
            )
            for schema in [self.schema]
            for column in self._table.schema().fields
            if _GENERATED in column.metadata
        }

    @property
    def _configuration(self) -> dict[str, str]:
        return self._table.metadata().configuration

    @property
    def _add_actions(self) -> pa.Table:
        """The log's entries of this version's files."""
        return pa.table(self._table.get_add_actions(flatten=True))

    @property
    def storage(self) -> DeltaStorage:
        return self.storage_of(self.name)

    @staticmethod
    def storage_of(folder: TableName) -> DeltaStorage:
        """Storage of a folder that may hold several tables."""
        return DeltaStorage(_path(folder), folder.properties)

    def layout(self, target_bytes: int, compression: str) -> file_layout.Layout:
        unsupported = [
            name for name in self._configuration if name.startswith("delta.constraints.")
        ]
        if self._has_column_mapping():
            unsupported.append("delta.columnMapping.mode")
        unsupported += [
            f"{key} of {column.name}"
            for column in self._table.schema().fields
            for key in column.metadata
            if key.startswith(_ENFORCED_BY_WRITERS)
        ]
        if unsupported:
            raise ConfigError(
                f"{self.name} has {', '.join(unsupported)}, which only Delta's own connector for "
                "Spark enforces: write this table with that connector."
            )
        return file_layout.Layout(
            schema=self.schema,
            partition_by=tuple(DeltaPartition(name, name) for name in self.partition_by),
            keeps_partition_columns=False,
            derived=self.generated_columns,
            target_bytes=target_bytes,
            compression=compression,
        )

    def at_version(self, version: int) -> OpenDelta:
        try:
            return OpenDelta(self.name, _load(self.name, version))
        except DeltaError as error:
            raise ConfigError(
                f"{self.name} has no version {version}; the newest is {self._table.version()}."
            ) from error

    def scan_tasks(
        self, columns: Sequence[str], prune: str | None, at_least: int
    ) -> list[DeltaScanTask]:
        predicate = None
        if prune is not None:
            from jetspark.tables.condition_parser import parse_condition

            predicate = to_sql(parse_condition(prune, self.schema))
        try:
            files = self._table.to_pyarrow_dataset(file_pruning_predicate=predicate)
        except DeltaProtocolError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        self._check_files_inside()
        actions = self._add_actions
        sizes = dict(
            zip(*(actions[name].to_pylist() for name in ("path", "size_bytes")), strict=True)
        )
        return [
            DeltaScanTask(group, files.schema, tuple(columns))
            for group in group_into_tasks(
                files.get_fragments(), lambda file: sizes.get(file.path, 0), at_least
            )
        ]

    def _check_files_inside(self) -> None:
        """Raise ConfigError for a file in the log that is not below the table, or behind a link."""
        paths = self._add_actions["path"].to_pylist()
        location = _path(self.name)
        inside.check_relative_paths(location, paths)
        if inside.local_folder_of(location) is not None or "deletionVectors" in self._features():
            check_log(location, self.storage.files())

    def _check_folders(self) -> None:
        """Raise ConfigError for a link among the folders in which deltalake may write files."""
        own = {_LOG, _CHANGE_DATA, *(column.partition("/")[0] for column in self.partition_by)}
        inside.check_no_folder_links(
            _path(self.name),
            is_foreign=lambda name: name[0] in "_." and "=" not in name and name not in own,
        )

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def commits(self) -> int:
        return self.version

    @property
    def is_new(self) -> bool:
        return not self._table.get_add_actions().num_rows

    def txn_version(self, name: str) -> int | None:
        return self._table.transaction_version(name)

    def check_txn_versions_retained(self) -> None:
        if _TRANSACTION_RETENTION in self._configuration:
            raise ConfigError(
                f"{self.name} has {_TRANSACTION_RETENTION}, so it would forget which batches it "
                "has, and rows could be written twice: remove that property (ALTER TABLE … UNSET "
                "TBLPROPERTIES), or write to another table."
            )

    def repair_version_hint(self) -> None:
        """Nothing to repair: readers list the log."""

    def was_set_back(self, version: int, name: str, txn_version: int) -> bool:
        later = self.version - version
        return later > 0 and any(
            not self._had_txn_version(commit["operationParameters"], name, txn_version)
            for commit in self._table.history(limit=later)
            if commit.get("operation") == "RESTORE"
        )

    def _had_txn_version(self, restored: Mapping[str, Any], name: str, txn_version: int) -> bool:
        """Whether a restored version had this transaction version; False if that version is
        missing."""
        table = _load(self.name)
        try:
            if "version" in restored:
                table.load_as_version(int(restored["version"]))
            else:
                seconds = int(restored["datetime"]) / 1000
                table.load_as_version(datetime.fromtimestamp(seconds, UTC))
        except (KeyError, TypeError, ValueError, DeltaError):
            return False
        found_version = table.transaction_version(name)
        return found_version is not None and found_version >= txn_version

    def keep_versions(self, span: timedelta) -> None:
        if self.property(_LOG_RETENTION) != _as_interval(span):
            self.set_property(_LOG_RETENTION, _as_interval(span))

    def property(self, name: str) -> str | None:
        return self._configuration.get(name)

    def set_property(self, name: str, value: str) -> None:
        with self._detecting_conflicts():
            self._table.alter.set_table_properties({name: value}, raise_if_not_exists=False)
        self.refresh()

    def refresh(self) -> None:
        self._table.update_incremental()

    def append(self, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        self._commit("append", files, txn_versions)

    def replace(self, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        self._check_not_append_only()
        with self._claim():
            self._commit("overwrite", files, txn_versions)

    def merge(self, changes: Changes, txn_versions: TxnVersions) -> None:
        self._check_not_append_only()
        self._check_files_inside()
        self._check_folders()
        resolved = self._resolve(txn_versions)
        if changes.rows.num_rows or changes.truncated_before is not None:
            source = changes.rows.append_column(_DELETED, changes.deleted)
            columns = {
                quote_name(column): quote_name(column, "new") for column in self.schema.names
            }
            same_keys = " AND ".join(
                f"{quote_name(column, 'old')} = {quote_name(column, 'new')}"
                for column in changes.keys
            )
            newer, old = "TRUE", ""
            if (order := changes.sequence_by) is not None:
                old = quote_name(order, "old")
                newer = f"({old} IS NULL OR {quote_name(order, 'new')} >= {old})"
            deleted = quote_name(_DELETED, "new")
            merging = self._table.merge(
                source, same_keys, source_alias="new", target_alias="old",
                commit_properties=_commit_properties(resolved),
                post_commithook_properties=_NO_LOG_CLEANUP,
            )  # fmt: skip
            merging = merging.when_matched_delete(f"{newer} AND {deleted}")
            merging = merging.when_matched_update(columns, newer)
            if changes.truncated_before is not None:
                before = f"{old} IS NULL OR {old} < {to_literal(changes.truncated_before.as_py())}"
                merging = merging.when_not_matched_by_source_delete(before)
            with self._detecting_conflicts():
                merging.when_not_matched_insert(columns, f"NOT {deleted}").execute()
            self._clean_log_periodically()
        if any(self.txn_version(name) != value for name, value in resolved.items()):
            self.append((), resolved)  # the library commits nothing where no row changes

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        _check_types(columns)
        before, indexed = self.schema, delta_statistics.columns_with_statistics(self._table)
        with self._detecting_conflicts():
            self._table.alter.add_columns(
                [Field.from_arrow(as_nullable(column)) for column in columns]
            )
        self.refresh()
        if self.is_new:
            properties = delta_statistics.statistics_property(self.schema, self.partition_by)
        elif delta_statistics.INDEXED_COLUMNS not in self._configuration:
            # deltalake takes a file without a column for one without nulls in it, if the column
            # may have statistics: so columns that are added later have none.
            properties = delta_statistics.statistics_property_for(
                [before.field(name) for name in indexed]
            )
        else:
            return
        if properties:
            with suppress(CommitConflict), self._detecting_conflicts():
                self._table.alter.set_table_properties(properties)

    def widen(self, columns: Sequence[pa.Field]) -> None:
        names = ", ".join(f"{column.name} ({column.type})" for column in columns)
        raise ConfigError(
            f"{self.name} would need wider types for {names}, and deltalake does not change the "
            "type of a Delta table's column: keep its type in the schema, or write to another "
            "table, or to one in Iceberg."
        )

    def facts(self) -> maintenance.TableFacts:
        files = self._add_actions
        counts = files["num_records"].to_pylist() if files.num_rows else []
        counts_are_exact = None not in counts and "deletionVectors" not in self._features()
        return maintenance.TableFacts(
            format="delta",
            location=self.location,
            version=self._table.version(),
            rows=sum(counts) if counts_are_exact else None,
            files=files.num_rows,
            bytes=sum(files["size_bytes"].to_pylist()),
            columns=[(column.name, str(normalized_type(column.type))) for column in self.schema],
            partition_by=list(self.partition_by),
            properties=dict(self._configuration),
        )

    def bytes_to_merge(self, target_bytes: int) -> int:
        foreign_compactions = (
            commit.get("operation") == "OPTIMIZE" and _COMMIT_MARK not in commit
            for commit in self._table.history(limit=_MAX_COMMITS_SEARCHED)
        )
        if any(foreign_compactions):
            return 0
        files = list(self._files())
        lost = self._lost_partitions(files)
        sizes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for _, size, values in files:
            named = zip(self.partition_by, values, strict=True)
            if not any(name in lost and value in (None, *lost[name]) for name, value in named):
                sizes[values].append(size)
        return sum(
            sum(group)
            for of_partition in sizes.values()
            for group in maintenance.group_small_files(of_partition, of_partition, target_bytes)
        )

    def _files(self) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
        """(path, bytes, values of the partition) of each file."""
        files = self._add_actions
        if not files.num_rows:
            return
        partitions = [files[f"partition.{name}"].to_pylist() for name in self.partition_by]
        for path, size, *values in zip(
            files["path"].to_pylist(), files["size_bytes"].to_pylist(), *partitions, strict=True
        ):
            yield path, size, tuple(values)

    def _lost_partitions(
        self, files: Iterable[tuple[str, int, tuple[Any, ...]]]
    ) -> dict[str, list[str]]:
        """Partition values, by column, whose files deltalake's compaction does not find: it writes
        a ~ into their paths as it is, and looks for it as %7E. A comparison with these values
        leaves out null, too."""
        lost: dict[str, set[str]] = defaultdict(set)
        for path, _, values in files:
            if "~" in path:
                for name, value in zip(self.partition_by, values, strict=True):
                    if isinstance(value, str) and "~" in value:
                        lost[name].add(value)
        return {name: sorted(values) for name, values in lost.items()}

    def compact(self, target_bytes: int) -> maintenance.Compaction:
        self._check_features(
            _REWRITABLE_FEATURES, "compact it with Delta's own connector (OPTIMIZE)"
        )
        self._check_files_inside()
        self._check_folders()
        with self._claim():
            before = self._table.version()
            with self._detecting_conflicts():
                metrics = self._table.optimize.compact(
                    [
                        (name, "not in", values)
                        for name, values in self._lost_partitions(self._files()).items()
                    ],
                    target_size=target_bytes,
                    commit_properties=CommitProperties(custom_metadata={_COMMIT_MARK: "compact"}),
                )
            if metrics["numFilesRemoved"]:
                self._check_compacted_once(before)
        return maintenance.Compaction(
            removed=metrics["numFilesRemoved"], added=metrics["numFilesAdded"]
        )

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> maintenance.Vacuum:
        maintenance.check_retention(retention)
        self._check_features(_VACUUMABLE_FEATURES, "vacuum it with Delta's own connector for Spark")
        if "delta.deletedFileRetentionDuration" in self._configuration:
            try:
                self._list_unneeded(retention, full=False, enforced=True)
            except DeltaError as error:
                raise ConfigError(
                    f"{self.name} keeps the files of older versions for longer, by its property "
                    "delta.deletedFileRetentionDuration: give at least that time (--keep)."
                ) from error
        unnamed = self._list_unneeded(retention, full=True)
        expired = set(self._list_unneeded(retention, full=False))
        all_paths = self._list_unneeded(timedelta(), full=True)
        linked = inside.paths_behind_links(_path(self.name), unnamed)
        unnamed = [path for path in unnamed if inside.is_plain_path(path) and path not in linked]
        result = maintenance.prove_removable(unnamed, expired, all_paths)
        if not dry_run:
            maintenance.remove_files(self.storage, result.removed)
            self._clean_log()
        return result

    def _list_unneeded(
        self, retention: timedelta, *, full: bool, enforced: bool = False
    ) -> list[str]:
        """Paths of files that no version within the retention has; `full`: even those not in the
        log."""
        return self._table.vacuum(
            retention_hours=math.ceil(retention / timedelta(hours=1)),
            dry_run=True,
            enforce_retention_duration=enforced,
            full=full,
        )

    def _check_features(self, supported: frozenset[str], advice: str) -> None:
        """Raise ConfigError for a table with other features than these."""
        unsupported = self._features() - supported
        if "columnMapping" not in supported and self._has_column_mapping():
            unsupported.add("columnMapping")
        if unsupported:
            raise ConfigError(
                f"{self.name} has the table feature {', '.join(sorted(unsupported))}, which is not "
                f"supported here: {advice}."
            )

    def _features(self) -> set[str]:
        protocol = self._table.protocol()
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        # deltalake declares it when it adds a TIMESTAMP_NTZ, too.
        if '"type":"variant"' not in self._table.schema().to_json().replace(" ", ""):
            features.discard("variantType")
        return features

    def _has_column_mapping(self) -> bool:
        return self._configuration.get("delta.columnMapping.mode", "none") != "none"

    def _claim(self) -> AbstractContextManager[None]:
        renewing_table = OpenDelta.find(self.name)
        assert renewing_table is not None  # noqa: S101  it was opened
        return claim_table(self, renewing_table, str(self.name))

    def _check_compacted_once(self, before: int) -> None:
        """Raises TableError if another program, too, has compacted since that version."""
        after = self._table.version()
        since = self._table.history(limit=max(after - before, 1))
        compacted = [
            commit["version"]
            for commit in since
            if commit["version"] > before and commit.get("operation") == "OPTIMIZE"
        ]
        if len(compacted) > 1:
            raise TableError(
                f"{self.name} was compacted by another program at the same moment, so its rows may "
                f"be there twice: compare their number with version {before}, and if they are, "
                f"restore version {min(compacted)} with DeltaTable.restore."
            )

    def _check_not_append_only(self) -> None:
        if self._configuration.get("delta.appendOnly") == "true":
            raise ConfigError(
                f"{self.name} is append-only (delta.appendOnly=true): use mode('append') without "
                "'keys', or write to another table."
            )

    def _commit(self, mode: str, files: Sequence[NewFile], txn_versions: TxnVersions) -> None:
        columns = delta_statistics.columns_with_statistics(self._table)
        now_ms = int(time.time() * 1000)
        with self._detecting_conflicts(files):
            # The library retries by itself, unless the other commit has set one of these versions.
            self._table.create_write_transaction(
                [self._add_action(file, columns, now_ms) for file in files],
                mode,
                self._table.schema(),
                list(self.partition_by),
                commit_properties=_commit_properties(self._resolve(txn_versions)),
                post_commithook_properties=_NO_LOG_CLEANUP,
            )
        self._clean_log_periodically()

    @contextmanager
    def _detecting_conflicts(self, files: Sequence[NewFile] = ()) -> Iterator[None]:
        """Runs a commit that adds these files, and decides after an error what became of it. Raises
        CommitConflict if another commit came first, and TableError with the library's reason if
        none did."""
        before = self.version
        try:
            yield
        except Exception as error:  # of too many kinds to name them
            self.refresh()
            added = self._add_actions["path"].to_pylist() if files else ()
            if any(path.endswith(files[0].path.rpartition("/")[2]) for path in added):
                return  # the answer was lost, or something failed after the commit
            if not isinstance(error, CommitFailedError):
                raise
            if self.version == before:
                raise TableError(f"{self.name} cannot be written: {error}.") from error
            raise CommitConflict(f"{self.name} was changed in the meantime ({error}).") from error

    def _clean_log_periodically(self) -> None:
        """Clean up the log after a commit on top of this version, now and then."""
        if self.version % _COMMITS_PER_LOG_CLEANUP == 0:
            self._clean_log()

    def _clean_log(self) -> None:
        """Remove files of the log that are older than the table's retention."""
        if self._configuration.get("delta.enableExpiredLogCleanup", "true") == "true":
            with suppress(Exception):  # another writer does the same; the rest follows later
                self._table.cleanup_metadata()

    def _resolve(self, txn_versions: TxnVersions) -> dict[str, int]:
        return {
            name: self.version + 1 if value is None else value
            for name, value in txn_versions.items()
        }

    def _add_action(self, file: NewFile, columns: Sequence[str], now_ms: int) -> AddAction:
        check_unchanged(self.name, self.schema, file)
        if file.partition_by != self.partition_by:
            raise table_changed(self.name, "its partitions")
        values = {
            name: file_layout.partition_value(value)
            for name, value in zip(self.partition_by, file.partition, strict=True)
        }
        return AddAction(
            file.path,
            file.size,
            values,
            now_ms,
            True,
            delta_statistics.statistics_json(
                file.metadata, columns, file.with_nan, file.long_texts
            ),
        )


def _commit_properties(txn_versions: Mapping[str, int]) -> CommitProperties:
    now_ms = int(time.time() * 1000)
    return CommitProperties(
        app_transactions=[
            Transaction(name, version, now_ms) for name, version in txn_versions.items()
        ]
    )


def _as_interval(span: timedelta) -> str:
    return f"interval {int(span.total_seconds())} seconds"


def _load(name: TableName, version: int | None = None) -> DeltaTable:
    return DeltaTable(_path(name), version=version, storage_options=dict(name.properties))


def _path(name: TableName) -> str:
    if name.path is None:
        raise ConfigError(f"A Delta table needs a folder or URI: give {named('path')}.")
    return name.path
