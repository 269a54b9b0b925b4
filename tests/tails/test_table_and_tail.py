"""A table and its stream's tail are read together: each message once, as of one moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.lake import Lake
from tests.support.streams import Admin

import jetspark
import jetspark.errors as errors
from jetspark.tables.formats import Format, open_table
from jetspark.tables.table import TableName

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.tables]

SCHEMA = "id BIGINT, price DECIMAL(10,2), at TIMESTAMP"


@pytest.fixture
def lake(spark: SparkSession, admin: Admin, tmp_path: Path) -> Lake:
    return Lake(spark, admin, tmp_path)


def orders(start: int, end: int) -> list[tuple[str, bytes]]:
    return [
        (
            "eu" if id_ % 2 else "us",
            json.dumps({"id": id_, "price": "1.50", "at": "2026-01-31T12:00:00Z"}).encode(),
        )
        for id_ in range(start, end)
    ]


def read(lake: Lake, to: str = "orders", **options: Any) -> list[dict[str, Any]]:
    rows = jetspark.read(
        lake.stream, table=lake.folder / to, servers=lake.admin.url, **options
    ).to_arrow()
    return sorted(rows.to_pylist(), key=lambda row: str(row.get("seq", "")).zfill(9))


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_the_tail_has_the_rows_that_a_run_would_add(lake: Lake, format_: str) -> None:
    how: dict[str, Any] = {
        "format": format_,
        "json_schema": SCHEMA,
        "derive": ["region=subject[1]"],
        "quarantine": str(lake.folder / "bad"),
        "partition_by": ["day(timestamp)"],
    }
    lake.fill(*orders(0, 5), ("eu", b"no JSON"))
    lake.ingest("orders", **how)
    lake.fill(*orders(5, 9), ("eu", b"nor this"), *orders(9, 12))
    before = read(lake)
    lake.ingest("orders", **how)
    assert before == read(lake)
    assert [row["id"] for row in before] == list(range(12))
    assert before[-1]["region"] == "eu"
    assert read(lake, columns=["price", "seq"])[7] == {
        "price": before[7]["price"],
        "seq": before[7]["seq"],
    }


@pytest.mark.full
@pytest.mark.parametrize("policy", ["keep", "stop"])
def test_a_bad_record_is_what_it_is_for_the_query(lake: Lake, policy: str) -> None:
    how: dict[str, Any] = {"json_schema": SCHEMA}
    if policy == "stop":
        how["on_bad_record"] = "stop"
    lake.fill(*orders(0, 3))
    lake.ingest("orders", **how)
    lake.fill(("eu", b"no JSON"), *orders(3, 4))
    if policy == "stop":
        with pytest.raises(errors.TableError, match="sequence 4 does not become a row"):
            read(lake)
        return
    rows = read(lake)
    assert rows[3]["_corrupt_record"] == "no JSON"
    lake.ingest("orders", **how)
    assert rows == read(lake)


@pytest.mark.full
def test_payloads_that_are_not_decoded_and_only_some_subjects(lake: Lake) -> None:
    subjects = {"subjects": f"{lake.stream}.eu"}
    lake.fill(*orders(0, 4))
    lake.ingest("orders", subjects)
    lake.fill(*orders(4, 10))
    assert [row["seq"] for row in read(lake)] == [2, 4, 6, 8, 10]
    assert read(lake)[-1]["data"] == orders(9, 10)[0][1]


def test_spark_reads_both_once_for_a_dataframe(lake: Lake) -> None:
    lake.fill(*orders(0, 5))
    lake.ingest("orders", json_schema=SCHEMA)
    lake.fill(*orders(5, 9))
    frame = (
        lake.spark.read.format("jetstream")
        .option("servers", lake.admin.url)
        .option("stream", lake.stream)
        .option("table", str(lake.folder / "orders"))
        .option("columns", "id,seq,at")
        .option("minPartitions", 3)
        .load()
    )
    rows = sorted(frame.collect())
    assert [(row.id, row.seq) for row in rows] == [(id_, id_ + 1) for id_ in range(9)]
    assert frame.columns == ["id", "seq", "at"]


@pytest.mark.full
def test_rows_of_the_chosen_stream_only(lake: Lake, admin: Admin) -> None:
    other = admin.stream(under=".>")
    both = {"streams": f"{lake.stream},{other}"}
    lake.options.pop("stream")
    lake.fill(*orders(0, 3))
    admin.fill([(f"{other}.x", b"{}")] * 2)
    lake.ingest("orders", both)
    lake.fill(*orders(3, 5))
    admin.fill([(f"{other}.x", b"{}")])
    assert [row["seq"] for row in read(lake)] == [1, 2, 3, 4, 5]
    frame = lake.spark.read.format("jetstream").options(
        servers=admin.url, table=str(lake.folder / "orders"), **both
    )
    assert frame.load().count() == 8


@pytest.mark.full
def test_new_fields_are_columns_once_the_table_has_them(lake: Lake) -> None:
    how: dict[str, Any] = {"json_schema": "id BIGINT", "evolve": True}
    lake.fill(("eu", b'{"id": 1}'))
    lake.grow(lake.job("orders", **how))
    lake.fill(("eu", b'{"id": 2, "note": "x"}'))
    assert [row["id"] for row in read(lake)] == [1, 2]
    assert lake.grow(lake.job("orders", **how)) == 2
    lake.fill(("eu", b'{"id": 3, "note": "y"}'))
    assert [row["note"] for row in read(lake)] == [None, "x", "y"]


def test_messages_that_are_gone_before_the_table_has_them_are_a_loss(lake: Lake) -> None:
    lake.fill(*orders(0, 5))
    lake.ingest("orders")
    lake.admin.call(f"STREAM.PURGE.{lake.stream}", {"seq": 4})
    assert len(read(lake)) == 5  # the table has them
    lake.fill(*orders(5, 9))
    lake.admin.call(f"STREAM.PURGE.{lake.stream}", {"seq": 8})
    with pytest.raises(errors.DataLossError) as loss:
        read(lake)
    assert (loss.value.first, loss.value.last) == (6, 7)
    rows = read(lake, fail_on_data_loss=False)
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5, 8, 9]


@pytest.mark.full
def test_another_stream_of_the_name_has_no_position(lake: Lake) -> None:
    lake.fill(*orders(0, 5))
    lake.ingest("orders")
    lake.admin.call(f"STREAM.DELETE.{lake.stream}")
    lake.admin.create(lake.stream, f"{lake.stream}.>")
    lake.fill(*orders(0, 9))
    with pytest.raises(errors.ConfigError, match="has no position in the stream"):
        read(lake)


def test_a_table_with_keys_is_refused(lake: Lake) -> None:
    lake.fill(*orders(0, 3))
    lake.ingest("orders", json_schema=SCHEMA, table_options={"keys": "id"})
    with pytest.raises(errors.ConfigError, match=r"has keys \(id\)"):
        read(lake)


@pytest.mark.full
def test_two_queries_into_one_table_have_no_common_position(lake: Lake) -> None:
    lake.fill(*orders(0, 4))
    for name in ("eu", "us"):
        lake.ingest(
            "orders",
            {"subjects": f"{lake.stream}.{name}"},
            checkpoint=str(lake.folder / f"checkpoint-{name}"),
            writer_name=name,
            adopt=name == "us",
        )
    with pytest.raises(errors.ConfigError, match="several queries"):
        read(lake)


@pytest.mark.full
def test_a_lost_checkpoint_changes_nothing_of_the_position(lake: Lake) -> None:
    lake.fill(*orders(0, 4))
    lake.ingest("orders")
    again = {"checkpoint": str(lake.folder / "another"), "adopt": True}
    lake.ingest("orders", {"maxOffsetsPerTrigger": "2"}, **again)
    lake.fill(*orders(4, 6))
    assert [row["seq"] for row in read(lake)] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 6]


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_each_message_is_read_once_while_the_table_grows(lake: Lake, format_: str) -> None:
    how: dict[str, Any] = {"format": format_, "follow": True, "interval": 0}
    lake.fill(*orders(0, 50))
    query = lake.job("orders", **how).start(lake.spark)
    try:
        while not query.lastProgress:
            query.processAllAvailable()
        for round_ in range(12):
            last = lake.admin.fill([(f"{lake.stream}.eu", b"{}")] * 40)
            sequences = [row["seq"] for row in read(lake, columns=["seq"])]
            assert sequences == list(range(1, last + 1)), round_
    finally:
        query.stop()


@pytest.mark.full
def test_a_table_that_was_opened_before_the_stream_was_trimmed_is_refreshed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.fill(*orders(0, 5))
    lake.ingest("orders")
    old = open_table(Format.DELTA, TableName(path=str(lake.folder / "orders")))
    lake.fill(*orders(5, 9))
    lake.ingest("orders")
    lake.admin.call(f"STREAM.PURGE.{lake.stream}", {"seq": 10})
    lake.fill(*orders(9, 11))
    monkeypatch.setattr("jetspark.tails.read_plan.open_table", lambda *_: old)
    assert [row["seq"] for row in read(lake)] == list(range(1, 12))
