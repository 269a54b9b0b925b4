"""The options of format("jetspark-delta") and format("jetspark-iceberg"); secrets in no repr.

`option_texts` reads them from the texts that Spark passes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from jetspark.errors import ConfigError, named
from jetspark.options.scopes import TableOptions, TableReadScope, parsers_of
from jetspark.payloads.field_names import FieldNames
from jetspark.spark.checkpoints import query_name
from jetspark.spark.table_sink.dead_letter_sink import DeadLetterSink
from jetspark.tables.formats import Format
from jetspark.tables.history import History
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.row_expressions import RowExpression
from jetspark.tables.table import TableName
from jetspark.tables.table_templates import TableTemplate
from jetspark.tables.upserts import RowCondition, Upsert

PREFIX = "jetspark-"
"""Prefix of the formats' names in Spark, since a JAR may provide "delta" and "iceberg"."""
FILES = frozenset({"parquet", "json", "csv", "orc", "text", "avro", "xml"})
"""Formats of Spark's own file sink and source."""
TABLES = "tables"
"""A list of tables, as JSON (`table_list_option`)."""
TASK_SECRET = "taskSecret"
"""The secret of one start of a query (`task_output`). Spark masks such names."""
TASK_ROWS = "taskRows"
"""The columns of the rows that the query's own tasks write, as JSON."""
ROW_RECIPE = "rowRecipe"
"""How these tasks make rows of messages, for those who read the table (`tails`)."""
STOP = "stop"
"""Policy for records that cannot be decoded when no quarantine table is set."""
_COMPACT_EVERY = 100
"""Commits from one compaction to the next while a command follows a stream."""
_NEED_ORDER = ("apply_as_truncates", "history_by")
"""Options that go with `sequence_by`."""
MERGE_OPTIONS = ("keys", "sequence_by", "apply_as_deletes", *_NEED_ORDER)
"""Options that say which rows replace others."""


@dataclass(frozen=True, kw_only=True)
class LakehouseOptions:
    """The parsed options of a read or a write of Delta or Iceberg tables, as docs/options.md
    explains them."""

    format: Format
    name: TableName
    partition_by: tuple[PartitionBy, ...] | None = None
    merge_schema: bool = False
    evolve: bool = False
    """Widen types, and add columns for a stream's new fields (`schema_evolution`)."""
    target_file_size: int = 128 * 1024 * 1024
    """Bytes."""
    file_compression: str = TableOptions.file_compression
    keep_versions: timedelta | None = None
    transaction_id: str | None = None
    writer_name: str | None = None
    adopt: bool = False
    keys: tuple[str, ...] | None = None
    sequence_by: str | None = None
    apply_as_deletes: RowCondition | None = None
    apply_as_truncates: RowCondition | None = None
    history_by: str | None = None
    """The column with the time of a change, for a table with all changes and their ends."""
    route: TableTemplate | None = None
    """The route of rows, when `name` is a template."""
    default_table: str | None = None
    """The table for rows without one."""
    quarantine: str | None = None
    """The table for records that do not become rows (`tables.quarantine`), or stream:NAME."""
    dead_letter_sink: DeadLetterSink | None = None
    """The stream in its place."""
    on_bad_record: str | None = None
    """`STOP`: the first one ends the write; else they are in `_corrupt_record`."""
    max_new_tables: int = TableOptions.max_new_tables
    compact_every: int | None = None
    """After so many commits small files are merged; 0: never; None: nobody has said."""
    tables: tuple[RoutedTable, ...] = ()
    """A list of tables, in place of `name`."""
    checkpoint: str | None = None
    task_secret: str | None = field(default=None, repr=False)
    """The secret with which the query's own tasks seal what they report (`task_output`)."""
    task_rows: tuple[pa.Schema, ...] = ()
    """The columns of their rows; of a list those of messages without a table, and of each table."""
    row_recipe: str | None = None
    """How they make these rows, if that can be told (`tails.row_recipe`)."""
    version_as_of: int | None = None
    prune: str | None = None
    min_partitions: int = 1

    @property
    def query_name(self) -> str | None:
        """The name under which the query writes to its tables, where it survives the checkpoint: as
        given, or made of the checkpoint's path; None if neither is known."""
        return query_name(self.writer_name, self.checkpoint)

    @property
    def has_one_table(self) -> bool:
        """Whether rows have one table: neither a list nor a template of tables, by which they are
        divided. A quarantine beside it does not count."""
        return self.route is None and not self.tables

    @property
    def partitions(self) -> tuple[PartitionBy, ...]:
        """The fields by which the table is partitioned. Delta has no transforms, so `day(time)` is
        the column `time_day` there, which tasks add to the rows (`partition_columns`)."""
        partition_by = self.partition_by or ()
        if self.format is Format.ICEBERG:
            return partition_by
        return tuple(PartitionBy(_delta_partition_column(item)) for item in partition_by)

    @property
    def partition_columns(self) -> dict[str, RowExpression]:
        """Columns that tasks add to the rows of a Delta table since it is partitioned by them, and
        the expressions for their values, as `time_day` and `day(time)`; none for Iceberg."""
        if self.format is Format.ICEBERG:
            return {}
        return {
            _delta_partition_column(item): RowExpression.parse("partition_by", str(item))
            for item in self.partition_by or ()
            if item.transform
        }

    @property
    def upsert(self) -> Upsert | None:
        """How rows are merged into the table by the option `keys`; None without keys, when rows are
        appended. Raises ConfigError for options that need another one."""
        if not self.keys:
            self._check_unset(
                MERGE_OPTIONS[1:],
                f"goes with {named('keys')}, the columns that tell which rows replace each other.",
            )
            return None
        if self.sequence_by is None:
            self._check_unset(
                _NEED_ORDER, f"goes with {named('sequence_by')}, the column that orders the rows."
            )
        rule = self.keys, self.sequence_by, self.apply_as_deletes, self.apply_as_truncates
        return Upsert(*rule) if self.history_by is None else History(*rule, self.history_by)

    def of_table(self, table: str) -> LakehouseOptions:
        """The options of one of the query's tables: one of a list or of a template, the default
        table for rows without one, or the quarantine for rejected records.

        `table`: its folder, or its identifier in the catalog; "" for a query's only table.
        """
        if not table:
            return self
        for routed in self.tables:
            if str(routed.options.name) == table:
                return routed.options
        if self.name.catalog is None:
            name = replace(self.name, path=table)
        else:
            name = replace(self.name, identifier=table)
        options = replace(
            self, name=name, route=None, quarantine=None, dead_letter_sink=None, tables=()
        )
        # Keys and partitions are columns of rows, which a quarantine does not have. The default
        # table of a list has neither, since rows of all kinds come there.
        if self.tables or self.is_quarantine(options):
            unset: dict[str, Any] = dict.fromkeys((*MERGE_OPTIONS, "partition_by"))
            options = replace(options, **unset)
        return options

    def is_quarantine(self, options: LakehouseOptions) -> bool:
        """Whether `options`, those of one of the query's tables, are the quarantine's: the table
        for records that do not become rows."""
        return self.quarantine is not None and self.quarantine in (
            options.name.path,
            options.name.identifier,
        )

    def for_reading(self) -> LakehouseOptions:
        """Check that all options are for spark.read, and return them unchanged. Raises ConfigError
        for one that is for writing."""
        self._check_unset(parsers_of(TableOptions), "is for writing.")
        self._check_no_list()
        if self.route is not None:
            raise ConfigError(f"{self.name} is a template of tables: read one of them.")
        return self

    def for_batch(self) -> LakehouseOptions:
        """Check that all options are for df.write, and return them unchanged. Raises ConfigError
        for one that is for reading or for streaming queries."""
        self._check_no_list()
        self._check_unset(("adopt", "writer_name", "compact_every"), "is for streaming queries.")
        self._check_unset(parsers_of(TableReadScope), "is for reading.")
        return self

    def for_streaming(self) -> LakehouseOptions:
        """Check that all options are for df.writeStream, and return them unchanged. Raises
        ConfigError for one that is for reading or for batch writes."""
        self._check_unset(
            ("transaction_id",),
            "is for batch writes; a streaming query is identified by its checkpoint.",
        )
        self._check_unset(parsers_of(TableReadScope), "is for reading.")
        return self

    def _check_no_list(self) -> None:
        """Raise ConfigError if the options have a list of tables, which only a pipeline's streaming
        query can write."""
        if self.tables:
            raise ConfigError("is for streaming queries of jetspark run.", option=TABLES)

    def _check_unset(self, names: Iterable[str], problem: str) -> None:
        """Raise ConfigError, with the text `problem`, for the first of these options (by the names
        of their attributes) that differs from its default."""
        for name in names:
            if getattr(self, name) != getattr(_DEFAULTS, name):
                raise ConfigError(problem, option=name)


