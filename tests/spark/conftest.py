"""A streaming query as a user runs it again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Admin, numbered

from jetspark.spark.queries import source_options, start_writing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from jetspark.server import NatsServer


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
