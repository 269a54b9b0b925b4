"""Delta tables, through the library deltalake (delta-rs). Source: the Delta protocol."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    TableNotFoundError,
)
from deltalake.fs import DeltaStorageHandler
from deltalake.schema import Field, Schema
from deltalake.transaction import AddAction

from jetspark.errors import CommitConflict, ConfigError, TableError
from jetspark.lakehouse import maintenance, new_files
from jetspark.lakehouse.conditions import All, Comparison, Condition, IsNull, Some
from jetspark.lakehouse.delta_log import check_log, check_sidecars
from jetspark.lakehouse.generated import Generated
from jetspark.lakehouse.inside import (
    check_no_folder_links,
    check_no_links_in,
    check_path,
    check_relative_paths,
    is_plain_path,
    local_folder_of,
    paths_behind_links,
    remove_local_file,
)
from jetspark.lakehouse.partitions import PartitionBy
from jetspark.lakehouse.schemas import as_nullable, is_list, normalized_type
from jetspark.lakehouse.statistics import (
    LongTexts,
    column_bounds,
    leaf_columns,
    null_count,
    upper_bound_of_text,
)
from jetspark.lakehouse.table import (
    Changes,
    ScanTask,
    Table,
    TableName,
    TxnVersions,
    group_into_tasks,
)

if TYPE_CHECKING:
    import pyarrow.dataset  # it imports pandas, which writers do not need

# -------------------------------------------------------------------------------------------------
# Statistics of a Parquet file as Delta's log keeps them, so that readers can skip the file.
#
# Delta protocol, "Per-file Statistics": the number of rows, and for each column the minimum, the
# maximum and the number of nulls. A string may be truncated as long as it remains a bound.


_MAX_COLUMNS_WITH_STATISTICS = 32
"""Delta's default of delta.dataSkippingNumIndexedCols: the first columns have statistics."""
_INDEXED_COLUMN_COUNT = "delta.dataSkippingNumIndexedCols"
_INDEXED_COLUMNS = "delta.dataSkippingStatsColumns"
_NAME = re.compile(r"`((?:[^`]|``)*+)`|([^,`]++)")
_MAX_BOUND_LENGTH = 32
_EXACT_DIGITS, _EXACT_PLACES = 15, 5
"""Of decimals whose bounds deltalake writes as they are: it makes doubles of them, and writes small
ones as 1e-7, which it does not read."""
_ENCODER = msgspec.json.Encoder()


def statistics(
    metadata: pq.FileMetaData,
    columns: Iterable[str],
    with_nan: Container[str] = (),
    texts: LongTexts | None = None,
) -> str:
    """The statistics of a file as JSON; `columns`: those that have statistics; `with_nan`: those
    with NaN in them; `texts`: bounds that Parquet does not have.

    deltalake's own scan takes a file for one without matching rows if it has bounds of some columns
    and lacks that of another one: so where one is not known, there are none of any column.
    """
    paths = leaf_columns(metadata)  # nested columns have no statistics
    nulls: dict[str, int] = {}
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for name in columns:
        if name not in paths or _is_binary(metadata, index := paths[name]):
            continue
        if (count := null_count(metadata, index)) is not None:
            nulls[name] = count
        if count == metadata.num_rows:
            continue
        low, high = column_bounds(metadata, index, texts or {})
        lows[name] = None if low is None else _lower_bound(low)
        # For Spark NaN is greater than every number, so no number is above it.
        highs[name] = None if high is None or name in with_nan else _upper_bound(high)
    statistics: dict[str, Any] = {"numRecords": metadata.num_rows, "nullCount": nulls}
    for kind, ends in (("minValues", lows), ("maxValues", highs)):
        if None not in ends.values():
            statistics[kind] = ends
    return _ENCODER.encode(statistics).decode()


def _is_binary(metadata: pq.FileMetaData, index: int) -> bool:
    column = metadata.schema.column(index)
    return bool(column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "STRING")