def default_compaction(options: LakehouseOptions) -> dict[str, str]:
    """The option `compactEvery`, by which small files are merged now and then, for a query that a
    command runs until it is stopped; no option if the user has set it, or the table has keys."""
    is_undecided = options.compact_every is None and not options.keys  # keys exclude compactions
    return {"compactEvery": str(_COMPACT_EVERY)} if is_undecided else {}


@dataclass(frozen=True, kw_only=True)
class RoutedTable:
    """One table of a list into which a query divides the messages of a stream by their subjects."""

    subjects: tuple[str, ...]
    """Patterns for the subjects of its messages."""
    options: LakehouseOptions
    json_schema: str | None = None
    """Schema of the payloads, in Spark's DDL; without one the payload is a column."""
    derived: Mapping[str, RowExpression] = field(default_factory=dict)
    """Further columns, and what they are made of."""
    names: FieldNames = field(default_factory=FieldNames)
    """The columns of the payloads' fields."""

    @property
    def option(self) -> str:
        """What error messages call this table's schema of payloads."""
        return f"json of {self.options.name}"


def _delta_partition_column(partition: PartitionBy) -> str:
    """The name of the column by which a Delta table is partitioned: `timestamp_day` for
    `day(timestamp)`, and the column itself without a transform."""
    return f"{partition.column}_{partition.transform}" if partition.transform else partition.column


def lakehouse_format(name: str) -> Format | None:
    """The table format, Delta or Iceberg, that Spark's name of a format stands for, as
    `jetspark-delta`; None for a format that is not ours."""
    suffix = name.casefold().removeprefix(PREFIX)
    return Format(suffix) if suffix != name.casefold() and suffix in tuple(Format) else None


def explain_not_a_table(format_: str) -> str:
    """The error message for a format of Spark's file sink, such as parquet. jetspark does not write
    these, since only Spark reads such a folder correctly."""
    return (
        f"jetspark writes Delta and Iceberg tables; for a folder of {format_} files use Spark's "
        f'own writeStream.format("{format_}") in a program of yours.'
    )


_DEFAULTS = LakehouseOptions(format=Format.DELTA, name=TableName())
