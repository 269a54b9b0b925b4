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

from jetspark.bulk.fixed_range import tail
from jetspark.codecs import debezium
from jetspark.codecs.ddl import arrow_fields
from jetspark.codecs.tolerant import CORRUPT
from jetspark.errors import ConfigError
from jetspark.lakehouse.formats import (
    Format,
    check_library,
    format_of,
    parse_catalog_name,
)
from jetspark.lakehouse.partitions import PartitionBy, join_partitions
from jetspark.lakehouse.row_expressions import RowExpression
from jetspark.lakehouse.table_templates import TableTemplate
from jetspark.reserved_names import check_names
from jetspark.spark import bucket_table
from jetspark.spark.checkpoints import read_checkpoint
from jetspark.spark.derived_columns import DAY, FLAGS, OTHER_FIELDS, day_of, derived_columns
from jetspark.spark.failures import explain
from jetspark.spark.json_payloads import (
    check_only_schema,
    decoded_columns,
    json_columns,
    payload_ddl,
    times_of,
    with_json_options,
)
from jetspark.spark.lakehouse.dead_letter_sink import with_connection
from jetspark.spark.lakehouse.options import (
    FILES,
    PREFIX,
    STOP,
    LakehouseOptions,
    not_a_table,
    parse_lakehouse_options,
    when_following,
)
from jetspark.spark.lakehouse.schema_evolution import check_one_schema, check_versions, has_evolved
from jetspark.spark.lakehouse.start_checks import check_start
from jetspark.spark.lakehouse.table_preparation import check_columns
from jetspark.spark.local_folders import local_path
from jetspark.spark.offsets import from_json
from jetspark.spark.option_values import join_names
from jetspark.spark.options import SourceOptions, parse_options
from jetspark.spark.positions import resolve_ends
from jetspark.spark.queries import (
    CHECKPOINT_IN_TABLE,
    is_in_use,
    source_options,
    start_writing,
)
from jetspark.spark.retry_quarantine import ReprocessResult, as_written, check_records, reprocess
from jetspark.spark.sequence_order import check_order
from jetspark.spark.source_streams import fetch_source_facts, leaders
from jetspark.spark.stream_identity import find_older_copies
from jetspark.spark.table_rows import RowSpec
from jetspark.spark.task_writes import flow_into, register_formats
from jetspark.validation import path_of
from jetspark.wire.documents import decode_document


