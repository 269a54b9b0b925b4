"""Key-Value buckets as tables: snapshot, history, changes; upsert and delete."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa
import pytest
from nats.js.errors import KeyNotFoundError
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import Read, ToParquet, Write, failure
from tests.support.ingest_job import ingest_job, with_table_options
from tests.support.streams import Admin, Row
from tests.support.table_readers import by_duckdb, column

from jetspark.errors import BadNameError, ConfigError, TableError
from jetspark.server import NatsServer
from jetspark.spark.source.options import parse_options
from jetspark.spark.stream_sink.row_encoders import EntryEncoder


def make_bucket(admin: Admin, name: str) -> str:
    config = {"max_msgs_per_subject": 5, "discard": "new"}
    config |= dict.fromkeys(("allow_rollup_hdrs", "allow_direct", "deny_delete"), True)
    admin.create(f"KV_{name}", f"$KV.{name}.>", **config)
    return name


@pytest.fixture
def bucket(admin: Admin, unique: Callable[[str], str]) -> str:
    """Keys a.1 (two revisions), a.2 (deleted), b.1 (purged), b.2."""
    name = make_bucket(admin, unique("prices"))
    delete = [("KV-Operation", "DEL")]
    purge = [("KV-Operation", "PURGE"), ("Nats-Rollup", "sub")]
    a, b = f"$KV.{name}.a", f"$KV.{name}.b"
    rows: list[Row] = [(f"{a}.1", b"old"), (f"{a}.1", b"new"), (f"{a}.2", b"x")]
    rows += [(f"{a}.2", b"", delete), (f"{b}.1", b"y"), (f"{b}.1", b"", purge), (f"{b}.2", b"z")]
    admin.fill(rows)
    return name


def values(rows: DataFrame) -> set[tuple[Any, ...]]:
    return {(row.key, row.value and row.value.decode()) for row in rows.collect()}


def test_bucket_read_returns_current_values(read: Read, bucket: str) -> None:
    rows = read(bucket=bucket)
    assert rows.columns == ["bucket", "key", "value", "revision", "created", "operation"]
    assert values(rows) == {("a.1", "new"), ("b.2", "z")}
    assert {(row.bucket, row.operation) for row in rows.collect()} == {(bucket, "PUT")}
    assert values(read(bucket=bucket, keys="a.*,c")) == {("a.1", "new")}
    chosen = read(bucket=bucket, columns="revision,key")
    assert {tuple(row) for row in chosen.collect()} == {(2, "a.1"), (7, "b.2")}


def test_bucket_read_with_history_returns_all_revisions(read: Read, bucket: str) -> None:
    rows = read(bucket=bucket, history="true").orderBy("revision").collect()
    assert [(row.revision, row.key, row.value, row.operation) for row in rows] == [
        (1, "a.1", b"old", "PUT"),
        (2, "a.1", b"new", "PUT"),
        (3, "a.2", b"x", "PUT"),
        (4, "a.2", None, "DEL"),
        (6, "b.1", None, "PURGE"),
        (7, "b.2", b"z", "PUT"),
    ]


@pytest.mark.full
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_bucket_becomes_a_table_of_its_present_values(
    spark: SparkSession, bucket: str, admin: Admin, tmp_path: Path, format_: str
) -> None:
    """Over a second run, and a third, adopted, without the first two's checkpoint."""
    table = tmp_path / "table"
    options = {"servers": admin.url, "bucket": bucket, "startingOffsets": "earliest"}
    ingest = ingest_job(options=options, to=str(table), format=format_, json_schema="n INT")

    def run(*, adopt: bool = False) -> set[tuple[str, int, str | None]]:
        job = with_table_options(ingest, adopt=adopt)
        job.check()
        job.check_preconditions()
        job.start(spark).awaitTermination()
        found = by_duckdb(format_, table, "SELECT key, revision, _corrupt_record FROM t")
        assert column(format_, table, "key") == Counter(key for key, _, _ in found)
        return set(found)

    assert run() == {("a.1", 2, "new"), ("b.2", 7, "z")}
    gone = [("KV-Operation", "DEL")]
    rows: list[Row] = [(f"$KV.{bucket}.a.2", b'{"n": 5}'), (f"$KV.{bucket}.b.2", b"", gone)]
    admin.fill([*rows, (f"$KV.{bucket}.a.1", b"\xff")])
    there = {("a.1", 10, "\ufffd"), ("a.2", 8, None)}
    assert run() == there
    shutil.rmtree(table / "_checkpoint")
    with pytest.raises(TableError, match="does not have its checkpoint and would write them again"):
        run()
    assert run(adopt=True) == there
    admin.fill([(f"$KV.{bucket}.a.2", b"", gone), (f"$KV.{bucket}.a.1", b"\xff")])
    assert run() == {("a.1", 12, "\ufffd")}


