"""Pipelines whose sinks are Delta and Iceberg tables."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.pipelines import pipeline_of
from tests.support.streams import Admin
from tests.support.table_readers import by_duckdb, column

from jetspark.errors import ConfigError, PipelineError
from jetspark.spark.pipelines.pipeline import check_queries, check_tables, start_pipeline
from jetspark.spark.pipelines.pipeline_file import PipelineFile, read_pipeline
from jetspark.spark.queries.progress import QueryProgress


@pytest.fixture
def pipeline(admin: Admin, tmp_path: Path) -> PipelineFile:
    """300 orders into a Delta and an Iceberg table, with different rows."""
    name = admin.stream()
    admin.fill([(name, json.dumps({"n": n, "even": n % 2 == 0}).encode()) for n in range(300)])
    options = 'max_offsets_per_trigger = 100\njson_schema = "n INT, even BOOLEAN"'
    parts = f"""
[views.kept]
sql = "SELECT seq, n, even FROM orders"
[views.some]
sql = "SELECT n FROM kept WHERE even"
[sinks.all]
from = "kept"
format = "jetspark-delta"
path = "{tmp_path}/all"
partition_by = ["even"]
[sinks.even]
from = "some"
format = "jetspark-iceberg"
path = "{tmp_path}/even"
file_compression = "snappy"
"""
    return pipeline_of(admin.url, name, tmp_path, parts, options=options)


def run(pipeline: PipelineFile, spark: SparkSession) -> None:
    check_tables(pipeline)
    for query in start_pipeline(pipeline, spark).values():
        query.awaitTermination(300)


@pytest.mark.full
def test_each_sink_is_exactly_once_and_a_lost_checkpoint_is_refused(
    spark: SparkSession, pipeline: PipelineFile, admin: Admin, tmp_path: Path
) -> None:
    check_queries(pipeline, spark)
    assert not (tmp_path / "all").exists()
    for _ in range(2):
        run(pipeline, spark)
        assert column("delta", tmp_path / "all", "n") == Counter(range(300))
        assert column("iceberg", tmp_path / "even", "n") == Counter(range(0, 300, 2))
    assert by_duckdb("delta", tmp_path / "all", "SELECT count(*) FROM t WHERE even") == [(150,)]
    stream = pipeline.sources["orders"].options["stream"]
    admin.fill([(stream, b'{"n": 300, "even": true}')])
    run(pipeline, spark)
    assert column("delta", tmp_path / "all", "n") == Counter(range(301))
    assert column("iceberg", tmp_path / "even", "n") == Counter(range(0, 301, 2))
    shutil.rmtree(tmp_path / "chk" / "all")
    for attempt in (check_tables, partial(start_pipeline, spark=spark)):
        with pytest.raises(PipelineError, match=r"sink all: .* does not have its checkpoint"):
            attempt(pipeline)
    assert column("delta", tmp_path / "all", "n") == Counter(range(301))


def test_a_sink_that_does_not_fit_its_table_is_reported_by_the_check(
    spark: SparkSession, pipeline: PipelineFile, tmp_path: Path
) -> None:
    spark.range(3).write.format("jetspark-delta").mode("append").save(str(tmp_path / "all"))
    with pytest.raises(PipelineError, match=r"sink all: .* is partitioned by nothing, not by even"):
        check_queries(pipeline, spark)
    with pytest.raises(PipelineError, match=r"sink all: .* has rows that this query did not write"):
        check_tables(pipeline)
    assert column("delta", tmp_path / "all", "id") == Counter(range(3))


def test_tasks_write_the_tables_of_a_stream(
    spark: SparkSession, admin: Admin, tmp_path: Path
) -> None:
    name = admin.stream(under=".>")
    orders = [json.dumps({"region": "eu" if n % 3 else "us", "n": n}).encode() for n in range(88)]
    orders += [b'{"region": "%b", "n": 1, "k":1}' % one for one in (b"eu", b"us")]
    odd = [b'{"region": "eu", "n": "x"}', b"no JSON", b'{"n": 90}']
    odd.append(b'{"n": 1, "n": 2, "region": "eu"}')
    admin.fill([(f"{name}.a", data) for data in (*orders, *odd)])
    tables = """
[sinks.{name}]
from = "orders"
format = "jetspark-delta"
path = "{folder}/{name}/{{region}}"
partition_by = ["day"]
derive = ["site=subject[1]"]
rescued_data_column = "others"
quarantine = "{folder}/{name}_aside"
"""
    sink = tables.format(name="tasks", folder=tmp_path)
    view = '[views.some]\nsql = "SELECT n FROM orders"\n[sinks.noop]\nformat = "noop"'
    options = 'min_partitions = 2\njson_schema = "region STRING, n INT"'
    pipeline = pipeline_of(admin.url, name, tmp_path, sink, view, options=options)
    flows = check_queries(pipeline, spark)
    assert not (tmp_path / "chk").exists()
    figures = {}
    for one, query in start_pipeline(pipeline, spark, flows).items():
        query.awaitTermination(300)
        done = QueryProgress()
        done.update(query)
        figures[one] = (done.rows, done.quarantined)
    assert figures == {"tasks": (91, 3), "noop": (94, 0)}
    columns = "SELECT seq, region, n, day, site, others FROM t ORDER BY 1"
    for table in ("eu", "us"):
        found = by_duckdb("delta", tmp_path / "tasks" / table, columns)
        assert len(found) == {"eu": 60, "us": 31}[table]
        assert {row[4:] for row in found} == {("a", None), ("a", '{"k":1}')}
    aside = 'SELECT seq, data, "column", reason FROM t ORDER BY seq'
    first = by_duckdb("delta", tmp_path / "tasks_aside", aside)
    records = [(91, odd[0], "n"), (92, odd[1], None), (93, odd[2], "region")]
    assert [row[:3] for row in first] == records


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ('file_compression = "snappy"', 'file_compresion = "x"'),
            "mean 'file_compression'",
        ),
        (('file_compression = "snappy"', 'file_compression = "x"'), "zstd, snappy"),
        (('file_compression = "snappy"', 'transaction_id = "x"'), "is for batch writes"),
        (('file_compression = "snappy"', 'version_as_of = "1"'), "unknown key"),
    ],
)
def test_options_are_checked_with_the_file(
    pipeline: PipelineFile, tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(file.read_text("utf-8").replace(*change), "utf-8")
    with pytest.raises(ConfigError, match=re.escape(str(file)) + r":\d+: .*" + sentence):
        read_pipeline(file)