def _lower_bound(value: Any) -> Any:
    match value:
        case datetime():
            return _json_time(value)
        case str():
            return value[:_MAX_BOUND_LENGTH]
    return _json_bound(value)


def _upper_bound(value: Any) -> Any:
    match value:
        case datetime():
            try:  # to milliseconds, rounded up so that it remains a bound
                return _json_time(value + timedelta(microseconds=-value.microsecond % 1000))
            except OverflowError:  # readers add the millisecond that writers may cut off
                return _json_time(value)
        case str():
            return upper_bound_of_text(value, _MAX_BOUND_LENGTH)
    return _json_bound(value)


def _json_time(value: datetime) -> str:
    # Not strftime, which writes the year 1 as "1" on Linux: readers leave such a file out.
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"


def _json_bound(value: Any) -> Any:
    """The value as JSON; None for types without bounds."""
    match value:
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case float():
            return None if math.isnan(value) else value
        case Decimal():  # with all of its digits, since readers compare them; they know no 1E-7
            return msgspec.Raw(f"{value:f}".encode())
        case date():
            return value.isoformat()
        case bool() | int():
            return value
        case _:
            return None


def _columns_with_statistics(table: DeltaTable) -> list[str]:
    """The columns of new files that have statistics, as the table's properties say."""
    metadata = table.metadata()
    names = [
        field.name
        for field in table.schema().fields
        if field.name not in metadata.partition_columns
    ]
    configuration = metadata.configuration
    if (listed_names := configuration.get(_INDEXED_COLUMNS)) is not None:
        names_with_statistics = _parse_column_names(listed_names)
        return [name for name in names if name in names_with_statistics]
    count = int(configuration.get(_INDEXED_COLUMN_COUNT, _MAX_COLUMNS_WITH_STATISTICS))
    return names if count < 0 else names[:count]


def _parse_column_names(text: str) -> set[str]:
    """The columns in the property `_NAMES_OF_COLUMNS`."""
    return {
        match[1].replace("``", "`") if match[1] is not None else match[2].strip()
        for match in _NAME.finditer(text)
    }


def _statistics_property(schema: pa.Schema, partition_by: Container[str]) -> dict[str, str]:
    """The property of a new table that says which columns have statistics: only those whose bounds
    deltalake writes as they are when it compacts and merges. Of infinite numbers it writes none,
    and of decimals only what a double holds. Empty where it writes all bounds well."""
    if not any(map(_loses_bounds, schema.types)):
        return {}
    return _statistics_property_for(
        [column for column in schema if column.name not in partition_by]
    )


def _statistics_property_for(columns: Iterable[pa.Field]) -> dict[str, str]:
    """The same property for those of these columns that may have statistics."""
    names = [
        f"`{column.name.replace('`', '``')}`"
        for column in columns
        if not pa.types.is_nested(column.type)
        and not pa.types.is_binary(column.type)
        and not _loses_bounds(column.type)
    ]
    return {_INDEXED_COLUMNS: ",".join(names[:_MAX_COLUMNS_WITH_STATISTICS])}


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