def test_changes_as_they_come(to_parquet: ToParquet, bucket: str, admin: Admin) -> None:
    options = {"servers": admin.url, "bucket": bucket, "startingOffsets": "earliest"}
    to_parquet.options = options
    to_parquet.run()
    admin.fill([(f"$KV.{bucket}.c", b"later")])
    to_parquet.run()
    rows = to_parquet.table().orderBy("revision").collect()
    assert [row.revision for row in rows] == [1, 2, 3, 4, 6, 7, 8]
    assert (rows[-1].key, rows[-1].value, rows[3].operation) == ("c", b"later", "DEL")


async def test_rows_are_put_and_deleted_and_a_peer_reads_them(
    spark: SparkSession, read: Read, write: Write, bucket: str, shared_server: NatsServer
) -> None:
    rows = spark.sql(
        "SELECT * FROM VALUES ('n.1', 'one', 'PUT'), ('n.2', 'two', NULL), ('a.1', NULL, NULL), "
        "('b.2', NULL, 'PURGE') AS t(key, value, operation)"
    )
    for _ in range(2):
        write(rows, bucket=bucket)
    assert values(read(bucket=bucket)) == {("n.1", "one"), ("n.2", "two")}
    peer = await nats.connect(shared_server.url)
    try:
        kv = await peer.jetstream().key_value(bucket)
        assert (await kv.get("n.1")).value == b"one"
        for key in ("a.1", "b.2"):
            with pytest.raises(KeyNotFoundError):
                await kv.get(key)
    finally:
        await peer.close()


def test_a_snapshot_can_be_written_to_another_bucket(
    read: Read, write: Write, bucket: str, admin: Admin, unique: Callable[[str], str]
) -> None:
    copy = make_bucket(admin, unique("copy"))
    rows = read(bucket=bucket)
    assert read(bucket=copy).count() == 0
    write(rows, bucket=copy)
    assert values(read(bucket=copy)) == values(rows)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bucket": "B", "stream": "S"}, "only one of"),
        ({"bucket": "B", "subjects": "a"}, "subjects is for reading streams"),
        ({"stream": "S", "keys": "a"}, "keys is for reading a bucket"),
        ({"bucket": "B", "columns": "seq"}, "no column 'seq'"),
        ({"stream": "S", "columns": "keys"}, "no column 'keys'"),
        ({"bucket": "B", "startingOffsets": "1"}, "set history to true"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_options(options).for_batch()


def test_a_missing_bucket_and_a_wrong_column_are_reported(
    spark: SparkSession, read: Read, write: Write, bucket: str
) -> None:
    assert f"did you mean '{bucket}'" in failure(read(bucket=bucket + "x").count)
    rows = spark.range(1).selectExpr("'k' key", "'v' value", "1 price")
    said = failure(lambda: write(rows, bucket=bucket))
    assert "'price' cannot be written to a bucket" in said


def test_bucket_entries_with_wrong_keys_or_operations_are_refused() -> None:
    def encode(key: str | None, value: str | None, operation: str | None = None) -> list[Any]:
        row = {"key": key, "value": value, "operation": operation}
        batch = pa.RecordBatch.from_pylist([row], pa.schema(dict.fromkeys(row, pa.string())))
        return list(EntryEncoder("B", max_bytes=5).messages([batch]))

    assert encode("a.b", "v") == [(b"$KV.B.a.b", None, b"v")]
    assert encode("a", "v", "DEL") == [(b"$KV.B.a", b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n", b"")]
    for key in ("", "a b", ".a", "a.", "a..b", "a.*", "_kv.a"):
        with pytest.raises(BadNameError):
            encode(key, "v")
    for row, says in (
        ((None, "v"), "no key"),
        (("a", "v", "put"), "not PUT, DEL or PURGE"),
        (("a", None, "PUT"), "without a value"),
        (("a", "123456"), "has 6 bytes"),
    ):
        with pytest.raises(ConfigError, match=says):
            encode(*row)
