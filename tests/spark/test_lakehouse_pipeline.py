"""Pipelines whose sinks are Delta and Iceberg tables."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Admin
from tests.support.table_readers import by_duckdb, column

from jetspark.errors import ConfigError, PipelineError
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