def _loses_bounds(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_loses_bounds(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_floating(kind)) or (
        pa.types.is_decimal(kind) and (kind.precision > _EXACT_DIGITS or kind.scale > _EXACT_PLACES)
    )


# -------------------------------------------------------------------------------------------------
# One rewriter of a Delta table at a time.
#
# deltalake (1.6) lets two compactions of the same files both commit, and an overwrite beside a
# compaction, which duplicates each row. It does detect conflicts between numbers, so a number says
# until when a rewriter has the table; it is renewed during the work, and expires after a kill.


REWRITE_CLAIM = "jetspark.rewriting"
CLAIM_SECONDS = 180
_RENEW_INTERVAL_SECONDS = 60.0


@contextmanager
def claim_table(table: Table, renewing_table: Table, name: str) -> Iterator[None]:
    """Keep other rewriters from the table. `other`: the same table, for renewing the claim.

    Raises CommitConflict when somebody has it, TableError when the claim was lost on the way.
    """
    table.refresh()
    until = table.txn_version(REWRITE_CLAIM) or 0
    if until > time.time():
        moment = datetime.fromtimestamp(until, UTC)
        raise CommitConflict(
            f"{name} is being compacted or overwritten by another program; if that was killed, try "
            f"again after {moment:%H:%M:%S} UTC."
        )
    held = _ClaimRenewal(renewing_table)
    table.append((), {REWRITE_CLAIM: held.until})
    table.refresh()
    held.start()
    try:
        yield
    finally:
        held.end()
        table.refresh()
        if table.txn_version(REWRITE_CLAIM) != held.until:
            raise TableError(
                f"{name}: this took longer than its claim on the table, which another program has "
                "taken: compare the number of rows before and after."
            )
        table.append((), {REWRITE_CLAIM: 0})
        table.refresh()


class _ClaimRenewal(threading.Thread):
    """Renews the claim."""

    def __init__(self, table: Table) -> None:
        super().__init__(daemon=True)
        self._table = table
        self._over = threading.Event()
        self.until = int(time.time()) + CLAIM_SECONDS

    def run(self) -> None:
        while not self._over.wait(_RENEW_INTERVAL_SECONDS):
            until = int(time.time()) + CLAIM_SECONDS
            try:
                self._table.refresh()
                if self._table.txn_version(REWRITE_CLAIM) != self.until:
                    return
                self._table.append((), {REWRITE_CLAIM: until})
            except CommitConflict:
                return
            self.until = until

    def end(self) -> None:
        """Stop; afterwards nothing is renewed."""
        self._over.set()
        self.join()


_LOG = "_delta_log"
_CHANGE_DATA = "_change_data"
_DELETED = "_jetspark_deleted"
_COMMIT_MARK = "jetspark"
"""Of a commit: which of our calls made it."""
_MAX_COMMITS_SEARCHED = 200
"""Commits among which compactions of other programs are looked for."""
_ENFORCED_BY_WRITERS = ("delta.invariants", "delta.identity")
"""Metadata of columns that every writer has to enforce."""
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
"""How long new tables keep their log: a reader that follows once a day finds its place. Each commit
lists the whole log on a local disk, so Delta's 30 days cost seconds where commits are frequent."""
_COMMITS_PER_LOG_CLEANUP = 1000
"""Commits between two searches through all files of the log."""
_NO_LOG_CLEANUP = PostCommitHookProperties(cleanup_expired_logs=False)
"""deltalake would do that after each commit."""


@dataclass(frozen=True)
class DeltaPartition(new_files.Partition):
    """A column by which a Delta table is partitioned."""

    def may_refuse(self, column: pa.Array) -> bool:
        return bool(pa.types.is_string(column.type) or pa.types.is_decimal(column.type))

    def refusal(self, value: pa.Scalar) -> str | None:
        match value.as_py():
            case "":
                return "has an empty text, which Delta takes for null"
            case new_files.NULL_FOLDER:
                return f"has {new_files.NULL_FOLDER}, which stands for null"
            case Decimal() as number if number < 0 and number != number.to_integral_value():
                return f"has {number:f}: deltalake reads no table with a negative fraction there"
        return super().refusal(value)


@dataclass(frozen=True)
class DeltaStorage(new_files.Storage):
    """Files of a Delta table."""

    uri: str
    options: Mapping[str, str] = field(repr=False)

    def create(self, path: str) -> pa.NativeFile:
        check_path(self.uri, path)
        return self.files().open_output_stream(path)

    def open(self, path: str) -> pa.NativeFile:
        check_path(self.uri, path)
        try:
            return self.files().open_input_file(path)
        except TableNotFoundError as error:  # not even the folder is there
            raise FileNotFoundError(path) from error

    def remove(self, path: str) -> None:
        if not remove_local_file(self.uri, path):
            self.files().delete_file(path)

    def files(self) -> pyarrow.fs.FileSystem:
        return pyarrow.fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))


