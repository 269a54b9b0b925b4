"""A streaming query as a user runs it again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jetspark.spark.queries import source_options, start_writing

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


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
