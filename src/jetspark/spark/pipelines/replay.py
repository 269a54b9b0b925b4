"""Turns a table into messages: the batch write behind `jetspark replay`, also for Python."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, MapType, StringType

from jetspark.errors import ConfigError, named
from jetspark.nearest import did_you_mean
from jetspark.payloads.tolerant import CORRUPT
from jetspark.spark.failures import explain
from jetspark.spark.local_folders import local_path
from jetspark.spark.pipelines.task_writes import register_formats
from jetspark.spark.source.payload_columns import METADATA_COLUMNS
from jetspark.spark.stream_sink.options import parse_sink_options
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.options import FILES, PREFIX, lakehouse_format
from jetspark.stream_writes.exactly_once import ExactlyOnceWriter
from jetspark.tables.arguments import parse_catalog_name
from jetspark.tables.formats import Format, check_library, format_of
from jetspark.validation import path_of

T = TypeVar("T")

_WITH_MICROSECONDS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Spark's formats of times in JSON have milliseconds."""
_POSITION = re.compile(r";? line \d+ pos \d+;?\s*$")
_MAX_SEARCHED = 1000
"""Files and folders that are looked at to find out whether a folder has a table."""
_WILDCARDS = frozenset("*?[{")


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A batch write that publishes the rows of a table as messages of a stream: which rows, with
    which subjects and payloads. `check` needs no Spark, `run` publishes."""

    table: str
    """Folder or URI of the table."""
    options: Mapping[str, str] = field(repr=False)
    """Options of the sink: stream, servers, guarantee, … (docs/guide-spark-writing.md)."""
    format: str | None = None
    """Spark's name of the format, or delta, iceberg; None: that of the table in the folder, else
    parquet.
    """
    subject: str | None = None
    """Spark SQL for each row's subject; None: the column `subject`."""
    data: str | None = None
    """Spark SQL for the payload; None: the column `data`, or JSON of the row's own columns."""
    msg_id: str | None = None
    """Spark SQL for the message id, for guarantee effectively-once."""
    where: str | None = None
    """Spark SQL: only these rows."""
    table_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options for reading the table: storage.… and versionAsOf of Delta and Iceberg, or Spark's."""
    order_by: str | None = None
    """The column in whose order messages are published, one after the other."""

    def check(self) -> None:
        """Check the table's name and options as far as possible before Spark is started. Raises
        ConfigError."""
        if (folder := local_path(self.table)) is not None:
            path_of("table", folder)
        own = lakehouse_format(self._format)
        if own is not None:
            check_library(own)
            parse_lakehouse_options(own, self._reader_options).for_reading()
            self._check_own_table(own)
        is_one_path = "://" not in self.table and not _WILDCARDS & set(self.table)
        path = Path(self.table.removeprefix("file:"))
        if self._format.casefold() in FILES and is_one_path:
            if not path.exists():
                raise ConfigError(
                    f"There is no file or folder {path.absolute()}: give the folder or URI of a "
                    "table, or catalog:namespace.table of an Iceberg catalog."
                )
            if (table_format := format_of(path)) is not None:
                raise ConfigError(
                    f"{self.table} is a table in {table_format}, whose folder also has files that "
                    f"are not rows of it: leave out {named('format')}."
                )
            if self.format is None and _lacks_parquet(path):
                raise ConfigError(
                    f"There is no table in {self.table}, neither Delta nor Iceberg nor Parquet "
                    f"files: name another folder, or the {named('format')} of its files."
                )

    def _check_own_table(self, format_: Format) -> None:
        """Raise ConfigError for a folder on this machine without a table of this format."""
        if parse_catalog_name(self.table) is not None and format_ is Format.ICEBERG:
            return
        folder = local_path(self.table)
        if folder is not None and format_of(Path(folder)) is not format_:
            raise ConfigError(f"There is no {format_.capitalize()} table at {self.table}.")

    @property
    def _format(self) -> str:
        """Spark's name of the table's format: as given, or else that of the table that exists in
        the folder, or else parquet."""
        if self.format is None:
            if parse_catalog_name(self.table) is not None:
                return PREFIX + Format.ICEBERG
            folder = local_path(self.table)
            table_format = None if folder is None else format_of(Path(folder))
            return "parquet" if table_format is None else PREFIX + table_format
        folded = self.format.casefold()
        return PREFIX + folded if folded in tuple(Format) else self.format

    @property
    def _reader_options(self) -> dict[str, str]:
        """The options with which spark.read reads the table: its path, or its catalog and name, and
        those of the user. Raises ConfigError."""
        is_iceberg = self._format == PREFIX + Format.ICEBERG
        name = parse_catalog_name(self.table) if is_iceberg else None
        if name is None:
            return {"path": self.table, **self.table_options}
        return {"catalog": name[0], "table": name[1], **self.table_options}

    def already(self) -> int | None:
        """Ask the stream whether an earlier run has published all rows already: returns their
        number, or None if not, or if the option `transactionId` is not set, so that nothing
        tells."""
        options = parse_sink_options(self.options).for_batch()
        if options.transaction_id is None:
            return None
        writer = ExactlyOnceWriter(
            options.connection,
            options.stream,
            options.transaction_id,
            timeout=options.publish_timeout,
        )
        return writer.stored(0)  # a batch write is batch 0 of its transaction

    def run(self, spark: SparkSession) -> int:
        """Publish the rows of the table as messages; returns their number. Raises ConfigError, and
        PipelineError."""
        register_formats(spark)
        seen = Observation()
        try:
            table = spark.read.format(self._format).options(**self._reader_options).load()
            rows = self.messages(table).observe(seen, F.count(F.lit(1)).alias("rows"))
            rows.write.format("jetstream").options(**dict(self.options)).mode("append").save()
            return int(seen.get["rows"])
        except (PySparkException, Py4JError) as error:
            raise explain(error) from error

    def messages(self, table: DataFrame) -> DataFrame:
        """Turn rows of the table into messages, as rows for format jetstream: payload, and if there
        are any, subject, headers and message id. Raises ConfigError."""
        if self.where is not None:
            condition = self.where
            table = _run("rows", condition, lambda: table.where(condition))
        if self.order_by is not None:
            if self.order_by not in table.columns:
                hint = did_you_mean(self.order_by, table.columns)
                raise ConfigError(f"The table has no column {self.order_by!r} to order by{hint}")
            # One partition, since there is no order across several.
            table = table.repartition(1).sortWithinPartitions(self.order_by)
        payload = self._payload(table)
        columns = [payload.alias("data")]
        if self.subject is not None:
            subject = _expression(table, "subject", self.subject)
            columns.append(subject.cast("string").alias("subject"))
        elif "subject" in table.columns and "subject" not in map(str.casefold, self.options):
            columns.append(F.col("subject"))
        if "headers" in table.columns:
            columns.append(self._headers(table, payload))
        if self.msg_id is not None:
            msg_id = _expression(table, "msg_id", self.msg_id)
            columns.append(msg_id.cast("string").alias("msg_id"))
        return table.select(*columns)

    def _payload(self, table: DataFrame) -> Column:
        """The payload of each row's message: the expression `data`, or else the column `data`, or
        else JSON of all columns that are no metadata of a message. Raises ConfigError if there is
        no such column."""
        if self.data is not None:
            return _expression(table, "data", self.data)
        if "data" in table.columns:
            return F.col("data")
        own = [name for name in table.columns if name not in METADATA_COLUMNS and name != CORRUPT]
        if not own:
            raise ConfigError(
                "The table has no column that could be a payload: name one with data."
            )
        json = F.to_json(F.struct(*(F.col(f"`{name}`") for name in own)), _WITH_MICROSECONDS)
        if CORRUPT not in table.columns:
            return json
        # A payload that could not be decoded when it was read is published as it was.
        return F.coalesce(F.col(CORRUPT), json)

    def _headers(self, table: DataFrame, payload: Column) -> Column:
        """The headers of each row's message, from the column `headers`. Where the payload is a text
        they do not have Content-Encoding, since only bytes that are still as they were read may be
        compressed."""
        headers, compression = F.col("headers"), "content-encoding"
        if isinstance(table.schema["headers"].dataType, MapType):
            without = F.map_filter(headers, lambda key, _: F.lower(key) != compression)
        else:
            without = F.filter(headers, lambda pair: F.lower(pair["key"]) != compression)
        return F.when(self._is_text(table, payload), without).otherwise(headers).alias("headers")

    def _is_text(self, table: DataFrame, payload: Column) -> Column:
        """A boolean column: whether a row's payload is a text, whose headers need not say how the
        bytes of its first message were packed; false for those bytes themselves.

        `payload`: the column that becomes the payload; `self.data`: its name, if the user chose it.
        """
        types = {column.name: column.dataType for column in table.schema}
        # Without a column `data`, the payload is what could not be decoded, as bytes, or else JSON.
        if self.data is None and "data" not in types and types.get(CORRUPT) == BinaryType():
            return F.col(CORRUPT).isNull()
        return F.lit(table.select(payload).schema[0].dataType == StringType())


def _lacks_parquet(folder: Path) -> bool:
    """Whether a folder certainly has no Parquet file; not certain for one with very many files."""
    seen = 0
    for _, _, files in os.walk(folder):
        seen += 1 + len(files)
        if seen > _MAX_SEARCHED or any(name.endswith(".parquet") for name in files):
            return False
    return folder.is_dir()


def _expression(table: DataFrame, option: str, sql: str) -> Column:
    """Parse a SQL expression over the columns of a table. `option`: the option that has it, which a
    ConfigError names."""

    def parse() -> Column:
        """Parse the SQL, and check that the table has the columns that it names."""
        column = F.expr(sql)
        table.select(column)  # only here does Spark look up the columns
        return column

    return _run(option, sql, parse)


def _run(option: str, sql: str, action: Callable[[], T]) -> T:
    """Return the result of `action`, which lets Spark parse `sql`. An error of Spark becomes a
    ConfigError that names the option and has no position in the SQL."""
    try:
        return action()
    except PySparkException as error:
        reason = _POSITION.sub("", str(explain(error)))
        raise ConfigError(f"{sql!r}: {reason}", option=option) from error