@dataclass(frozen=True)
class DeltaScanTask(ScanTask):
    """Some files of one version."""

    fragments: Sequence[pyarrow.dataset.ParquetFileFragment]
    schema: pa.Schema
    columns: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for fragment in self.fragments:
            yield from fragment.to_batches(schema=self.schema, columns=list(self.columns))


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
        check_no_links_in(location, _LOG)
        if (folder := local_folder_of(location)) is not None:
            check_sidecars(folder)
        try:
            return cls(name, DeltaTable(location, storage_options=dict(name.properties)))
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
        names = [column.column for column in partition_by]
        try:
            created = DeltaTable.create(
                _path(name),
                columns,
                partition_by=names,
                storage_options=dict(name.properties),
                configuration={_LOG_RETENTION: _as_interval(_LOG_RETENTION_OF_NEW_TABLES)}
                | _statistics_property(schema, names),
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
    def storage(self) -> DeltaStorage:
        return self.storage_of(self.name)

    @staticmethod
    def storage_of(folder: TableName) -> DeltaStorage:
        """The storage of a folder."""
        return DeltaStorage(_path(folder), folder.properties)

    def layout(self, target_bytes: int, compression: str) -> new_files.Layout:
        configuration = self._table.metadata().configuration
        unsupported = [name for name in configuration if name.startswith("delta.constraints.")]
        if self._is_mapped():
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
        return new_files.Layout(
            schema=self.schema,
            partition_by=tuple(DeltaPartition(name, name) for name in self.partition_by),
            keeps_partition_columns=False,
            derived=self.generated_columns,
            target_bytes=target_bytes,
            compression=compression,
        )

    def at_version(self, version: int) -> OpenDelta:
        try:
            options = dict(self.name.properties)
            return OpenDelta(
                self.name, DeltaTable(_path(self.name), version=version, storage_options=options)
            )
        except DeltaError as error:
            raise ConfigError(
                f"{self.name} has no version {version}; the newest is {self._table.version()}."
            ) from error

    def scan_tasks(
        self, columns: Sequence[str], prune: str | None, at_least: int
    ) -> list[DeltaScanTask]:
        predicate = None
        if prune is not None:
            from jetspark.lakehouse.prune import parse_condition

            predicate = to_sql(parse_condition(prune, self.schema))
        try:
            files = self._table.to_pyarrow_dataset(file_pruning_predicate=predicate)
        except DeltaProtocolError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        self._check_files_inside()
        actions = pa.table(self._table.get_add_actions(flatten=True))
        sizes = dict(
            zip(*(actions[file].to_pylist() for file in ("path", "size_bytes")), strict=True)
        )
        return [
            DeltaScanTask(group, files.schema, tuple(columns))
            for group in group_into_tasks(
                files.get_fragments(),
                lambda file: sizes.get(file.path, 0),
                at_least,
            )
        ]

    def _check_files_inside(self) -> None:
        """Raise ConfigError for a file in the log that is not below the table, or behind a link."""
        paths = pa.table(self._table.get_add_actions())["path"].to_pylist()
        location = _path(self.name)
        check_relative_paths(location, paths)
        if local_folder_of(location) is not None or "deletionVectors" in self._features():
            check_log(location, DeltaStorage(location, dict(self.name.properties)).files())

    def _check_folders(self) -> None:
        """Raise ConfigError for a link among the folders in which deltalake may write files."""
        own = {_LOG, _CHANGE_DATA, *(column.partition("/")[0] for column in self.partition_by)}
        check_no_folder_links(
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
        if _TRANSACTION_RETENTION in self._table.metadata().configuration:
            raise ConfigError(
                f"{self.name} has {_TRANSACTION_RETENTION}, so it would forget which batches it "
                "has, and rows could be written twice: remove that property (ALTER TABLE … UNSET "
                "TBLPROPERTIES), or write to another table."
            )

    def was_set_back(self, version: int, name: str, number: int) -> bool:
        later = self.version - version
        return later > 0 and any(
            not self._had(commit["operationParameters"], name, number)
            for commit in self._table.history(limit=later)
            if commit.get("operation") == "RESTORE"
        )

    def _had(self, restored: Mapping[str, Any], name: str, number: int) -> bool:
        """Whether the restored version had this number; False if that version is gone."""
        table = DeltaTable(_path(self.name), storage_options=dict(self.name.properties))
        try:
            if "version" in restored:
                table.load_as_version(int(restored["version"]))
            else:
                moment = int(restored["datetime"]) / 1000
                table.load_as_version(datetime.fromtimestamp(moment, UTC))
        except (KeyError, TypeError, ValueError, DeltaError):
            return False
        restored_number = table.transaction_version(name)
        return restored_number is not None and restored_number >= number

    def keep_versions(self, span: timedelta) -> None:
        if self.property(_LOG_RETENTION) != _as_interval(span):
            self.set_property(_LOG_RETENTION, _as_interval(span))

    def property(self, name: str) -> str | None:
        return self._table.metadata().configuration.get(name)

    def set_property(self, name: str, value: str) -> None:
        with self._conflicts():
            self._table.alter.set_table_properties({name: value}, raise_if_not_exists=False)
        self.refresh()

    def refresh(self) -> None:
        self._table.update_incremental()

    def append(self, files: Sequence[new_files.NewFile], txn_versions: TxnVersions) -> None:
        self._commit("append", files, txn_versions)

    def replace(self, files: Sequence[new_files.NewFile], txn_versions: TxnVersions) -> None:
        self._check_removal()
        with self._claim():
            self._commit("overwrite", files, txn_versions)

    def merge(self, changes: Changes, txn_versions: TxnVersions) -> None:
        self._check_removal()
        self._check_files_inside()
        self._check_folders()
        resolved = self._resolved(txn_versions)
        if changes.rows.num_rows or changes.truncated_before is not None:
            source = changes.rows.append_column(_DELETED, changes.deleted)
            columns = {_quoted(column): _quoted(column, "new") for column in self.schema.names}
            same_keys = " AND ".join(
                f"{_quoted(column, 'old')} = {_quoted(column, 'new')}" for column in changes.keys
            )
            newer, old = "TRUE", ""
            if (order := changes.sequence_by) is not None:
                old = _quoted(order, "old")
                newer = f"({old} IS NULL OR {_quoted(order, 'new')} >= {old})"
            deleted = _quoted(_DELETED, "new")
            merging = self._table.merge(
                source, same_keys, source_alias="new", target_alias="old",
                commit_properties=_commit_properties(resolved),
                post_commithook_properties=_NO_LOG_CLEANUP,
            )  # fmt: skip
            merging = merging.when_matched_delete(f"{newer} AND {deleted}")
            merging = merging.when_matched_update(columns, newer)
            if changes.truncated_before is not None:
                before = f"{old} IS NULL OR {old} < {_literal(changes.truncated_before.as_py())}"
                merging = merging.when_not_matched_by_source_delete(before)
            with self._conflicts():
                merging.when_not_matched_insert(columns, f"NOT {deleted}").execute()
            self._trim_now_and_then()
        if any(self.txn_version(name) != value for name, value in resolved.items()):
            self.append((), resolved)  # the library commits nothing where no row changes

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        _check_types(columns)
        before, indexed = self.schema, _columns_with_statistics(self._table)
        with self._conflicts():
            self._table.alter.add_columns(
                [Field.from_arrow(as_nullable(column)) for column in columns]
            )
        self.refresh()
        if self.is_new:
            properties = _statistics_property(self.schema, self.partition_by)
        elif _INDEXED_COLUMNS not in self._table.metadata().configuration:
            # deltalake takes a file without a column for one without nulls in it, if the column
            # may have statistics: so columns that are added later have none.
            properties = _statistics_property_for([before.field(name) for name in indexed])
        else:
            return
        if properties:
            with suppress(CommitConflict), self._conflicts():
                self._table.alter.set_table_properties(properties)

    def widen(self, columns: Sequence[pa.Field]) -> None:
        names = ", ".join(f"{column.name} ({column.type})" for column in columns)
        raise ConfigError(
            f"{self.name} would need wider types for {names}, and deltalake does not change the "
            "type of a Delta table's column: keep its type in the schema, or write to another "
            "table, or to one in Iceberg."
        )

    def facts(self) -> maintenance.TableFacts:
        files = pa.table(self._table.get_add_actions(flatten=True))
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
            properties=dict(self._table.metadata().configuration),
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
            for commit in sizes.values()
            for group in maintenance.group_small_files(commit, commit, target_bytes)
        )

    def _files(self) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
        """(path, bytes, values of the partition) of each file."""
        files = pa.table(self._table.get_add_actions(flatten=True))
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
        """Values of partitions, by their columns, in which deltalake's compaction does not find the
        files: it writes a ~ into their paths as it is, and looks for it as %7E. A comparison with
        these values leaves out null, too."""
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
            with self._conflicts():
                metrics = self._table.optimize.compact(
                    [
                        (name, "not in", values)
                        for name, values in self._lost_partitions(self._files()).items()
                    ],
                    target_size=target_bytes,
                    commit_properties=CommitProperties(custom_metadata={_COMMIT_MARK: "compact"}),
                )
            if metrics["numFilesRemoved"]:
                self._check_alone(before)
        return maintenance.Compaction(
            removed=metrics["numFilesRemoved"], added=metrics["numFilesAdded"]
        )

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> maintenance.Vacuum:
        maintenance.check_retention(retention)
        self._check_features(_VACUUMABLE_FEATURES, "vacuum it with Delta's own connector for Spark")
        if "delta.deletedFileRetentionDuration" in self._table.metadata().configuration:
            try:
                self._listed(retention, full=False, enforced=True)
            except DeltaError as error:
                raise ConfigError(
                    f"{self.name} keeps the files of older versions for longer, by its property "
                    "delta.deletedFileRetentionDuration: give at least that time (--keep)."
                ) from error
        unnamed = self._listed(retention, full=True)
        expired = set(self._listed(retention, full=False))
        all_paths = self._listed(timedelta(), full=True)
        linked = paths_behind_links(_path(self.name), unnamed)
        unnamed = [path for path in unnamed if is_plain_path(path) and path not in linked]
        result = maintenance.prove_removable(unnamed, expired, all_paths)
        if not dry_run:
            maintenance.remove_files(self.storage, result.removed)
            self._trim_log()
        return result

    def _listed(self, retention: timedelta, *, full: bool, enforced: bool = False) -> list[str]:
        """Files that no version within the retention has; `full`: even those not in the log."""
        return self._table.vacuum(
            retention_hours=math.ceil(retention / timedelta(hours=1)),
            dry_run=True,
            enforce_retention_duration=enforced,
            full=full,
        )

    def _check_features(self, supported: frozenset[str], advice: str) -> None:
        """Raises ConfigError for a table with other features than these."""
        unsupported = self._features() - supported
        if "columnMapping" not in supported and self._is_mapped():
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

    def _is_mapped(self) -> bool:
        configuration = self._table.metadata().configuration
        return configuration.get("delta.columnMapping.mode", "none") != "none"

    def _claim(self) -> AbstractContextManager[None]:
        renewing_table = OpenDelta.find(self.name)
        assert renewing_table is not None  # noqa: S101  it was opened
        return claim_table(self, renewing_table, str(self.name))

    def _check_alone(self, before: int) -> None:
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

    def _check_removal(self) -> None:
        if self._table.metadata().configuration.get("delta.appendOnly") == "true":
            raise ConfigError(
                f"{self.name} only takes rows added (delta.appendOnly): use mode('append') without "
                "'keys', or write to another table."
            )

    def _commit(
        self, mode: str, files: Sequence[new_files.NewFile], txn_versions: TxnVersions
    ) -> None:
        columns = _columns_with_statistics(self._table)
        milliseconds = int(time.time() * 1000)
        with self._conflicts(files):
            # The library retries by itself, unless the other commit has set one of these numbers.
            self._table.create_write_transaction(
                [self._added(file, columns, milliseconds) for file in files],
                mode,
                self._table.schema(),
                list(self.partition_by),
                commit_properties=_commit_properties(self._resolved(txn_versions)),
                post_commithook_properties=_NO_LOG_CLEANUP,
            )
        self._trim_now_and_then()

    @contextmanager
    def _conflicts(self, files: Sequence[new_files.NewFile] = ()) -> Iterator[None]:
        """For a commit that adds these files. Raises CommitConflict if another one came first, and
        TableError with the library's reason if none did."""
        before = self.version
        try:
            yield
        except Exception as error:  # of too many kinds to name them
            self.refresh()
            added = pa.table(self._table.get_add_actions())["path"].to_pylist() if files else ()
            if any(path.endswith(files[0].path.rpartition("/")[2]) for path in added):
                return  # the answer was lost, or something failed after the commit
            if not isinstance(error, CommitFailedError):
                raise
            if self.version == before:
                raise TableError(f"{self.name} cannot be written: {error}.") from error
            raise CommitConflict(f"{self.name} was changed in the meantime ({error}).") from error

    def _trim_now_and_then(self) -> None:
        """Trim the log after a commit on top of this version, now and then."""
        if self.version % _COMMITS_PER_LOG_CLEANUP == 0:
            self._trim_log()

    def _trim_log(self) -> None:
        """Remove files of the log that are older than the table's retention."""
        configuration = self._table.metadata().configuration
        if configuration.get("delta.enableExpiredLogCleanup", "true") == "true":
            with suppress(Exception):  # another writer does the same; the rest follows later
                self._table.cleanup_metadata()

    def _resolved(self, txn_versions: TxnVersions) -> dict[str, int]:
        return {
            name: self.version + 1 if value is None else value
            for name, value in txn_versions.items()
        }

    def _added(
        self, file: new_files.NewFile, columns: Sequence[str], milliseconds: int
    ) -> AddAction:
        new_files.check_unchanged(self.name, self.schema, file)
        if file.partition_by != self.partition_by:
            raise new_files.table_changed(self.name, "its partitions")
        values = {
            name: new_files.partition_value(value)
            for name, value in zip(self.partition_by, file.partition, strict=True)
        }
        return AddAction(
            file.path,
            file.size,
            values,
            milliseconds,
            True,
            statistics(file.metadata, columns, file.with_nan, file.long_texts),
        )


def _commit_properties(txn_versions: Mapping[str, int]) -> CommitProperties:
    milliseconds = int(time.time() * 1000)
    return CommitProperties(
        app_transactions=[
            Transaction(name, version, milliseconds) for name, version in txn_versions.items()
        ]
    )


def _as_interval(span: timedelta) -> str:
    return f"interval {int(span.total_seconds())} seconds"


def _quoted(column: str, alias: str | None = None) -> str:
    name = '"' + column.replace('"', '""') + '"'
    return name if alias is None else f"{alias}.{name}"


def _path(name: TableName) -> str:
    if name.path is None:
        raise ConfigError("A Delta table needs a folder or URI: give the option 'path'.")
    return name.path


def to_sql(condition: Condition) -> str:
    """The condition in the SQL of deltalake, which takes times without a zone for UTC."""
    match condition:
        case Comparison():
            value = _literal(condition.value)
            return f"{_quoted(condition.column)} {condition.operator} {value}"
        case IsNull():
            return f"{_quoted(condition.column)} IS {'NOT ' if condition.negated else ''}NULL"
        case All() | Some():
            word = " AND " if isinstance(condition, All) else " OR "
            return f"({word.join(map(to_sql, condition.parts))})"


def _literal(value: Any) -> str:
    match value:
        case datetime():
            moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return f"'{moment.isoformat(sep=' ', timespec='microseconds')}'"
        case date():
            return f"'{value.isoformat()}'"
        case str():
            text = value.replace("'", "''")
            return f"'{text}'"
        case bool():
            return "TRUE" if value else "FALSE"
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)
