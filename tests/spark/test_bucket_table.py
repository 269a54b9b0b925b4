"""Tables of present values whose keys leave no change behind."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from tests.support.table_readers import column

from jetspark.errors import ConfigError, PipelineError
from jetspark.spark.failures import explain
from jetspark.spark.ingest import Ingest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.streams import Admin

    from jetspark.server import NatsServer

_SECOND = 1_000_000_000


@pytest.fixture
def bucket(admin: Admin, unique: Callable[[str], str]) -> str:
    """Without keys; it keeps one value of each."""
    name = unique("rates")
    admin.create(f"KV_{name}", f"$KV.{name}.>", max_msgs_per_subject=1, allow_direct=True)
    return name


def ingest(server: NatsServer, bucket: str, table: Path, **how: str) -> Ingest:
    options = {"servers": server.url, "bucket": bucket, "startingOffsets": "earliest"}
    return Ingest(options=options, to=str(table), format=how.get("format", "delta"))


def run(spark: SparkSession, job: Ingest) -> int:
    """The number of removed rows."""
    job.check()
    job.look_ahead()
    try:
        job.start(spark).awaitTermination(300)
    except PySparkException as error:
        raise explain(error) from error
    return job.remove_gone_keys()


@pytest.mark.full
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_keys_that_left_no_trace_are_removed(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    bucket: str,
    tmp_path: Path,
    format_: str,
) -> None:
    table = tmp_path / "table"
    job = ingest(shared_server, bucket, table, format=format_)
    assert job.remove_gone_keys() == 0  # before there is a table
    admin.fill([(f"$KV.{bucket}.{key}", b"1") for key in ("a", "b", "c", "d")])
    assert run(spark, job) == 0
    admin.purge(f"KV_{bucket}", filter=f"$KV.{bucket}.b")
    admin.purge(f"KV_{bucket}", filter=f"$KV.{bucket}.d")
    admin.fill([(f"$KV.{bucket}.a", b"2"), (f"$KV.{bucket}.d", b"2")])
    assert run(spark, job) == 1
    assert column(format_, table, "key") == Counter("acd")
    assert column(format_, table, "revision") == Counter([3, 5, 6])
    admin.purge(f"KV_{bucket}")
    assert run(spark, job) == 3
    assert column(format_, table, "key") == Counter()


def test_a_row_that_was_replaced_in_the_meantime_stays(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = ingest(shared_server, bucket, tmp_path / "table")
    admin.fill([(f"$KV.{bucket}.{key}", b"1") for key in ("a", "b")])
    run(spark, job)
    admin.purge(f"KV_{bucket}")

    def keys_and_another_run(*_: object) -> list[str]:
        admin.fill([(f"$KV.{bucket}.a", b"2")])
        job.start(spark).awaitTermination(300)
        return []

    monkeypatch.setattr("jetspark.spark.bucket_table._keys", keys_and_another_run)
    assert job.remove_gone_keys() == 2
    assert column("delta", tmp_path / "table", "revision") == Counter([3])


def test_the_rows_of_a_mirror_stay(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    bucket: str,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    mirror, table = unique("mirror"), tmp_path / "table"
    admin.create(f"KV_{mirror}", max_msgs_per_subject=1, mirror={"name": f"KV_{bucket}"})
    admin.fill([(f"$KV.{bucket}.a", b"1"), (f"$KV.{bucket}.b", b"1")])
    deadline = time.monotonic() + 60
    while admin.facts(f"KV_{mirror}").messages < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    job = ingest(shared_server, mirror, table)
    assert run(spark, job) == 0
    admin.purge(f"KV_{mirror}", filter=f"$KV.{bucket}.a")
    assert run(spark, job) == 1
    assert column("delta", table, "key") == Counter("b")


def test_values_that_expire_without_a_marker_before_or_after_they_are_read(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, bucket: str, tmp_path: Path
) -> None:
    table, stream = tmp_path / "table", f"KV_{bucket}"
    job = ingest(shared_server, bucket, table)
    config = admin.call(f"STREAM.INFO.{stream}")["config"]

    def expire_after(seconds: int) -> None:
        ages = {"max_age": seconds * _SECOND, "duplicate_window": _SECOND}
        admin.call(f"STREAM.UPDATE.{stream}", {**config, **ages})

    expire_after(3600)
    admin.fill([(f"$KV.{bucket}.{key}", b"1") for key in ("a", "b")])
    assert run(spark, job) == 0
    admin.fill([(f"$KV.{bucket}.b", b"2")])
    expire_after(1)
    deadline = time.monotonic() + 60
    while admin.facts(stream).messages:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    expire_after(3600)
    admin.fill([(f"$KV.{bucket}.c", b"1")])
    assert run(spark, job) == 2
    assert column("delta", table, "key") == Counter("c")


def test_another_bucket_of_the_same_name_is_an_error_and_removes_nothing(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, bucket: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    job = ingest(shared_server, bucket, table)
    admin.fill([(f"$KV.{bucket}.{key}", b"1") for key in ("a", "b")])
    run(spark, job)
    admin.call(f"STREAM.DELETE.KV_{bucket}")
    admin.create(f"KV_{bucket}", f"$KV.{bucket}.>", max_msgs_per_subject=1)
    admin.fill([(f"$KV.{bucket}.{key}", b"1") for key in ("c", "d", "e")])
    with pytest.raises(PipelineError, match="Its revisions begin anew: begin a new table"):
        run(spark, job)
    assert column("delta", table, "key") == Counter("ab")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": "key,revision,operation"}, "--option columns: .* bucket would be missing"),
        ({"startingOffsets": "latest"}, "--start: .* begins at the earliest"),
        ({"startingTimestamp": "2026-01-01T00:00:00Z"}, "--start: .* begins at the earliest"),
        ({"failOnDataLoss": "false"}, "--option failOnDataLoss=false: "),
    ],
)
def test_options_with_which_it_would_not_be_the_buckets_table_are_refused(
    options: dict[str, str], says: str, tmp_path: Path
) -> None:
    options = {"servers": "nats://127.0.0.1:1", "bucket": "b", **options}
    with pytest.raises(ConfigError, match=says):
        Ingest(options=options, to=str(tmp_path / "t")).check()


def test_a_table_has_the_keys_of_one_choice(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, bucket: str, tmp_path: Path
) -> None:
    admin.fill([(f"$KV.{bucket}.{key}", b"1") for key in ("a.1", "b.1")])
    table = tmp_path / "table"
    job = ingest(shared_server, bucket, table)
    some = Ingest(options={**job.options, "keys": "a.*"}, to=str(table))
    assert run(spark, some) == 0
    assert column("delta", table, "key") == Counter(["a.1"])
    with pytest.raises(ConfigError, match=rf"another choice .* than the run on KV_{bucket}: "):
        run(spark, job)


@pytest.mark.parametrize("name", ["keys", "SEQUENCEBY", "applyAsDeletes"])
def test_what_makes_it_a_table_of_present_values_cannot_be_changed(
    name: str, tmp_path: Path
) -> None:
    options = {"servers": "nats://127.0.0.1:1", "bucket": "b"}
    job = Ingest(options=options, to=str(tmp_path / "t"), table_options={name: "value"})
    with pytest.raises(ConfigError, match=f"^--table-option {name}: with --bucket it is "):
        job.check()
