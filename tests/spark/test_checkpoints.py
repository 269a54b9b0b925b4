"""Checkpoints on a local disk are written without starting processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.support.lake import Lake

from jetspark.spark.local_folders import enclosing_table_or_checkpoint
from jetspark.spark.queries.start import BY_FILE_SYSTEM, SETTING, with_quick_checkpoint

pytestmark = pytest.mark.spark


@pytest.mark.full
def test_a_checkpoint_goes_on_in_either_way(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = lake.spark
    ways: list[str | None] = []
    start = DataStreamWriter.start

    def noted(*arguments: Any, **named: Any) -> StreamingQuery:
        ways.append(spark.conf.get(SETTING, None))
        return start(*arguments, **named)

    monkeypatch.setattr(DataStreamWriter, "start", noted)
    for own in (None, BY_FILE_SYSTEM.replace("FileSystem", "FileContext"), None):
        if own is not None:
            spark.conf.set(SETTING, own)
        try:
            lake.fill(("a", b"one"), ("a", b"two"))
            lake.ingest("table")
        finally:
            assert spark.conf.get(SETTING, None) == own
            spark.conf.unset(SETTING)
    assert ways[::2] == [BY_FILE_SYSTEM] * 2
    assert ways[1] != BY_FILE_SYSTEM
    assert len(lake.rows("table")) == 6


def test_a_checkpoint_elsewhere_and_a_setting_of_ones_own_are_left_alone(
    spark: SparkSession,
) -> None:
    def start() -> StreamingQuery:
        raise AssertionError(spark.conf.get(SETTING, None))

    with pytest.raises(AssertionError, match=BY_FILE_SYSTEM):
        with_quick_checkpoint(spark, "file:///tmp/checkpoint", start)()
    assert spark.conf.get(SETTING, None) is None
    assert with_quick_checkpoint(spark, "s3a://bucket/checkpoint", start) is start
    spark.conf.set(SETTING, "mine")
    try:
        assert with_quick_checkpoint(spark, "chk", start) is start
    finally:
        spark.conf.unset(SETTING)


def test_pythons_workers_are_reached_without_tcp(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"


@pytest.mark.parametrize(
    "mark",
    [
        "_delta_log/0.json", "_spark_metadata/0", "metadata/v1.metadata.json",
        "metadata/00001-a.metadata.json", "metadata/v1.gz.metadata.json",
    ],
)  # fmt: skip
def test_a_folder_within_a_table_of_any_kind_is_known_as_such(tmp_path: Path, mark: str) -> None:
    table = tmp_path / "table"
    assert enclosing_table_or_checkpoint(str(table / "data" / "new")) is None
    (table / mark).parent.mkdir(parents=True)
    (table / mark).touch()
    assert enclosing_table_or_checkpoint(str(table / "data" / "new")) == str(table)
