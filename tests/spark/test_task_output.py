"""What tasks report to the sink: data, only from the query's own tasks, and never executed."""

from __future__ import annotations

import json
import pickle
from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.support.lake import Lake

from jetspark.errors import ConfigError, TableError
from jetspark.spark.failures import explain
from jetspark.spark.source.debezium_schema import add_event_schema
from jetspark.spark.table_sink import task_output
from jetspark.spark.table_sink.schema_evolution import SchemaChange
from jetspark.spark.table_sink.task_output import TaskOutput
from jetspark.tables.new_files import NewFile

SECRET = task_output.make_secret()
FILE = NewFile(
    path="day=2026-01-02/part-00000-0123456789abcdef-0.parquet",
    size=7,
    rows=3,
    partition=(),
    partition_by=("day",),
    spec_id=1,
    sort_order_id=2,
    with_nan=frozenset({"x"}),
    long_texts={"t": (("a", None), ("b", "c"))},
    footer=b"\x00PAR1",
)
VALUES = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)),
    *(st.text(), st.binary(), st.dates(), st.times(), st.datetimes(), st.uuids()),
    st.datetimes(timezones=st.just(UTC)),
    st.decimals(allow_nan=False, allow_infinity=False),
)


def sealed(output: TaskOutput, secret: str = SECRET) -> pa.RecordBatch:
    return task_output.report(output, secret)


@given(st.lists(VALUES), st.text())
def test_an_output_arrives_as_it_was(values: list[Any], table: str) -> None:
    file = replace(FILE, partition=tuple(values), table=table)
    output = TaskOutput((file, FILE), {table: SchemaChange({"a": "BIGINT"}, {"b"})}, 2, 1)
    found = task_output.outputs_in(sealed(output), SECRET)
    assert found == [output]
    assert list(map(type, found[0].files[0].partition)) == list(map(type, values))


def test_values_of_partitions_keep_their_types() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    values: tuple[Any, ...] = (date(1, 1, 1), moment, moment.replace(tzinfo=None), time(1, 2, 3, 4))
    values += (Decimal("-0.10"), UUID(int=7), True, 1, "2026-01-01", b"1")
    output = TaskOutput((replace(FILE, partition=values),), {}, 0)
    (found,) = task_output.outputs_in(sealed(output), SECRET)
    assert repr(found.files[0].partition) == repr(values)


def test_ordinary_rows_report_nothing() -> None:
    for secret in (SECRET, None):
        assert task_output.outputs_in(pa.record_batch({"a": [1]}), secret) == []


@given(st.data())
def test_a_report_that_was_changed_is_refused(data: st.DataObject) -> None:
    batch = sealed(TaskOutput((FILE,), {}, 0))
    report = batch.column(0)[0].as_py()
    content = bytearray(report["sealed"])
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    spoiled = bytes(content)[: data.draw(st.integers(0, len(content)))]
    column = pa.array([{**report, "sealed": spoiled}], batch.column(0).type)
    with pytest.raises(TableError, match="no task of this query"):
        task_output.outputs_in(batch.set_column(0, batch.schema.field(0), column), SECRET)


def test_a_report_of_another_query_is_refused() -> None:
    for secret in (None, "", "0" * 64):
        with pytest.raises(TableError):
            task_output.outputs_in(sealed(TaskOutput((FILE,), {}, 0)), secret)


@pytest.mark.parametrize(
    "path",
    [
        *(
            f"{folder}part-00000-0123456789abcdef-0.parquet"
            for folder in ("/etc/", "../other/", "a/../../", "s3://b/", "./", "a//")
        ),
        *("somebodys.parquet", "part-00000-0123456789abcdef-0.parquet\n", ""),
    ],
)
def test_only_a_new_file_of_the_table_is_taken(path: str) -> None:
    with pytest.raises(TableError, match="no new file of this table"):
        task_output.outputs_in(sealed(TaskOutput((replace(FILE, path=path),), {}, 0)), SECRET)


# -- columns of others that look like a report --------------------------------------------------


class Bomb:
    """Its pickle creates a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def with_reports(spark: SparkSession, marker: Path) -> list[DataFrame]:
    """Rows with a column of our names, whose content is a bomb."""
    content = pickle.dumps(Bomb(marker)).hex()
    names = dict.fromkeys(("_jetspark_files", "_Jetspark_FILES"), "files")
    names[task_output.COLUMN.name] = "sealed"
    values = "named_struct('rows', 1L, 'aside', 0L, '{}', X'{}') {}"
    columns = [values.format(part, content, name) for name, part in names.items()]
    return [spark.range(2).selectExpr("id", column) for column in columns]


@pytest.mark.full
@pytest.mark.tables
@pytest.mark.parametrize("format_", ["jetspark-delta", "jetspark-iceberg"])
def test_a_column_of_a_dataframe_is_no_report(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    """A batch write, a streaming write, and one of rows from a file that somebody else wrote."""
    marker, table = tmp_path / "marker", str(tmp_path / "table")
    for at, rows in enumerate(with_reports(spark, marker)):
        with pytest.raises(PySparkException) as caught:
            rows.write.format(format_).mode("append").save(table)
        assert "reserved" in str(explain(caught.value))
        files = str(tmp_path / f"files-{at}")
        rows.write.parquet(files)
        stream = spark.readStream.schema(rows.schema).parquet(files)
        query = stream.writeStream.format(format_).option("path", table)
        query = query.option("checkpointLocation", str(tmp_path / f"checkpoint-{at}"))
        with pytest.raises((PySparkException, StreamingQueryException), match="reserved"):
            query.trigger(availableNow=True).start().awaitTermination(60)
    assert not marker.exists()
    assert not Path(table).exists()


@pytest.mark.tables
def test_a_field_of_a_publisher_is_no_report(lake: Lake) -> None:
    """An event of Debezium that brings its own schema, whose columns the table would get."""
    marker = lake.folder / "marker"
    inner = [("rows", "int64"), ("aside", "int64"), ("files", "bytes")]
    fields = [{"field": name, "type": kind, "optional": True} for name, kind in inner]
    report = {"field": "_jetspark_files", "type": "struct", "fields": fields, "optional": True}
    text = {"field": "a", "type": "string", "optional": True}
    schema = {"type": "struct", "fields": [text, report]}
    bomb = b64encode(pickle.dumps(Bomb(marker))).decode()
    payload = {"a": "x", "__op": "c", "_jetspark_files": {"rows": 1, "aside": 0, "files": bomb}}
    event = json.dumps({"schema": schema, "payload": payload}).encode()
    lake.fill(("a", event), ("a", event))
    with suppress(ConfigError, StreamingQueryException):
        lake.ingest("table", add_event_schema({**lake.options, "decode": "debezium"}))
    assert not marker.exists()
