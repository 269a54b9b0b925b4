"""Pipelines whose sinks are Delta and Iceberg tables."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Admin
from tests.support.table_readers import by_duckdb, column

from jetspark.errors import ConfigError, PipelineError
from jetspark.spark.lag import Progress
from jetspark.spark.pipeline import check_queries, check_tables, start
from jetspark.spark.pipeline_file import PipelineFile, read_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from jetspark.server import NatsServer


@pytest.fixture
def pipeline(
    shared_server: NatsServer, admin: Admin, unique: Callable[[str], str], tmp_path: Path
) -> PipelineFile:
    """300 orders into a Delta and an Iceberg table, with different rows."""
    name = unique("FLOWS")
    admin.create(name, name)
    admin.fill([(name, json.dumps({"n": n, "even": n % 2 == 0}).encode()) for n in range(300)])
    file = tmp_path / "flow.toml"
    file.write_text(
        f"""
checkpoint = "{tmp_path}/chk"
[sources.orders]
servers = "{shared_server.url}"
stream = "{name}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 100
json = "n INT, even BOOLEAN"
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
compression = "snappy"
""",
        "utf-8",
    )
    return read_pipeline(file)


def run(pipeline: PipelineFile, spark: SparkSession) -> None:
    check_tables(pipeline)
    for query in start(pipeline, spark).values():
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
    for attempt in (check_tables, partial(start, spark=spark)):
        with pytest.raises(
            PipelineError, match=r"sink all: .* does not have its checkpoint and wo"
        ):
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


def of_stream(folder: Path, server: NatsServer, stream: str, more: str) -> PipelineFile:
    file = folder / "flow.toml"
    file.write_text(
        f"""
checkpoint = "{folder}/chk"
[sources.orders]
servers = "{server.url}"
stream = "{stream}"
startingOffsets = "earliest"
minPartitions = 2
json = "region STRING, n INT"
{more}
""",
        "utf-8",
    )
    return read_pipeline(file)


def test_tasks_write_the_tables_of_a_stream_as_spark_does(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    name = unique("FLOWS")
    admin.create(name, f"{name}.>")
    orders = [json.dumps({"region": "eu" if n % 3 else "us", "n": n}).encode() for n in range(88)]
    orders += [b'{"region": "%b", "n": 1, "k":1}' % one for one in (b"eu", b"us")]
    odd = [
        b'{"region": "eu", "n": "x"}',
        b"no JSON",
        b'{"n": 90}',
        b'{"n": 1, "n": 2, "region": "eu"}',
    ]
    admin.fill([(f"{name}.a", data) for data in (*orders, *odd)])
    tables = """
[sinks.{name}]
from = "orders"
format = "jetspark-delta"
path = "{folder}/{name}/{{region}}"
partition_by = ["day"]
columns = ["site=subject[1]"]
rest_column = "others"
quarantineTable = "{folder}/{name}_aside"
through_spark = {through}
"""
    sinks = {"tasks": "false", "spark": "true"}
    more = [tables.format(name=one, folder=tmp_path, through=way) for one, way in sinks.items()]
    view = '[views.some]\nsql = "SELECT n FROM orders"\n[sinks.noop]\nformat = "noop"'
    pipeline = of_stream(tmp_path, shared_server, name, "\n".join([*more, view]))
    flows = check_queries(pipeline, spark)
    ways = {one: flow.direct for one, flow in flows.items()}
    assert ways == {"tasks": True, "spark": False, "noop": False}
    through = check_queries(replace(pipeline, through_spark=True), spark)
    assert not any(flow.direct for flow in through.values())
    assert not (tmp_path / "chk").exists()
    figures = {}
    for one, query in start(pipeline, spark, flows).items():
        query.awaitTermination(300)
        done = Progress()
        done.update(query)
        figures[one] = (done.rows, done.aside)
    assert figures == {"tasks": (91, 3), "spark": (91, 3), "noop": (94, 0)}
    for table in ("eu", "us"):
        found = [
            by_duckdb(
                "delta",
                tmp_path / one / table,
                "SELECT seq, region, n, day, site, others FROM t ORDER BY 1",
            )
            for one in sinks
        ]
        assert found[0] == found[1]
        assert len(found[0]) == {"eu": 60, "us": 31}[table]
        assert {row[4:] for row in found[0]} == {("a", None), ("a", '{"k":1}')}
    aside = 'SELECT seq, data, "column", reason FROM t ORDER BY seq'
    first, second = (by_duckdb("delta", tmp_path / f"{one}_aside", aside) for one in sinks)
    assert first == second
    assert [row[:3] for row in first] == [
        (91, odd[0], "n"),
        (92, odd[1], None),
        (93, odd[2], "region"),
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('compression = "snappy"', 'compresion = "x"'), "did you mean 'compression'"),
        (('compression = "snappy"', 'compression = "x"'), "zstd, snappy"),
        (('compression = "snappy"', 'transactionId = "x"'), "is for batch writes"),
        (('compression = "snappy"', 'versionAsOf = "1"'), "is for reading"),
    ],
)
def test_options_are_checked_with_the_file(
    pipeline: PipelineFile, tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    file = tmp_path / "flow.toml"
    file.write_text(file.read_text("utf-8").replace(*change), "utf-8")
    with pytest.raises(ConfigError, match=re.escape(str(file)) + r":\d+: .*" + sentence):
        read_pipeline(file)
