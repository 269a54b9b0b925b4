"""A stream becomes a table: the query behind `jetspark ingest`, usable from Python too.

Spark's checkpoint has the position, and the table the number of its last batch, so a killed run
leaves neither a gap nor a repeated row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from glob import escape, iglob
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.errors import ConfigError, named
from jetspark.options.scopes import TableOptions, spark_texts
from jetspark.payloads import debezium
from jetspark.payloads.debezium_events import TIME
from jetspark.payloads.tolerant import CORRUPT
from jetspark.ranges.fixed_range import tail
from jetspark.reserved_names import check_names
from jetspark.spark.checkpoints import finished_offsets, read_checkpoint
from jetspark.spark.failures import explain
from jetspark.spark.local_folders import local_path
from jetspark.spark.pipelines import bucket_table
from jetspark.spark.pipelines.retry_quarantine import (
    ReprocessResult,
    as_written,
    check_records,
    reprocess,
)
from jetspark.spark.pipelines.sequence_order import check_order
from jetspark.spark.pipelines.table_rows import (
    DAY,
    OTHER_FIELDS,
    RowSpec,
    day_of,
    derived_columns,
    row_columns,
    with_json_schema,
)
from jetspark.spark.pipelines.task_writes import flow_into, register_formats
from jetspark.spark.queries.checkpoint_lock import CHECKPOINT_IN_TABLE, is_in_use
from jetspark.spark.queries.start import source_options, start_writing
from jetspark.spark.source.offsets import from_json
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.payload_columns import (
    payload_ddl,
    timestamp_fields,
)
from jetspark.spark.source.positions import resolve_ends
from jetspark.spark.source.source_streams import fetch_source_facts, leaders
from jetspark.spark.source.stream_identity import find_older_copies
from jetspark.spark.source.stream_reader import JetStreamStreamReader
from jetspark.spark.table_sink.dead_letter_sink import with_connection
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.options import (
    FILES,
    PREFIX,
    STOP,
    LakehouseOptions,
    default_compaction,
    explain_not_a_table,
)
from jetspark.spark.table_sink.schema_evolution import check_one_schema, check_versions, has_evolved
from jetspark.spark.table_sink.start_checks import check_start
from jetspark.spark.table_sink.table_preparation import check_columns
from jetspark.tables.arguments import parse_catalog_name
from jetspark.tables.formats import Format, check_library, format_of
from jetspark.tables.partitions import PartitionBy, join_partitions
from jetspark.tables.row_expressions import RowExpression
from jetspark.tables.table_templates import TableTemplate
from jetspark.validation import path_of
from jetspark.wire.documents import decode_document


@dataclass(kw_only=True)
class Ingest:
    """A query that writes a stream, or a bucket, into a table: what to read, where to write, and
    how. `check` needs no Spark, `start` runs it."""

    options: Mapping[str, str] = field(repr=False)
    """Options of the source: stream, servers, subjects, … (docs/options.md). With `bucket` the
    table has one row for each key, its present value."""
    to: str
    """Folder or URI of the table."""
    table_options: TableOptions = field(default_factory=TableOptions)
    """Options of the table. `partition_by` may name `day`, which is that of the message's time
    if no column has this name; with `evolve` the query ends with SchemaEvolved when the table has
    grown: start it again (`has_evolved`)."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further options of the table's format: storage.… and quarantine.…, as texts."""
    json_schema: str | None = None
    """Schema of JSON payloads as Spark DDL, `carrier STRING, delay DOUBLE`; its fields become
    columns in place of `data`. A payload that does not fit as a whole is kept in
    `_corrupt_record`, too."""
    checkpoint: str | None = None
    """Folder for the progress; `<to>/_checkpoint` if None."""
    follow: bool = False
    """Run until stopped, instead of ending with the messages that were there at the start."""
    interval: float = 5.0
    """Seconds from one batch to the next when following; 0: without a pause."""
    format: str | None = None
    """delta or iceberg; if None, that of the table in `to`, and delta for a new one."""
    derive: Sequence[str] = ()
    """Further columns: `name=subject[1]`, `name=header[Site]`, `name=hour(timestamp)`."""
    rescued_data_column: str | None = None
    """Column with the fields of each object that `json_schema` lacks, as JSON; None: they are left
    out, or with `evolve` those that can become no column are in `other_fields`."""
    history: bool = False
    """Keep all rows of a key; `valid_from` and `valid_to` say when each was its last one. Needs
    `table_options.keys`."""

    @property
    def checkpoint_location(self) -> str:
        """The folder of the query's checkpoint: as given, or else within the table's folder, or
        the folder above the tables of a template, as `lake/{region}`."""
        if self.checkpoint is not None:
            return self.checkpoint.rstrip("/")
        route = TableTemplate.parse(named("path"), self.to)
        return f"{self.to.rstrip('/') if route is None else route.root}/{CHECKPOINT_IN_TABLE}"

    @property
    def is_new(self) -> bool:
        """Whether the query has certainly read nothing yet: neither its table nor its checkpoint
        exists. False if one of them is not on this machine."""
        folders = (local_path(self.to), local_path(self.checkpoint_location))
        return all(folder is not None and not Path(folder).exists() for folder in folders)

    def check(self) -> None:
        """Check the options of the query as far as that is possible before Spark is started. Raises
        ConfigError."""
        if not 0 <= self.interval < float("inf"):
            raise ConfigError(
                f"must be seconds, 0 or more, not {self.interval:g}.", option="interval"
            )
        self.check_rows()
        source_options(self.options, follow=self.follow)
        if self.checkpoint is None and local_path(self.to) is None:
            raise ConfigError(
                f": name a folder for the progress into {self.to}.", option="checkpoint"
            )

    def check_rows(self) -> None:
        """Check the options that say what the rows are and where they go, which `reprocess` needs,
        too; not those of the query's run. Raises ConfigError."""
        for option, location in (("path", self.to), ("checkpoint", self.checkpoint_location)):
            if not location.strip():
                raise ConfigError("is empty: name a folder.", option=option)
            folder = local_path(location)
            if folder is not None and path_of(named(option), folder).is_file():
                raise ConfigError(f"{location} is a file: name a folder.", option=option)
        self._check_partitions()
        self._check_options_of_fields()
        if self.history and not self.table_options.keys:
            raise ConfigError(
                f"goes with {named('keys')}, the columns that tell whose history.", option="history"
            )
        if self._is_bucket:
            self._check_bucket()
        if self.table.dead_letter_sink is not None:
            self.table.dead_letter_sink.check_not_read(self.source)
        check_library(self.table.format)

    def _check_partitions(self) -> None:
        """Raise ConfigError if `partition_by` names a column that the rows do not have."""
        columns = self._row_columns()
        for item in self.table_options.partition_by or ():
            check_names(f"{named('partition_by')} {item!r}", [item])
            if PartitionBy.parse(item).column not in columns:
                raise ConfigError(
                    f"{named('partition_by')} {item!r}: there is no such column; there are "
                    f"{', '.join(columns)}. Write one of them, a transform such as "
                    f"day(timestamp), or a column that {named('derive')} makes; for an "
                    "expression in SQL write a pipeline with a view (jetspark run)."
                )

    def _check_options_of_fields(self) -> None:
        """Raise ConfigError for the options quarantine, on_bad_record and evolve, which need a
        stream whose payloads are decoded into columns, if there is none; and for evolve, if the
        schema of payloads is fixed."""
        scope = self.table_options
        has_fields = self.json_schema is not None or self.source.decoding is not None
        if not has_fields or self._is_bucket:
            of_streams = f"is for streams with {named('json_schema')} or {named('decode')}"
            for option in ("quarantine", "on_bad_record"):
                if getattr(scope, option) is not None:
                    raise ConfigError(
                        f"{of_streams}: without a schema every payload is a row.", option=option
                    )
            if scope.evolve:
                raise ConfigError(f"{of_streams}, whose fields grow.", option="evolve")
        if scope.evolve:
            check_one_schema(self.table)
            check_versions(self.source)

    def _check_bucket(self) -> None:
        """Raise ConfigError for options that do not go with a bucket, whose table has one row for
        each key."""
        if self.rescued_data_column is not None:
            raise ConfigError(
                f"is for streams: leave {named('bucket')} out.", option="rescued_data_column"
            )
        if self.table.route is not None:
            raise ConfigError(
                f"{self.to}: a bucket has one table; leave the braces out.", option="path"
            )
        bucket_table.check_source(self.source)
        bucket_table.check_table_options(spark_texts(self.table_options))

    def check_preconditions(self) -> None:
        """Check that the table, the checkpoint and the stream belong together, and that the table
        can have the columns of the rows, before Spark is started; changes nothing. Raises
        ConfigError."""
        self._check_start()
        self._check_columns()
        if self.table.dead_letter_sink is not None:
            self.table.dead_letter_sink.check()

    def _check_columns(self) -> None:
        """Check that an existing table has the columns of the rows, or may get them. Raises
        ConfigError."""
        columns = self._row_columns()
        # Then a payload that cannot be decoded becomes no row, so no table has this column for it.
        if self.table_options.quarantine is not None or self.table.on_bad_record == STOP:
            columns.remove(CORRUPT)
        check_columns(self.table, columns)

    def check_reprocess(self) -> None:
        """Check that `reprocess` can be called: the quarantine and the table exist, and the options
        fit them. Options of the table that are not set become those by which its query writes it.
        Raises ConfigError."""
        check_records(self.table)
        self.table = as_written(self.table)
        self._check_columns()

    def reprocess(self) -> ReprocessResult:
        """Decode the records of the table's quarantine again: those that are rows now are added to
        the table, each once, and the others get their new reasons.

        It needs neither the stream nor the checkpoint, and a query may write the table meanwhile.
        Raises as `check_reprocess` and `retry_quarantine.reprocess`, or PipelineError.
        """
        self.check_reprocess()
        return reprocess(self.table, self.source, self._row_spec())

    def _check_start(self) -> None:
        """Check that the table, the query's checkpoint, and the stream or bucket belong together:
        each has what the others say was read. Raises ConfigError."""
        check_start(self.table, self.checkpoint_location)
        check_order(self.table, self.source)
        if self._is_bucket:
            bucket_table.check_key_choice(self.table, self.checkpoint_location)

    def has_nothing_new(self) -> bool:
        """Whether a run would certainly read nothing, since the query's checkpoint has the end of
        each stream: then Spark need not be started.

        False if that is not certain; always for a bucket, and for a stream from which the query
        removes what it has read. Raises as `fetch_source_facts`.
        """
        folder = local_path(self.checkpoint_location)
        if folder is None or self._is_bucket or self.source.reads_by_direct_gets:
            return False
        state = read_checkpoint(folder)
        if state.planned is None or state.planned != state.committed or is_in_use(folder):
            return False
        # Spark's file of a batch's offsets: a version, its own metadata, one line for the source.
        lines = Path(folder, "offsets", str(state.planned)).read_text("utf-8").splitlines()
        if lines[0] != "v1" or len(lines) != 3:
            return False
        read = from_json(decode_document(lines[2], "offset"))
        facts = fetch_source_facts(self.source.for_streaming(), linearizable=True)
        end = resolve_ends(self.source, facts)
        # Each stream is still the one that was read (`created`), nothing of it is left to read
        # (end <= next), and it is not shorter than what was read (next <= tail).
        if read.keys() != facts.keys() or not all(
            read[name].created == stream.created and end[name] <= read[name].next <= tail(stream)
            for name, stream in facts.items()
        ):
            return False
        # A run would report a stream that was replaced by an older copy, such as a backup.
        return not leaders(self.source).call(lambda api: find_older_copies(api, read))

    def trim(self) -> None:
        """Remove from the streams what the checkpoint has of the last batch, if `trim` says so:
        Spark would only tell the source of it with the next one. Call it when no query runs. Does
        nothing for a checkpoint that is not on this machine. Raises as `fetch_source_facts`."""
        folder = local_path(self.checkpoint_location)
        if folder is None or not self.source.trim:
            return
        finished = finished_offsets(folder)
        if finished is not None and finished.is_committed:
            offset = decode_document(finished.texts[0], "offset")
            JetStreamStreamReader(self.source).commit(offset)

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the streaming query that writes the stream into the table, and return it. Raises as
        `check_preconditions`, or PipelineError with a reason."""
        self._check_start()
        register_formats(spark)
        try:
            format_ = self.table.format
            sink = self._sink_options(format_)
            sink["checkpointLocation"] = self.checkpoint_location
            if self.follow:
                sink |= default_compaction(self.table)
            reading = {**self.reading, "presentValues": "true"} if self._is_bucket else self.reading
            flow = flow_into(
                spark,
                options=source_options(reading, follow=self.follow),
                table=self.table,
                sink=sink,
                spec=self._row_spec(),
            )
            writer = flow.rows.writeStream.format(PREFIX + format_).options(**sink, **flow.sink)
            interval = self.interval if self.follow else None
            return start_writing(spark, writer, self.checkpoint_location, interval)
        except (PySparkException, Py4JError) as error:
            raise explain(error) from error

    def has_evolved(self, query: StreamingQuery) -> bool:
        """Whether the query has ended only because its table has got columns for new fields of
        payloads (`evolve`): then call `start` again, which goes on with the same batch."""
        return has_evolved(query)

    @property
    def _is_bucket(self) -> bool:
        """Whether the source is a key-value bucket, whose table has one row for each key."""
        return self.source.bucket is not None

    def _row_columns(self) -> list[str]:
        """Names of the columns of the table's rows: of the message, of its payload, and derived."""
        return [*row_columns(self.source, self.json_schema), *self._derived]

    def _row_spec(self) -> RowSpec:
        """What tasks need to make rows of messages: the payloads' schema and derived columns."""
        option = named("json_schema")
        return RowSpec(option=option, ddl=self._payload_ddl, derived=self._derived)

    @property
    def _payload_ddl(self) -> str | None:
        """The schema of JSON payloads as Spark DDL, from `json_schema` or the source's options;
        None if payloads are not decoded, or are not JSON."""
        return self.json_schema or payload_ddl(self.source.decoding)

    @cached_property
    def _derived(self) -> dict[str, RowExpression]:
        """The derived columns of the rows, and the expressions for their values: those of `derive`,
        the rescued data column, and `day` if the table is partitioned by it."""
        rescued, partition_by = self.rescued_data_column, self.table_options.partition_by or ()
        if rescued is None and self.table_options.evolve and self._payload_ddl is not None:
            rescued = OTHER_FIELDS
        columns = row_columns(self.source, self.json_schema)
        derived = derived_columns(
            self.derive,
            rescued,
            columns=columns,
            schema=self._payload_ddl,
            timestamps=timestamp_fields(self.source),
        )
        if DAY in partition_by and DAY not in (*columns, *derived):
            derived[DAY] = day_of("created" if self._is_bucket else "timestamp")
        return derived

    def remove_gone_keys(self) -> int:
        """Remove the table's rows whose keys the bucket no longer has; returns their number, 0 for
        a stream.

        A key leaves no change behind when its value expires without a marker, or when its marker
        is removed before the table has read it. Call it after the query's first batch or its end:
        only then is it certain that the bucket is the table's. Raises TableError if others commit
        without a break, and ServerError and ConnectionError as a read.
        """
        if not self._is_bucket:
            return 0
        return bucket_table.remove_gone_keys(self.source, self.table)

    @cached_property
    def source(self) -> SourceOptions:
        """The options of the stream or bucket that is read, parsed. Raises ConfigError."""
        return parse_options(self.reading)

    @cached_property
    def reading(self) -> Mapping[str, str]:
        """The options of the source as texts, with `json_schema` as one of them."""
        if self.json_schema is None:
            return self.options
        return with_json_schema(self.options, self.json_schema)

    @cached_property
    def table(self) -> LakehouseOptions:
        """The options of the table, parsed, in the format that is given or that the existing table
        has, or else Delta. Raises ConfigError."""
        name = self.format or self._detect_format() or Format.DELTA
        if name != Format.ICEBERG and parse_catalog_name(self.to) is not None:
            raise ConfigError(
                f"{name}: {self.to} is a table of a catalog, which is in iceberg; for a "
                f"folder write ./{self.to}.",
                option="format",
            )
        if name.casefold() in FILES:
            raise ConfigError(f"{name}: {explain_not_a_table(name)}", option="format")
        if name not in tuple(Format):
            raise ConfigError(f"must be {' or '.join(Format)}", option="format", value=name)
        format_ = Format(name)
        return parse_lakehouse_options(format_, self._sink_options(format_)).for_streaming()

    def _detect_format(self) -> str | None:
        """The format of the table that exists in `to`, or of one of a template's tables; None if
        none exists, or if it is not on this machine."""
        if parse_catalog_name(self.to) is not None:
            return Format.ICEBERG
        folder = local_path(self.to)
        if folder is None:
            return None
        route = TableTemplate.parse(named("path"), folder)
        folders = [folder] if route is None else iglob("*".join(map(escape, route.texts)))
        formats = (format_of(Path(folder)) for folder in folders)
        return next((format_ for format_ in formats if format_ is not None), None)

    def _sink_options(self, format_: Format) -> dict[str, str]:
        """The options of the table as texts, by their names in Spark. Later ones win: defaults that
        follow from the source, then the user's, then those that a bucket's table must have."""
        scope = self.table_options
        options = {"writerName": f"the run on {_describe_streams(self.source)}"}
        of_database = self.source.decodes("debezium")  # change events of a database
        if scope.keys:
            options["sequenceBy"] = "seq"
        if scope.keys and of_database:
            options |= debezium.TABLE_OPTIONS
            if scope.quarantine is None:  # what is no event has no key, so it cannot be kept
                options["onBadRecord"] = "stop"
        if self.history:
            options["historyBy"] = TIME if of_database else "timestamp"
        options |= spark_texts(scope)
        catalog = parse_catalog_name(self.to) if format_ is Format.ICEBERG else None
        if catalog is None:
            options["path"] = self.to
        else:
            options["catalog"], options["table"] = catalog
        if scope.partition_by:
            options["partitionBy"] = join_partitions(scope.partition_by)
        if self._is_bucket:
            options |= bucket_table.TABLE_OPTIONS
        options |= self.storage
        return with_connection(options, self.options)


def _describe_streams(options: SourceOptions) -> str:
    """Describe the streams of a source in a few words, as a part of the name under which its query
    writes to the table. Another name is another query, which needs a table of its own."""
    if options.stream_pattern is not None:
        return f"streams like {options.stream_pattern}"
    names = ", ".join(sorted(options.streams))
    if options.keys:  # a query with other keys of the bucket is another one (`check_key_choice`)
        return f"{names} (keys {', '.join(sorted(options.keys))})"
    return names
