"""Rows of a batch that is still running, as Spark counts them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.streams import Admin

from jetspark.spark.queries.rows_in_progress import RowsInProgress

pytestmark = pytest.mark.spark

_SECONDS = 60.0


def test_rows_of_the_first_batch_are_counted_while_it_runs(
    spark: SparkSession, admin: Admin, tmp_path: Path
) -> None:
    stream, count, go_on = admin.stream(), 2_500, str(tmp_path / "go on")
    admin.fill((stream, b"x") for _ in range(count))

    def hold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deadline = time.monotonic() + _SECONDS
        for batch in batches:
            while not Path(go_on).exists() and time.monotonic() < deadline:
                time.sleep(0.05)  # in another process, which shares nothing but files
            yield batch

    source = {"servers": admin.url, "stream": stream, "startingOffsets": "earliest"}
    rows = spark.readStream.format("jetstream").options(**source).load()
    writer = rows.mapInArrow(hold, rows.schema).writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        seen = RowsInProgress(query)
        deadline = time.monotonic() + _SECONDS
        while not (under_way := seen.count()):
            assert query.exception() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert 0 < under_way <= count
        assert query.lastProgress is None
    finally:
        Path(go_on).touch()
        query.awaitTermination(_SECONDS)  # type: ignore[arg-type]
    assert query.lastProgress is not None
    assert query.lastProgress["numInputRows"] == count
