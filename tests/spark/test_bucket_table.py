"""Tables of present values whose keys leave no change behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.blocking.eventually import eventually
from tests.support.ingest_job import ingest_job
from tests.support.streams import Admin
from tests.support.table_readers import column

from jetspark.errors import ConfigError, PipelineError
from jetspark.spark.failures import explain
from jetspark.spark.pipelines.ingest import Ingest

_SECOND = 1_000_000_000


class Bucket:
    """Without keys at first; it keeps one value of each. And a table of it."""

    def __init__(self, spark: SparkSession, admin: Admin, name: str, table: Path) -> None:
        self.spark, self.admin, self.name, self.table = spark, admin, name, table
        self.stream, self.format = f"KV_{name}", "delta"
        self.create()

    def create(self) -> None:
        subjects = f"$KV.{self.name}.>"
        self.admin.create(self.stream, subjects, max_msgs_per_subject=1, allow_direct=True)

    def put(self, *keys: str, value: bytes = b"1") -> None:
        self.admin.fill([(f"$KV.{self.name}.{key}", value) for key in keys])

    def purge(self, key: str) -> None:
        """Without a trace."""
        self.admin.purge(self.stream, filter=f"$KV.{self.name}.{key}")

    def ingest(self, **options: str) -> Ingest:
        source = {"servers": self.admin.url, "bucket": self.name, "startingOffsets": "earliest"}
        return ingest_job(options=source | options, to=str(self.table), format=self.format)

    def run(self, **options: str) -> int:
        """The number of removed rows."""
        job = self.ingest(**options)
        job.check()
        job.check_preconditions()
        try:
            job.start(self.spark).awaitTermination(300)
        except PySparkException as error:
            raise explain(error) from error
        return job.remove_gone_keys()

    def rows(self, name: str = "key") -> Counter[Any]:
        return column(self.format, self.table, name)


@pytest.fixture
def bucket(
    spark: SparkSession, admin: Admin, unique: Callable[[str], str], tmp_path: Path
) -> Bucket:
    return Bucket(spark, admin, unique("rates"), tmp_path / "table")


@pytest.mark.full
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_keys_that_left_no_trace_are_removed(bucket: Bucket, format_: str) -> None:
    bucket.format = format_
    assert bucket.ingest().remove_gone_keys() == 0  # before there is a table
    bucket.put("a", "b", "c", "d")
    assert bucket.run() == 0
    bucket.purge("b")
    bucket.purge("d")
    bucket.put("a", "d", value=b"2")
    assert bucket.run() == 1
    assert bucket.rows() == Counter("acd")
    assert bucket.rows("revision") == Counter([3, 5, 6])
    bucket.purge(">")
    assert bucket.run() == 3
    assert bucket.rows() == Counter()


def test_a_row_that_was_replaced_in_the_meantime_stays(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("a", "b")
    bucket.run()
    bucket.purge(">")

    def keys_and_another_run(*_: object) -> list[str]:
        bucket.put("a", value=b"2")
        bucket.ingest().start(bucket.spark).awaitTermination(300)
        return []

    monkeypatch.setattr("jetspark.spark.pipelines.bucket_table._fetch_keys", keys_and_another_run)
    assert bucket.ingest().remove_gone_keys() == 2
    assert bucket.rows("revision") == Counter([3])


def test_the_rows_of_a_mirror_stay(bucket: Bucket, admin: Admin) -> None:
    mirror = f"{bucket.name}_mirror"
    admin.create(f"KV_{mirror}", max_msgs_per_subject=1, mirror={"name": bucket.stream})
    bucket.put("a", "b")
    eventually(lambda: admin.facts(f"KV_{mirror}").messages == 2, within=60)
    assert bucket.run(bucket=mirror) == 0
    admin.purge(f"KV_{mirror}", filter=f"$KV.{bucket.name}.a")
    assert bucket.run(bucket=mirror) == 1
    assert bucket.rows() == Counter("b")


def test_values_that_expire_without_a_marker_before_or_after_they_are_read(
    bucket: Bucket, admin: Admin
) -> None:
    def expire_after(seconds: int) -> None:
        ages = {"max_age": seconds * _SECOND, "duplicate_window": _SECOND}
        admin.api.update(admin.api.config(bucket.stream) | ages)

    expire_after(3600)
    bucket.put("a", "b")
    assert bucket.run() == 0
    bucket.put("b", value=b"2")
    expire_after(1)
    eventually(lambda: not admin.facts(bucket.stream).messages, within=60)
    expire_after(3600)
    bucket.put("c")
    assert bucket.run() == 2
    assert bucket.rows() == Counter("c")


def test_another_bucket_of_the_same_name_is_an_error_and_removes_nothing(
    bucket: Bucket, admin: Admin
) -> None:
    bucket.put("a", "b")
    bucket.run()
    admin.call(f"STREAM.DELETE.{bucket.stream}")
    bucket.create()
    bucket.put("c", "d", "e")
    with pytest.raises(PipelineError, match="Its revisions begin anew: begin a new table"):
        bucket.run()
    assert bucket.rows() == Counter("ab")


def test_a_table_has_the_keys_of_one_choice(bucket: Bucket) -> None:
    bucket.put("a.1", "b.1")
    assert bucket.run(keys="a.*") == 0
    assert bucket.rows() == Counter(["a.1"])
    with pytest.raises(ConfigError, match=rf"another choice .* than the run on {bucket.stream}: "):
        bucket.run()
