"""Delta and Iceberg tables out of any DataFrame and back, in batch and streaming, without a JAR."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    NullType,
    StructType,
    YearMonthIntervalType,
)
from tests.spark.conftest import failure
from tests.support.streams import Admin, numbered
from tests.support.table_readers import by_duckdb, column
from tests.support.tasks import batch_writer

from jetspark.errors import ConfigError
from jetspark.server import NatsServer
from jetspark.spark.pipelines.replay import Replay
from jetspark.spark.queries.start import source_options, start_writing
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.tables.formats import Format, open_table
from jetspark.tables.table import TableName

pytestmark = pytest.mark.parametrize("format_", ["delta", "iceberg"])


def numbers(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end, 1, 2).select(
        "id", (F.col("id") % 3).cast("string").alias("kind")
    )


def save(rows: DataFrame, format_: str, table: Path, mode: str = "append", **options: str) -> None:
    rows.write.format(f"jetspark-{format_}").options(**options).mode(mode).save(str(table))


def load(spark: SparkSession, format_: str, table: Path, **options: str) -> DataFrame:
    return spark.read.format(f"jetspark-{format_}").options(**options).load(str(table))


@pytest.mark.full
def test_columns_of_every_kind_come_back_as_they_were(
    spark: SparkSession, format_: str, tmp_path: Path
) -> None:
    rows = spark.range(0, 1000, 1, 3).selectExpr(
        "id",
        "cast(id as int) whole",
        "cast(id as double) / 7 real",
        "id % 2 = 0 even",
        "cast(id as string) text",
        "cast(cast(id as string) as binary) bytes",
        "cast(id as decimal(20, 3)) amount",
        "timestamp_micros(id * 1000001) moment",
        "cast(timestamp_micros(id) as timestamp_ntz) local",
        "date_add(date'2026-01-01', cast(id as int)) day",
        "CASE WHEN id % 3 > 0 THEN array(id, null) END list",
        "map('a', id) pairs",
        "named_struct('x', id, 'y', array('z')) struct",
    )
    save(rows, format_, tmp_path / "table")
    back = load(spark, format_, tmp_path / "table")
    assert back.schema.simpleString() == rows.schema.simpleString()
    assert back.orderBy("id").collect() == rows.orderBy("id").collect()
    assert column(format_, tmp_path / "table", "text") == Counter(str(one) for one in range(1000))
    (first,) = by_duckdb(format_, tmp_path / "table", "SELECT amount, day FROM t WHERE id = 7")
    assert first[0] == Decimal("7.000")


@pytest.mark.full
def test_a_transaction_is_written_once_and_overwriting_leaves_nothing_else(
    spark: SparkSession, format_: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    for _ in range(2):
        save(numbers(spark, 0, 100), format_, table, transactionId="load-1", partitionBy="kind")
    save(numbers(spark, 100, 110), format_, table)
    assert column(format_, table, "id") == Counter(range(110))
    assert sorted(path.name for path in table.rglob("kind=*")) == ["kind=0", "kind=1", "kind=2"]
    save(numbers(spark, 5, 9), format_, table, "overwrite")
    assert column(format_, table, "id") == Counter(range(5, 9))
    if format_ == "delta":
        assert load(spark, format_, table, versionAsOf="2").count() == 110


def test_reading_leaves_out_columns_and_files_that_are_not_wanted(
    spark: SparkSession, format_: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    save(numbers(spark, 0, 99), format_, table, partitionBy="kind")
    reader = spark.read.format(f"jetspark-{format_}").option("prune", "kind = '1'")
    some = reader.schema("id BIGINT").load(str(table))
    assert some.columns == ["id"]
    assert Counter(row.id for row in some.collect()) == Counter(range(1, 99, 3))
    assert load(spark, format_, table, minPartitions="3").rdd.getNumPartitions() == 3
    assert reader.option("prune", "kind = '7'").load(str(table)).count() == 0
    assert "no column 'no'; there are id, kind" in failure(
        lambda: reader.schema("no INT").load(str(table)).collect()
    )


@pytest.mark.full
def test_rows_replace_those_with_the_same_keys(
    spark: SparkSession, format_: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    for changes in (
        [("a", 1, False), ("b", 2, False)],
        [("a", 3, False), ("b", 4, True), ("c", 5, False), ("c", 4, False)],
    ):
        rows = spark.createDataFrame(changes, "kind STRING, n LONG, gone BOOLEAN")
        save(rows, format_, table, keys="kind", sequenceBy="n", applyAsDeletes="gone")
    assert column(format_, table, "n") == Counter([3, 5])
    assert not list(table.rglob("part-*-0.parquet"))  # what tasks wrote for the driver


@pytest.mark.full
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    spark: SparkSession, format_: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    rows = numbers(spark, 0, 10)
    save(rows, format_, table, partitionBy="kind")
    more = rows.withColumn("more", F.lit(1))

    def also(column: str) -> DataFrame:
        return rows.selectExpr("id", "kind", column)

    for said, call in (
        ("no column more: set 'mergeSchema'", lambda: save(more, format_, table)),
        ("did you mean 'partitionBy'", lambda: save(rows, format_, table, partitionsBy="id")),
        ("is for writing", lambda: load(spark, format_, table, mergeSchema="true")),
        ("no .* table at .*none", lambda: load(spark, format_, tmp_path / "none")),
        ("prune", lambda: load(spark, format_, table, prune="kind ==== 1").collect()),
        ("has no (version|snapshot) 77", lambda: load(spark, format_, table, versionAsOf="77")),
        ("'v' of type variant", lambda: save(rows.selectExpr("parse_json('1') v"), format_, table)),
        ("write with mode..append", lambda: save(rows, format_, table, "overwrite", keys="id")),
    ):
        sentence = failure(call)
        assert re.search(said, sentence), sentence
        assert "Traceback" not in sentence
    columns = rows.schema
    in_other_case = StructType().add("ID", "long").add("kind", "string")
    of_text = StructType().add("id", "string").add("kind", "string")
    interval = ArrayType(DayTimeIntervalType())
    for said, schema, options in (
        ("id is int64 in the table and string in the rows", of_text, {}),
        ("'id' and 'ID' have the same name", in_other_case, {"mergeSchema": "true"}),
        ("partitioned by kind, not by id", columns, {"partitionBy": "id"}),
        ("is for streaming queries", columns, {"writerName": "x"}),
        ("is for reading", columns, {"versionAsOf": "1"}),
        ("must be a size of at least 64k", columns, {"targetFileSize": "9"}),
        ("must be hours, days or w", columns, {"keepVersions": "9"}),
        ("version_as_of must be the number", columns, {"versionAsOf": "-1"}),
        ("'t' of type interval", StructType().add("t", interval), {}),
        ("'t' of type interval", StructType().add("t", YearMonthIntervalType()), {}),
        ("'s' of type struct<>", StructType().add("s", StructType()), {}),
        ("'n' of type void", StructType().add("n", NullType()), {}),
        ("The rows have no columns", StructType(), {}),
        ("sequence_by goes with keys", columns, {"sequenceBy": "id"}),
        ("no column 'key'; there are id", columns, {"keys": "key"}),
        ("must be zstd, snappy", columns, {"fileCompression": "snappi"}),
    ):
        with pytest.raises(ConfigError, match=said):
            batch_writer(
                parse_lakehouse_options(
                    Format(format_), {"path": str(table), **options}
                ).for_batch(),
                schema,
            )
    assert column(format_, table, "id") == Counter(range(10))
    save(more, format_, table, mergeSchema="true", keepVersions="2d")
    properties = open_table(Format(format_), TableName(path=str(table))).facts().properties
    assert {"interval 172800 seconds", "172800000"} & set(properties.values())
    assert column(format_, table, "more") == Counter({None: 10, 1: 10})


class Flow:
    """A streaming query from a stream into a table."""

    def __init__(
        self, spark: SparkSession, format_: str, server: NatsServer, stream: str, home: Path
    ) -> None:
        self.spark, self.format, self.server, self.stream = spark, format_, server, stream
        self.table, self.checkpoint = home / "table", home / "checkpoint"

    def writer(self, **options: str) -> DataStreamWriter:
        source = {"servers": self.server.url, "stream": self.stream, "maxOffsetsPerTrigger": "150"}
        given = source_options(source | {"startingOffsets": "earliest"}, follow=False)
        rows = self.spark.readStream.format("jetstream").options(**given).load()
        places = {"path": str(self.table), "checkpointLocation": str(self.checkpoint)}
        return rows.writeStream.format(f"jetspark-{self.format}").options(**places, **options)

    def run(self, **options: str) -> None:
        query = start_writing(self.spark, self.writer(**options), str(self.checkpoint), None)
        try:
            query.awaitTermination()
        finally:
            query.stop()

    @property
    def sequences(self) -> Counter[int]:
        return column(self.format, self.table, "seq")


@pytest.fixture
def flow(
    spark: SparkSession, format_: str, shared_server: NatsServer, admin: Admin, tmp_path: Path
) -> Flow:
    name = admin.stream(300)
    return Flow(spark, format_, shared_server, name, tmp_path)


def once(count: int) -> Counter[int]:
    return Counter(range(1, count + 1))


@pytest.mark.full
def test_a_batch_that_spark_runs_again_is_there_once(flow: Flow, admin: Admin) -> None:
    flow.run(partitionBy="stream")
    assert flow.sequences == once(300)
    # As after a kill between the table's commit and Spark's own.
    for log in (flow.checkpoint / "commits").glob("*1*"):
        log.unlink()
    flow.run()
    assert flow.sequences == once(300)
    admin.fill(numbered(flow.stream, 50))
    flow.run()
    assert flow.sequences == once(350)


@pytest.mark.full
def test_a_lost_checkpoint_is_refused_before_rows_are_written_twice_and_another_one_adds(
    flow: Flow, tmp_path: Path
) -> None:
    flow.run()
    shutil.rmtree(flow.checkpoint)
    sentence = failure(flow.run)
    assert "does not have its checkpoint" in sentence
    assert "'adopt'" in sentence
    assert flow.sequences == once(300)
    shutil.rmtree(flow.checkpoint)
    flow.run(adopt="true")
    assert flow.sequences == Counter(dict.fromkeys(range(1, 301), 2))
    flow.checkpoint = tmp_path / "another"
    flow.run()
    assert flow.sequences == Counter(dict.fromkeys(range(1, 301), 3))


@pytest.mark.full
def test_a_replay_takes_the_rows_of_the_table_and_not_every_file_of_its_folder(
    flow: Flow, admin: Admin, tmp_path: Path
) -> None:
    flow.run()
    first = next(flow.table.rglob("*.parquet"))
    shutil.copy(first, first.with_name("of-a-task-that-failed.parquet"))
    target = f"{flow.stream}_AGAIN"
    admin.create(target, target)
    options = {"servers": flow.server.url, "stream": target, "subject": target}
    replay = Replay(table=str(flow.table), options=options)
    replay.check()
    assert replay.run(flow.spark) == 300
    assert admin.facts(target).messages == 300
    with pytest.raises(ConfigError, match=f"is a table in {flow.format}, .*leave out format"):
        Replay(table=str(flow.table), options=options, format="parquet").check()
