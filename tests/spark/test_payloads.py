"""Payloads that are not JSON as columns: in the source, and in tables."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from tests.payloads.avro_schemas import EPOCH, written
from tests.payloads.test_decoding import GOOD
from tests.payloads.test_framing import NEW, OLD, OTHER, confluent
from tests.payloads.test_protobuf import SOURCE, Order
from tests.registry.test_confluent import Scripted
from tests.support.ingest_job import ingest_job
from tests.support.lake import Lake
from tests.support.streams import Admin

from jetspark.spark.data_source import JetStreamDataSource
from jetspark.spark.pipelines.retry_quarantine import ReprocessResult
from jetspark.spark.pipelines.table_rows import RowSpec
from jetspark.spark.pipelines.task_writes import DirectDataSource
from jetspark.spark.versions import HAS_LIMITS
from jetspark.tables.formats import Format

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.tables]

KIND = {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
TYPES: dict[str, Any] = {
    "id": "long",
    "note": ["null", "string"],
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "price": DECIMAL,
    "tags": {"type": "array", "items": "string"},
    "sizes": {"type": "map", "values": ["null", "int"]},
    "kind": KIND,
    "either": ["string", "double"],
}
AVRO_FIELDS = [{"name": name, "type": kind} for name, kind in TYPES.items()]
AVRO: Any = {"type": "record", "name": "Order", "fields": AVRO_FIELDS}


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "note": None if number % 2 else f"é{number}",
        "at": EPOCH,
        "price": Decimal(number).scaleb(-2),
        "tags": ["a", "b"][: number % 3],
        "sizes": {"s": None, "m": number},
        "kind": "NEW",
        "either": 0.5,
    }


def as_row(number: int) -> dict[str, Any]:
    """As `rows_of` has it: times as numbers, numbers with a point as texts."""
    return order(number) | {
        "at": 0,
        "sizes": [("s", None), ("m", number)],
        "either": {"member0": None, "member1": "0.5"},
    }


def fill(lake: Lake, *payloads: bytes) -> None:
    lake.fill(*(("x", one) for one in payloads))


def test_avro_becomes_the_same_rows_in_the_source_and_in_a_table(
    lake: Lake, tmp_path: Path
) -> None:
    payloads = [written(AVRO, order(number)) for number in range(20)]
    payloads[7], payloads[11] = payloads[7][:-1], b"{}"
    too_many = {**order(15), "price": Decimal("12345678901.25")}
    payloads[15] = written(json.loads(json.dumps(AVRO).replace(": 9,", ": 20,")), too_many)
    fill(lake, *payloads)
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    decode = {"decode": "avro", "schemaFile": str(tmp_path / "order.avsc")}
    aside = str(tmp_path / "bad")
    done = lake.ingest("direct", decode, quarantine=aside)
    assert (done.rows, done.quarantined) == (17, 3)
    good = [number for number in range(20) if number not in (7, 11, 15)]
    names = [*TYPES]
    found = [{name: row[name] for name in names} for row in lake.rows("direct")]
    assert found == [as_row(number) for number in good]
    bad = lake.rows("bad")
    assert [(row["seq"] - 1, row["data"]) for row in bad] == [(n, payloads[n]) for n in (7, 11, 15)]
    assert "too many digits" in bad[2]["reason"]
    assert bad[0]["reason"] == "The payload is not Order in Avro: it ends too early, in either."

    lake.ingest("kept", decode)
    kept = lake.rows("kept")
    corrupt = [row["_corrupt_record"] for row in kept if row["id"] is None]
    assert corrupt == [payloads[7], payloads[11], payloads[15]]

    reader = lake.spark.read.format("jetstream").options(**lake.options, **decode)
    rows = reader.option("fields", "id,price").load().orderBy("seq").toArrow().to_pylist()
    corrupt = [row for row in rows if row["_corrupt_record"] is not None]
    assert [row["id"] for row in rows if row not in corrupt] == good
    assert [row["_corrupt_reason"] for row in corrupt] == [row["reason"] for row in bad]


@pytest.mark.full
def test_what_was_put_aside_becomes_rows_with_a_mended_schema(lake: Lake, tmp_path: Path) -> None:
    texts = {"type": "record", "name": "Order", "fields": [{"name": "b", "type": "string"}]}
    fill(lake, written(OLD, {"a": 1}), written(texts, {"b": "one"}), b"")
    aside = str(tmp_path / "aside")
    done = lake.ingest("rows", {"decode": "avro", "schema": json.dumps(OLD)}, quarantine=aside)
    assert (done.rows, done.quarantined) == (1, 2)
    options = {"stream": "retried", "decode": "avro", "schema": json.dumps(texts)}
    to = str(tmp_path / "rows")
    job = ingest_job(options=options, to=to, quarantine=aside, merge_schema=True)
    job.check_rows()
    job.check_reprocess()
    assert job.reprocess() == ReprocessResult(added=1, already_present=0, remaining=1)
    found = [(row["seq"], row["a"], row["b"]) for row in lake.rows("rows")]
    assert sorted(found) == [(1, 1, None), (2, None, "one")]


@pytest.mark.full
def test_each_writer_s_version_comes_from_a_registry_and_the_table_has_the_latest(
    lake: Lake, tmp_path: Path
) -> None:
    old, new = written(OLD, {"a": 1}), written(NEW, {"a": 2, "b": "x"})
    other = confluent(9, written(OTHER, {"a": "no"}))
    fill(lake, confluent(7, old), confluent(8, new), other, confluent(7, old))
    http = Scripted()
    http.answers = {
        f"/schemas/ids/{number}": (200, {"schema": json.dumps(schema)})
        for number, schema in ((7, OLD), (8, NEW), (9, OTHER))
    }
    latest = {"version": 2, "id": 8, "schema": json.dumps(NEW)}
    http.answers["/subjects/orders-value/versions/latest"] = [
        (200, latest),
        (200, latest | {"version": 3, "schema": json.dumps(OTHER)}),  # registered meanwhile
    ]
    http.answers["/subjects/orders-value/versions/2"] = (200, latest)
    decode = {"decode": "avro", "framing": "confluent", "registry": http.url}
    done = lake.ingest(
        "orders", decode | {"schemaName": "orders-value"}, quarantine=str(tmp_path / "others")
    )
    http.close()
    assert (done.rows, done.quarantined) == (3, 1)
    rows = [(row["b"], row["a"]) for row in lake.rows("orders")]
    assert rows == [("none", 1), ("x", 2), ("none", 1)]
    assert [row["reason"] for row in lake.rows("others")] == ["a is string, not long."]


def test_a_new_version_of_the_schema_adds_its_fields_to_the_table(lake: Lake) -> None:
    old, new = written(OLD, {"a": 1}), written(NEW, {"a": 2, "b": "x"})
    fill(lake, confluent(7, old), confluent(8, new))
    http = Scripted()
    http.answers = {
        f"/schemas/ids/{number}": (200, {"schema": json.dumps(schema)})
        for number, schema in ((7, OLD), (8, NEW))
    }
    versions = [
        (200, {"version": number, "id": 6 + number, "schema": json.dumps(schema)})
        for number, schema in ((1, OLD), (2, NEW))
    ]
    http.answers["/subjects/orders-value/versions/latest"] = versions
    for number, one in enumerate(versions, 1):
        http.answers[f"/subjects/orders-value/versions/{number}"] = one
    decode = {"decode": "avro", "framing": "confluent", "registry": http.url}
    job = lake.job(
        "growing",
        decode | {"schemaName": "orders-value"},
        evolve=True,
        format="iceberg",  # which also makes a long of the int
    )
    assert lake.grow(job) == 2
    http.close()
    rows = lake.rows("growing", Format.ICEBERG)
    assert [(row["a"], row["b"]) for row in rows] == [(1, "none"), (2, "x")]


@pytest.mark.full
def test_protobuf_becomes_a_table(lake: Lake) -> None:
    orders = [Order(f_int64=number, texts=["a"], kind=5) for number in range(5)]
    fill(lake, *(one.SerializeToString() for one in orders), b"\xff")
    decode = {"decode": "protobuf", "schema": SOURCE, "message": "Order"}
    lake.ingest("orders", decode | {"fields": "f_int64,texts,kind"})
    rows = lake.rows("orders")
    assert [row["_corrupt_record"] for row in rows] == [None] * 5 + [b"\xff"]
    assert [row["f_int64"] for row in rows] == [0, 1, 2, 3, 4, None]
    assert (rows[1]["texts"], rows[1]["kind"]) == (["a"], "OLD")


def test_json_comes_out_of_its_frames(lake: Lake) -> None:
    framed = [gzip.compress(confluent(1, b'{"n": %d, "l": [1]}' % number)) for number in range(3)]
    fill(lake, *framed, b"{}")
    packed = {"framing": "confluent", "compression": "gzip"}
    lake.ingest("rows", packed, json_schema="n LONG")
    rows = [(row["n"], row["_corrupt_record"]) for row in lake.rows("rows")]
    assert rows == [(0, None), (1, None), (2, None), (None, "{}")]


@pytest.mark.parametrize("format_", GOOD)
def test_what_is_sent_to_tasks_can_be_sent_after_the_driver_has_used_it(
    admin: Admin, tmp_path: Path, format_: str
) -> None:
    """By Spark's own pickler; no Spark is started."""
    how, payload = GOOD[format_]
    stream = admin.stream(under=".>")
    admin.fill([(f"{stream}.x", payload)])
    given = {"servers": admin.url, "stream": stream, "startingOffsets": "earliest"}
    given |= {"decode": format_, "schema": how["schema"], "registry": "nats"}
    given |= {"message": "Order", "fields": "f_int32"} if format_ == "protobuf" else {}
    given |= {"registry": "https://localhost:1"} if format_ == "avro" else {}
    source = JetStreamDataSource(given)
    table = {"path": str(tmp_path / "table"), "taskRows": f"[{source.schema().json()}]"}
    into = {f"into.sink.{name}": value for name, value in table.items()}
    into |= {"into.format": "delta", "into.rows": RowSpec("schema").dump()}
    into["into.sink.checkpointLocation"] = "s3://elsewhere/checkpoint"
    send: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    for one in (source, DirectDataSource({**given, **into})):
        stream_reader: Any = one.streamReader(one.schema())
        start = stream_reader.initialOffset()
        end = stream_reader.latestOffset(
            *([start, stream_reader.getDefaultReadLimit()] if HAS_LIMITS else [])
        )
        parts = stream_reader.partitions(start, end)
        for sent in (one, stream_reader, parts):
            send.loads(send.dumps(sent))
    batch_reader = source.reader(source.schema())
    parts = batch_reader.partitions()
    there = send.loads(send.dumps(batch_reader))
    (rows,) = (batch for part in send.loads(send.dumps(parts)) for batch in there.read(part))
    assert rows.column("_corrupt_record").to_pylist() == [None]
