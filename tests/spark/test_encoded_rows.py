"""Columns become payloads in Spark's sink, with each guarantee; CloudEvents and VARIANT."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.payloads.test_cloudevents import IN_HEADERS, structured
from tests.registry.test_confluent import Scripted
from tests.spark.conftest import Read, Write, failure
from tests.support.streams import Admin

pytestmark = [pytest.mark.server, pytest.mark.spark]

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "subject", "type": "string"},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["NEW", "OLD"]}},
]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
ROWS = (
    "id",
    "if(id % 2 = 0, concat('é', id), null) note",
    "'of the payload' subject",
    "array('a', string(id)) tags",
    "if(id % 3 = 0, 'OLD', 'NEW') kind",
)


@pytest.fixture
def orders(admin: Admin) -> dict[str, str]:
    """Options of format jetstream."""
    name = admin.stream(under=".>")
    return {"servers": admin.url, "stream": name}


def found(rows: DataFrame, *columns: str) -> list[Any]:
    return sorted(map(tuple, rows.selectExpr(*columns).collect()))


@pytest.mark.full
@pytest.mark.parametrize("guarantee", ["at-least-once", "effectively-once", "exactly-once"])
def test_columns_become_payloads_in_a_registry_s_schema_with_each_guarantee(
    spark: SparkSession,
    read: Read,
    write: Write,
    orders: dict[str, str],
    guarantee: str,
    needs_server: Callable[[str], None],
) -> None:
    http = Scripted()
    answer = (200, {"version": 3, "id": 7, "schema": AVRO})
    http.answers = {"/subjects/orders-value/versions/latest": answer, "/schemas/ids/7": answer}
    framed = {"framing": "confluent", "registry": http.url, "schemaName": "orders-value"}
    how = {"guarantee": guarantee, "encode": "avro", "subject": f"{orders['stream']}.x"}
    rows = spark.range(0, 300, 1, 3).selectExpr(*ROWS, "map('a', 'b') headers")
    if guarantee == "exactly-once":
        needs_server("2.12")
        how |= {"prepareStream": "true", "transactionId": "t"}
    elif guarantee == "effectively-once":
        rows = rows.selectExpr("*", "string(id) msg_id")
    for _ in range(1 if guarantee == "at-least-once" else 2):
        write(rows, **orders, **how, **framed)
    names = ("id", "note", "tags", "kind")
    read_back = {"decode": "avro", "columns": "seq,data,headers", "subjects": how["subject"]}
    back = read(**orders, **read_back, **framed)
    found_rows = found(back, *names, "headers[0].value", "_corrupt_record IS NULL")
    http.close()
    expected = sorted(map(tuple, spark.range(300).selectExpr(*ROWS).select(*names).collect()))
    assert found_rows == [(*one, "b", True) for one in expected]


def test_a_row_that_cannot_be_encoded_stops_the_batch_with_its_field_s_name(
    spark: SparkSession, write: Write, orders: dict[str, str]
) -> None:
    how = {"encode": "avro", "schema": AVRO, "subject": f"{orders['stream']}.x"}
    rows = spark.range(3).selectExpr(*ROWS)
    for bad, says in (
        ("if(id = 1, null, id) id", "Field id is null, and the schema has long."),
        ("string(id) id", "Field id is string, and the schema has bigint: cast it."),
        ("id other", "Field other is not in the schema"),
    ):
        changed = rows.selectExpr(bad, *rows.columns[1:])
        assert says in failure(partial(write, changed, **orders, **how))


@pytest.mark.full
def test_a_streaming_query_writes_json_that_becomes_a_variant(
    spark: SparkSession, read: Read, orders: dict[str, str], admin: Admin, tmp_path: Path
) -> None:
    stream = orders["stream"]
    admin.fill([(f"{stream}.in", b"%d" % number) for number in range(3)])
    messages = spark.readStream.format("jetstream").options(**orders, subjects=f"{stream}.in")
    messages = messages.option("startingOffsets", "earliest")
    rows = messages.load().selectExpr(
        "int(string(data)) id",
        "named_struct('b', seq) a",
        "map('a', 'b', 'content-encoding', 'x') headers",
    )
    writing = rows.writeStream.format("jetstream").options(**orders, subject=f"{stream}.out")
    for _ in range(2):  # the second run has nothing to write
        writer = writing.options(encode="json", compression="gzip")
        writer = writer.option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)
    variant = "variant_get(parse_json(string(data)), '$.a.b', 'bigint')"
    out = {"subjects": f"{stream}.out", "compression": "gzip"}
    back = found(read(**orders, **out), variant, "string(data)", "headers.key")
    expected = [(n + 1, f'{{"id":{n},"a":{{"b":{n + 1}}}}}') for n in range(3)]
    assert back == [(*one, ["a"]) for one in expected]  # what was undone is not said


def test_events_of_both_modes_become_the_same_columns(
    read: Read, orders: dict[str, str], admin: Admin
) -> None:
    subject = f"{orders['stream']}.e"
    in_headers = [*{**IN_HEADERS, "ce-id": "1"}.items()]
    admin.fill([(subject, b'{"n": 1}', in_headers), (subject, structured({"n": 0}, id="0"))])
    columns = ("ce_id", "ce_source", "ce_type", "ce_datacontenttype", "n", "date(ce_time)")
    how = {"decode": "cloudevents", "schema": "n INT"}
    back = found(
        read(**orders, **how), *columns, "ce_extensions['sampled']", "_corrupt_record IS NULL"
    )
    same = ("/shop", "order.placed", "application/json")
    assert back == [(str(n), *same, n, date(2026, 1, 31), "3", True) for n in range(2)]