@dataclass(kw_only=True)
class Ingest:
    """A stream, its table, and the options of the query."""

    options: Mapping[str, str] = field(repr=False)
    """Options of the source: stream, servers, subjects, … (docs/options.md). With `bucket` the
    table has one row for each key, its present value."""
    to: str
    """Folder or URI of the table."""
    partition_by: Sequence[str] = ()
    """Columns, or transforms of columns such as `day(timestamp)` (`lakehouse.partitions`). `day`
    is that of the message's time if no column has this name."""
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
    adopt: bool = False
    """Add the rows to those of a table that this query has not written."""
    format: str | None = None
    """delta or iceberg; if None, that of the table in `to`, and delta for a new one."""
    merge_schema: bool = False
    """Add columns that the table lacks."""
    evolve: bool = False
    """Add a column for each new field of the payloads, and widen types where the format allows it.
    The query ends with SchemaEvolved when the table has grown: start it again (`has_evolved`)."""
    columns: Sequence[str] = ()
    """Further columns: `name=subject[1]`, `name=header[Site]`, `name=hour(timestamp)`."""
    rest_column: str | None = None
    """Column with the fields of each object that `json_schema` lacks, as JSON; None: they are left
    out, or with `evolve` those that can become no column are in `other_fields`."""
    keys: Sequence[str] = ()
    """Columns that tell which rows replace each other: the table has the last one of each key."""
    history: bool = False
    """With `keys`: the table has all rows, and from when to when each was the last one of its key,
    in `valid_from` and `valid_to`."""
    quarantine: str | None = None
    """Table for records that do not become rows, or `stream:NAME`."""
    on_bad_record: str | None = None
    """Without such a table: keep (they are in `_corrupt_record`, the default) or stop."""
    compact_every: int | None = None
    """Commits of a table after which its small files are merged, 0 for never; if None, 100 when
    following, unless rows replace others."""
    table_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further options of format jetspark-delta or jetspark-iceberg (docs/options.md)."""

    @property
    def checkpoint_location(self) -> str:
        """The folder for the progress."""
        if self.checkpoint is not None:
            return self.checkpoint.rstrip("/")
        route = TableTemplate.parse("--to", self.to)
        return f"{self.to.rstrip('/') if route is None else route.root}/{CHECKPOINT_IN_TABLE}"

    @property
    def is_new(self) -> bool:
        """Whether certainly nothing was read yet: neither the table nor the checkpoint is there."""
        folders = (local_path(self.to), local_path(self.checkpoint_location))
        return all(folder is not None and not Path(folder).exists() for folder in folders)

    def check(self) -> None:
        """Check the options as far as possible before Spark is started. Raises ConfigError."""
        if not 0 <= self.interval < float("inf"):
            raise ConfigError(f"--interval must be seconds, 0 or more, not {self.interval:g}.")
        self.check_rows()
        source_options(self.options, follow=self.follow)
        if self.checkpoint is None and local_path(self.to) is None:
            raise ConfigError(f"--checkpoint: name a folder for the progress into {self.to}.")

    def check_rows(self) -> None:
        """Check what does not concern the query's progress. Raises ConfigError."""
        for flag, place in (("--to", self.to), ("--checkpoint", self.checkpoint_location)):
            if not place.strip():
                raise ConfigError(f"{flag} is empty: name a folder.")
            folder = local_path(place)
            if folder is not None and path_of(flag, folder).is_file():
                raise ConfigError(f"{flag} {place} is a file: name a folder.")
        columns = [*self._columns(), *self._values]
        for item in self.partition_by:
            check_names(f"--partition-by {item!r}", [item])
            if PartitionBy.parse(item).column not in columns:
                raise ConfigError(
                    f"--partition-by {item!r}: there is no such column; there are "
                    f"{', '.join(columns)}. Write one of them, a transform such as "
                    "day(timestamp), or a column that --column makes; for an expression in SQL "
                    "write a pipeline with a view (jetspark run)."
                )
        is_bucket = self.source.bucket is not None
        for flag, given in (
            ("--quarantine", self.quarantine),
            ("--on-bad-record", self.on_bad_record),
        ):
            if given is not None and (not self._has_fields or is_bucket):
                raise ConfigError(
                    f"{flag} is for streams with --json or --decode: without a schema every "
                    "payload is a row."
                )
        if self.evolve and (not self._has_fields or is_bucket):
            raise ConfigError("--evolve is for streams with --json or --decode, whose fields grow.")
        if self.evolve:
            check_one_schema("--evolve", self.table)
            check_versions("--evolve", self.source)
        if self.history and not self.keys:
            raise ConfigError("--history goes with --key, the columns that tell whose history.")
        if self.keys and (is_bucket or "keys" in map(str.casefold, self.table_options)):
            other = "--bucket, whose table has its keys" if is_bucket else "--table-option keys"
            raise ConfigError(f"Give either --key or {other}.")
        if self.rest_column is not None and is_bucket:
            raise ConfigError("--rest-column is for streams: leave --bucket out.")
        if is_bucket:
            if self.table.route is not None:
                raise ConfigError(f"--to {self.to}: a bucket has one table; leave the braces out.")
            bucket_table.check_source(self.source)
            bucket_table.check_table_options(self.table_options)
        if self.table.dead_letter_sink is not None:
            self.table.dead_letter_sink.check_not_read(self.source)
        check_library(self.table.format)

    def look_ahead(self) -> None:
        """Check the table as far as possible before Spark is started; changes nothing. Raises
        ConfigError when table, checkpoint and stream do not belong together."""
        self._check_start()
        self._check_columns()
        if self.table.dead_letter_sink is not None:
            self.table.dead_letter_sink.check()

    def _check_columns(self) -> None:
        names = [*self._columns(), *self._values]
        if self.quarantine is not None or self.table.on_bad_record == STOP:
            names.remove(CORRUPT)
        check_columns(self.table, names)

    def look_at_records(self) -> None:
        """As `look_ahead`, for `reprocess`. Raises ConfigError."""
        check_records(self.table)
        self.table = as_written(self.table)
        self._check_columns()

    def reprocess(self) -> ReprocessResult:
        """Try the records of `quarantine` again: those that are rows now are added to the table,
        each once, and the others get their new reasons.

        It needs neither the stream nor the checkpoint, and a query may write the table meanwhile.
        Raises as `look_at_records` and `retry_quarantine.reprocess`, or PipelineError.
        """
        self.look_at_records()
        return reprocess(self.table, self.source, self._rows())

    def _check_start(self) -> None:
        check_start(self.table, self.checkpoint_location)
        check_order(self.table, self.source)
        if self.source.bucket is not None:
            bucket_table.check_key_choice(self.table, self.checkpoint_location)

    def has_nothing_new(self) -> bool:
        """Whether the checkpoint certainly has all that the stream holds, so that a run would read
        nothing. Not for buckets and streams that the query empties. Raises as
        `fetch_source_facts`."""
        folder = local_path(self.checkpoint_location)
        if folder is None or self.source.bucket is not None or self.source.removes:
            return False
        state = read_checkpoint(folder)
        if state.planned is None or state.planned != state.committed or is_in_use(folder):
            return False
        lines = Path(folder, "offsets", str(state.planned)).read_text("utf-8").splitlines()
        if lines[0] != "v1" or len(lines) != 3:
            return False
        read = from_json(decode_document(lines[2], "offset"))
        facts = fetch_source_facts(self.source.for_streaming(), linearizable=True)
        end = resolve_ends(self.source, facts)
        done = read.keys() == facts.keys() and all(
            read[name].created == one.created and end[name] <= read[name].next <= tail(one)
            for name, one in facts.items()
        )
        return done and not leaders(self.source).call(lambda api: find_older_copies(api, read, ""))

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query. Raises as `look_ahead`, or PipelineError with Spark's reason."""
        self._check_start()
        register_formats(spark)
        try:
            format_ = self.table.format
            sink = self._sink_options(format_)
            sink["checkpointLocation"] = self.checkpoint_location
            if self.follow:
                sink |= when_following(self.table)
            of_bucket = {} if self.source.bucket is None else {"presentValues": "true"}
            flow = flow_into(
                spark,
                source_options({**self.reading, **of_bucket}, follow=self.follow),
                self.table,
                sink,
                self._rows(),
            )
            writer = flow.rows.writeStream.format(PREFIX + format_).options(**sink, **flow.sink)
            interval = self.interval if self.follow else None
            return start_writing(spark, writer, self.checkpoint_location, interval)
        except (PySparkException, Py4JError) as error:
            raise explain(error) from error

    def has_evolved(self, query: StreamingQuery) -> bool:
        """Whether the query has ended since its table has got columns for new fields: `start` goes
        on with the same batch."""
        return has_evolved(query)

    @cached_property
    def _values(self) -> dict[str, RowExpression]:
        """Further columns, and what they are made of."""
        rest = self.rest_column
        if rest is None and self.evolve and self._ddl is not None:
            rest = OTHER_FIELDS
        found = derived_columns(
            self.columns,
            rest,
            there=self._columns(),
            schema=self._ddl,
            times=times_of(self.source),
            said=FLAGS,
        )
        if DAY in self.partition_by and DAY not in (*self._columns(), *found):
            found[DAY] = day_of("timestamp" if self.source.bucket is None else "created")
        return found

    def _rows(self) -> RowSpec:
        return RowSpec("--json", self._ddl, self._values)

    def remove_gone_keys(self) -> int:
        """With `bucket`, remove the rows whose keys the bucket no longer has; returns their number.

        A key leaves no change behind when its value expires without a marker, or when its marker
        is removed before the table has read it. Call it after the query's first batch or its end:
        only then is it certain that the bucket is the table's. Raises TableError if others commit
        without a break, and ServerError and ConnectionError as a read.
        """
        if self.source.bucket is None:
            return 0
        return bucket_table.remove_gone_keys(self.source, self.table)

    @cached_property
    def source(self) -> SourceOptions:
        """The options of the source."""
        return parse_options(self.reading)

    @cached_property
    def reading(self) -> Mapping[str, str]:
        """The options of the source, with the schema of JSON payloads."""
        if self.json_schema is None:
            return self.options
        arrow_fields(self.json_schema, "--json")
        check_only_schema(self.options, "--json")
        names = set(map(str.casefold, self.options))
        if "bucket" in names:  # whose values stay as they are, until the rows are made
            return self.options
        return with_json_options(self.options, self.json_schema)

    @property
    def _ddl(self) -> str | None:
        """The schema of JSON payloads in DDL."""
        return self.json_schema or payload_ddl(self.source.decoding)

    def _columns(self) -> Sequence[str]:
        """Without those that are made for partitions."""
        columns = self.source.columns
        if self.source.decoding is not None:
            return decoded_columns(self.source)
        if self.json_schema is None:
            return columns
        return json_columns(self.json_schema, "--json", columns)

    @property
    def _has_fields(self) -> bool:
        """Whether payloads become columns."""
        return self.json_schema is not None or self.source.decoding is not None

    @cached_property
    def table(self) -> LakehouseOptions:
        """The options of the table."""
        name = self.format or self._own_format() or Format.DELTA
        if name != Format.ICEBERG and parse_catalog_name(self.to) is not None:
            raise ConfigError(
                f"--format {name}: {self.to} is a table of a catalog, which is in iceberg; for a "
                f"folder write ./{self.to}."
            )
        if name.casefold() in FILES:
            raise ConfigError(f"--format {name}: {not_a_table(name)}")
        if name not in tuple(Format):
            raise ConfigError(f"--format must be {' or '.join(Format)}, not {name!r}.")
        format_ = Format(name)
        return parse_lakehouse_options(format_, self._sink_options(format_)).for_streaming()

    def _own_format(self) -> str | None:
        """The format that the place tells; None for a new folder or an unknown URI."""
        if parse_catalog_name(self.to) is not None:
            return Format.ICEBERG
        folder = local_path(self.to)
        if folder is None:
            return None
        route = TableTemplate.parse("--to", folder)
        # Of many tables, that of the first one.
        places = [folder] if route is None else iglob("*".join(map(escape, route.texts)))
        return next(filter(None, map(format_of, map(Path, places))), None)

    def _sink_options(self, format_: Format) -> dict[str, str]:
        options = {"writerName": f"the run on {_streams(self.source)}"}
        of_database = self.source.decodes("debezium")
        own: dict[str, str] = {}
        if self.keys:
            own = {"keys": join_names(self.keys), "sequenceBy": "seq"}
        if self.keys and of_database:
            own |= debezium.TABLE_OPTIONS
            if self.quarantine is None:  # what is no event has no key, so it cannot be kept
                own["onBadRecord"] = "stop"
        if self.history:
            own["historyBy"] = debezium.TIME if of_database else "timestamp"
        theirs = set(map(str.casefold, self.table_options))
        options |= {name: value for name, value in own.items() if name.casefold() not in theirs}
        options |= self.table_options
        found = parse_catalog_name(self.to) if format_ is Format.ICEBERG else None
        if found is None:
            options["path"] = self.to
        else:
            options["catalog"], options["table"] = found
        if self.partition_by:
            options["partitionBy"] = join_partitions(self.partition_by)
        if self.source.bucket is not None:
            options |= bucket_table.TABLE_OPTIONS
        if self.quarantine is not None:
            options["quarantineTable"] = self.quarantine
        if self.on_bad_record is not None:
            options["onBadRecord"] = self.on_bad_record
        if self.compact_every is not None:
            options["compactEvery"] = str(self.compact_every)
        for name, given in (
            ("mergeSchema", self.merge_schema),
            ("evolveSchema", self.evolve),
            ("adoptTable", self.adopt),
        ):
            if given:
                options[name] = "true"
        return with_connection(options, self.options)


def _streams(options: SourceOptions) -> str:
    """The streams of a source, as one string for the name of its query in the table."""
    if options.stream_pattern is not None:
        return f"streams like {options.stream_pattern}"
    names = ", ".join(sorted(options.streams))
    if options.keys:  # another choice would leave keys out, or keep them for ever
        return f"{names} (keys {', '.join(sorted(options.keys))})"
    return names
