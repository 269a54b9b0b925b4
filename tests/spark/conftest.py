"""Spark as a user has it: what is read, written, and run again and again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.support.lake import Lake
from tests.support.streams import Admin, numbered

from jetspark.server import NatsServer
from jetspark.spark.failures import explain
from jetspark.spark.queries.start import source_options, start_writing

Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, shared_server: NatsServer) -> Read:
    """`read(stream="S")`: rows of format("jetstream"), by default of the shared server."""

    def read(**options: str) -> DataFrame:
        options = {"servers": shared_server.url} | options
        return spark.read.format("jetstream").options(**options).load()

    return read


Write = Callable[..., None]


@pytest.fixture
def write(shared_server: NatsServer) -> Write:
    """`write(rows, stream="S")`: as a batch, by default to the shared server."""

    def write(rows: DataFrame, mode: str = "append", **options: str) -> None:
        options = {"servers": shared_server.url} | options
        rows.write.format("jetstream").options(**options).mode(mode).save()

    return write


def failure(call: Callable[[], object]) -> str:
    """The sentence that a user gets of what Spark raises."""
    with pytest.raises(PySparkException) as caught:
        call()
    return str(explain(caught.value))


class ToParquet:
    """A query from format("jetstream") into Parquet, with a checkpoint that lasts."""

    def __init__(self, spark: SparkSession, home: Path, **options: str) -> None:
        self.spark, self.home, self.options = spark, home, options

    def run(self, **options: str) -> list[dict[str, Any]]:
        """One AvailableNow run; the progress of batches with rows."""
        given = source_options(self.options | options, follow=False)
        rows = self.spark.readStream.format("jetstream").options(**given).load()
        checkpoint = str(self.home / "checkpoint")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        writer = writer.option("path", str(self.home / "table"))
        query = start_writing(self.spark, writer, checkpoint, None)
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    def table(self) -> Any:
        return self.spark.read.parquet(str(self.home / "table"))

    def sequences(self) -> list[int]:
        return sorted(row.seq for row in self.table().select("seq").collect())


@pytest.fixture
def to_parquet(spark: SparkSession, tmp_path: Path) -> ToParquet:
    """Set its `options`."""
    return ToParquet(spark, tmp_path)


@pytest.fixture
def lake(spark: SparkSession, admin: Admin, tmp_path: Path) -> Lake:
    """Tables in the test's folder."""
    return Lake(spark, admin, tmp_path)


@pytest.fixture
def program(
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    needs_server: Callable[[str], None],
    tmp_path: Path,
) -> tuple[str, str, str, str]:
    """Arguments of program.py, but for where Spark is."""
    from tests.spark.program import COUNT

    needs_server("2.12")
    source, target = unique("FROM"), unique("TO")
    admin.create(source, source)
    admin.create(target, f"{target}.>")
    admin.fill(numbered(source, COUNT))
    return shared_server.url, source, target, str(tmp_path)
