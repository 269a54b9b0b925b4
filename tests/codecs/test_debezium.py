"""Debezium's events as rows: every form of an event, and the order of logs."""

from __future__ import annotations

import io
import json
import random
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.debezium import ENVELOPE_SCHEMA, FLAT_SCHEMA, SUBJECT, Change, Database

from jetspark.codecs.debezium import (
    DebeziumFields,
    NoRowError,
    event_of,
    given_schema,
    row_columns,
)
from jetspark.codecs.decoder import only_refused
from jetspark.codecs.decoding import Decoder, Decoding
from jetspark.codecs.json_schema import columns_of
from jetspark.codecs.schema import PayloadSchema
from jetspark.errors import ConfigError

COLUMNS = row_columns(json.dumps(ENVELOPE_SCHEMA).encode())
MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
RECORDED = Path(__file__).with_name("debezium_orders.jsonl")


def batch(*payloads: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "subject": [SUBJECT] * len(payloads),
            "seq": pa.array(range(1, len(payloads) + 1), pa.int64()),
            "timestamp": pa.array([MOMENT] * len(payloads), pa.timestamp("us", tz="UTC")),
            "data": pa.array(payloads, pa.binary()),
        }
    )


def rows(*payloads: bytes, fields: Decoder | None = None) -> list[dict[str, Any]]:
    """The decoded rows, without the message."""
    fields = fields or DebeziumFields(COLUMNS)
    given = batch(*payloads)
    found = only_refused(fields.of(given))
    assert found.schema == fields.schema(given.schema)
    found.validate(full=True)
    listed: list[dict[str, Any]] = found.drop_columns(["subject", "seq", "timestamp"]).to_pylist()
    return listed


GOOD = Change("u", 5, 10**15, None, {"id": 1, "customer": "a", "amount": Decimal(1), "changed": 1})


def changes() -> list[Change]:
    database = Database(random.Random(3), keys=4)
    database.change()
    database.snapshot()
    for _ in range(200):
        database.change(truncates=0.05)
    assert {one.op for one in database.log} == set("crudt")
    return database.log


def test_the_columns_are_those_of_the_schema_of_an_event() -> None:
    wanted = [
        ("id", pa.int64()), ("customer", pa.string()), ("amount", pa.decimal128(10, 2)),
        ("changed", pa.timestamp("us")),
    ]  # fmt: skip
    assert pa.schema(wanted) == COLUMNS
    assert row_columns(json.dumps(FLAT_SCHEMA).encode()) == COLUMNS
    for text in (b"", b"[]", b'{"fields": 1}', b'{"type": "string"}'):
        with pytest.raises(ValueError, match="no schema of a Debezium event"):
            row_columns(text)


@pytest.mark.parametrize("connector", ["postgresql", "mysql", "sqlserver", "oracle"])
def test_every_form_of_an_event_gives_the_same_row(connector: str) -> None:
    log = changes()
    fields = DebeziumFields(COLUMNS, json.dumps(ENVELOPE_SCHEMA))
    wanted = rows(*(one.payload(connector) for one in log))
    without = [one.payload(connector, schema=False) for one in log]
    assert rows(*without, fields=fields) == wanted
    for row, one in zip(wanted, log, strict=True):
        assert (row["__op"], row["__table"]) == (one.op, "orders")
        assert row["__time"] == datetime.fromtimestamp(one.time // 10**6, UTC).replace(
            microsecond=one.time % 10**6
        )
        values = one.after or one.before or {}
        assert (row["id"], row["amount"]) == (values.get("id"), values.get("amount"))
        assert row["data"] is row["_corrupt_reason"] is None
    flattened = [one for one in log if one.op != "t"]
    for schema in (True, False):
        flat = [one.payload(connector, schema=schema, flat=True) for one in flattened]
        assert rows(*flat, fields=fields) == [row for row in wanted if row["__op"] != "t"]


@pytest.mark.parametrize("connector", ["postgresql", "mysql", "sqlserver", "oracle"])
def test_positions_sort_like_the_log_and_stay_when_an_event_is_repeated(connector: str) -> None:
    log = changes()
    payloads = [one.payload(connector, schema=False) for one in log]
    found = [event_of(one, seq) for seq, one in enumerate(payloads)]
    places = [one.position for one in found if one is not None]
    assert places == sorted(places)
    assert len(set(places)) == len({one.place for one in log})
    again = [event_of(one, 10**6) for one in payloads]
    assert again == found


@pytest.mark.parametrize(
    "source", [{}, {"ts_ms": 5}, {"ts_ms": 5, "ord": 2, "collection": "orders"}, {"lsn": "x"},
               {"scn": "12", "commit_scn": "13"}, {"commit_lsn": "a:b", "change_lsn": "a:c"}]
)  # fmt: skip
def test_the_sequence_orders_what_a_log_does_not(source: dict[str, Any]) -> None:
    payload = json.dumps({"op": "c", "before": None, "after": {"id": 1}, "source": source}).encode()
    places = [event.position for seq in (9, 10, 256) if (event := event_of(payload, seq))]
    assert places == sorted(set(places))
    assert len(places) == 3


def test_a_later_file_of_a_binlog_is_later() -> None:
    def place(file: str, pos: int, row: int) -> str:
        source = {"file": file, "pos": pos, "row": row}
        value = {"op": "c", "after": {}, "source": source}
        event = event_of(json.dumps(value).encode(), 1)
        assert event is not None
        return event.position

    in_order = [place("b.9", 2**31, 0), place("b.10", 4, 0), place("b.10", 4, 1)]
    in_order += [place("b.10", 40, 0), place("b.999999", 4, 0), place("b.1000000", 4, 0)]
    assert in_order == sorted(in_order)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b" ",
        b"null",
        b'{"schema": {"type": "string"}, "payload": null}',
        b'{"ts_ms": 1790000000000}',
        b'{"op": "m", "ts_ms": 1, "source": {}, "message": {"prefix": "p", "content": "aGk="}}',
        b'{"status": "BEGIN", "id": "5:1", "ts_ms": 1, "event_count": null, '
        b'"data_collections": null}',
        b'{"source": {}, "ts_ms": 1, "databaseName": "shop", "ddl": "CREATE TABLE t (i INT)", '
        b'"tableChanges": []}',
    ],
)
def test_messages_of_no_row_are_left_out(payload: bytes) -> None:
    assert rows(payload) == []
    good = GOOD.payload("postgresql")
    assert [one["id"] for one in rows(payload, good, payload)] == [1]


def changed(**values: Any) -> bytes:
    value = json.loads(GOOD.payload("postgresql", schema=False))
    return json.dumps(value | values).encode()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{", "The payload is not one JSON object: "),
        (b"\xff", "The payload is not one JSON object: "),
        (b"[1]", "The payload is not an object."),
        (b'{"schema": {}, "payload": 3}', "The payload is not an object."),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "The payload is nested too deeply."),
        (changed(op="x"), "op is 'x', and none of c, d, r, t, u."),
        (changed(op=["c"]), "op is ['c'], and none of"),
        (b'{"id": 1, "__op": "x"}', "__op is 'x', and none of"),
        (changed(op="d"), "There is no before, so the row is not known"),
        (changed(after=None), "There is no after"),
        (changed(after='{"_id": 1}'), "after is a text, as of MongoDB"),
        (changed(after={"id": "one"}), 'Field id: "one" is not a whole number.'),
        (changed(after={"id": 1, "changed": 5}), "Field changed: 5 is not a text, and only a "),
        (changed(after={"id": 1, "customer": "__debezium_unavailable_value"}),
         "PostgreSQL did not send customer"),
        (b'{"schema": {"fields": 1}, "payload": {"id": 1}}', "The event's schema cannot be read: "),
    ],
)  # fmt: skip
def test_a_payload_that_is_no_event_keeps_it_and_has_the_reason(
    payload: bytes, reason: str
) -> None:
    fields = DebeziumFields(COLUMNS)
    good = GOOD.payload("postgresql")
    found = rows(good, payload, good, fields=fields)
    assert found[0] | {"__position": 0} == found[2] | {"__position": 0}
    assert found[0]["id"] == 1
    bad = found[1]
    assert bad["data"] == payload
    assert bad["_corrupt_reason"].startswith(reason)
    assert {one for name, one in bad.items() if name not in ("data", "_corrupt_reason")} == {None}


@pytest.mark.parametrize(
    "payload", [b'{"hello": 1}', b"{}", b'{"op": "c", "after": {"id": 1}, "ts_ms": 5}']
)
def test_an_object_that_nothing_marks_as_an_event_is_none(payload: bytes) -> None:
    bad, good, marked = rows(payload, b'{"customer": "b"}', b'{"hello": 1, "__deleted": "false"}')
    assert bad["data"] == payload
    assert bad["_corrupt_reason"].startswith("The payload is no event: it has no envelope")
    assert bad["__position"] is None
    assert good["_corrupt_reason"] is marked["_corrupt_reason"] is None


def test_a_decimal_that_is_sent_as_a_number_keeps_all_its_digits() -> None:
    columns, _, _ = given_schema("n DECIMAL(38,4)")
    payload = changed(after={"n": 7}).replace(b": 7}", b": 1001161287349.0429}")
    (row,) = rows(payload, fields=DebeziumFields(columns))
    assert row["n"] == Decimal("1001161287349.0429")


def test_a_column_that_is_named_twice_is_refused() -> None:
    for read in (given_schema, columns_of):
        with pytest.raises((ValueError, ConfigError), match="id is there twice"):
            read("id INT, id INT")


def test_a_removed_row_needs_only_its_key() -> None:
    before = {"id": 1, "customer": "__debezium_unavailable_value"}
    (row,) = rows(changed(op="d", before=before, after=None))
    assert (row["id"], row["__op"], row["_corrupt_reason"]) == (1, "d", None)


def test_the_time_of_the_message_stands_in_for_that_of_the_database() -> None:
    (row,) = rows(b'{"id": 7, "customer": "b"}')
    assert row["__time"] == MOMENT
    assert (row["id"], row["__op"], row["amount"]) == (7, "u", None)


def test_fields_that_the_columns_lack_are_left_out_and_others_are_null() -> None:
    (row,) = rows(changed(after={"id": 1, "new": {"a": [1]}}))
    assert (row["id"], row["customer"]) == (1, None)


@given(st.binary() | st.text().map(str.encode))
def test_any_payload_is_an_event_or_refused(payload: bytes) -> None:
    with suppress(NoRowError):
        event_of(payload, 1)


@given(st.data())
def test_spoilt_events_never_stop_a_batch(data: st.DataObject) -> None:
    payload = bytearray(GOOD.payload("postgresql", schema=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    for row in rows(bytes(payload)):
        assert (row["__op"] is None) == (row["data"] is not None)
        assert (row["data"] is None) == (row["_corrupt_reason"] is None)


def test_recorded_events_are_the_rows_of_their_table() -> None:
    payloads = RECORDED.read_bytes().splitlines()
    found = rows(*payloads, fields=DebeziumFields(COLUMNS))
    assert "".join(one["__op"] for one in found) == "rrcuddctc"
    assert found[3] == {
        "data": None, "id": 1001, "customer": "Ann", "amount": Decimal("22.50"),
        "changed": datetime(2026, 9, 21, 14, 15, 30, 250000), "__op": "u", "__table": "orders",
        "__time": datetime(2026, 9, 21, 14, 15, 30, 251000, UTC),
        "__position": f"{33_700_120:016x}", "_corrupt_reason": None,
    }  # fmt: skip


def test_events_in_avro_are_the_rows_of_those_in_json() -> None:
    log = changes()
    envelope = avro_envelope()
    schema = fastavro.parse_schema(envelope)
    payloads = []
    for one in log:
        source = {"table": "orders", "ts_us": one.time, "lsn": one.source("postgresql")["lsn"]}
        event = {"before": in_avro(one.before), "after": in_avro(one.after), "source": source,
                 "op": one.op}  # fmt: skip
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, event)
        payloads.append(out.getvalue())
    fields = Decoding.make("debezium", schema=json.dumps(envelope)).decoder()
    wanted = rows(*(one.payload("postgresql") for one in log))
    assert rows(*payloads, fields=fields) == wanted
    framed = Decoding.make(
        "debezium", lookup=Registry(json.dumps(envelope)), schema_name="orders", framing="confluent"
    ).decoder()
    assert rows(*(b"\0\0\0\0\7" + one for one in payloads), fields=framed) == wanted
    found = rows(payloads[0], b"", b"\xff", payloads[0][:-4], fields=fields)
    assert [one["__op"] for one in found] == [log[0].op, None, None]
    assert found[1]["data"] == b"\xff"


@dataclass
class Registry:
    """One with one schema."""

    text: str

    def by_id(self, number: int) -> PayloadSchema:
        assert number == 7
        return PayloadSchema("avro", self.text)

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        return PayloadSchema("avro", self.text, name, 3)


def avro_envelope() -> dict[str, Any]:
    """As Connect's converter for Avro writes it."""
    value = {
        "type": "record", "name": "Value", "namespace": SUBJECT, "connect.name": f"{SUBJECT}.Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": ["null", "string"], "default": None},
            {"name": "amount", "default": None, "type": ["null", {
                "type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2,
                "connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Decimal",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}}]},
            {"name": "changed", "default": None, "type": ["null", {
                "type": "long", "connect.version": 1,
                "connect.name": "io.debezium.time.MicroTimestamp"}]},
        ],
    }  # fmt: skip
    source = {
        "type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
        "fields": [{"name": "table", "type": "string"},
                   {"name": "ts_us", "type": ["null", "long"], "default": None},
                   {"name": "lsn", "type": ["null", "long"], "default": None}],
    }  # fmt: skip
    return {
        "type": "record", "name": "Envelope", "namespace": SUBJECT,
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", f"{SUBJECT}.Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
        ],
    }  # fmt: skip


def in_avro(row: Any) -> Any:
    return None if row is None else dict(row)


@pytest.mark.parametrize(
    ("ddl", "wanted"),
    [
        ("id BIGINT", [("id", pa.int64())]),
        ("`a b` : decimal , c DECIMAL(5), d numeric(38, 10)",
         [("a b", pa.decimal128(10, 0)), ("c", pa.decimal128(5, 0)), ("d", pa.decimal128(38, 10))]),
        ("v VARCHAR(20), at TIMESTAMP, n timestamp_ntz, `x``y` binary",
         [("v", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.timestamp("us")),
          ("x`y", pa.binary())]),
    ],
)  # fmt: skip
def test_columns_are_named_in_ddl(ddl: str, wanted: list[Any]) -> None:
    assert given_schema(ddl) == (pa.schema(wanted), None, False)


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("id", "'id' is not a name and a type"), ("a BIGINT, , b INT", "a field is missing"),
        ("id INTEGERS", r"there is no type INTEGERS \(did you mean INTEGER"),
        *((one, "is not a column of a plain type, such as id BIGINT") for one in (
            "id BIGINT name STRING", "a DECIMAL(50)", "a DECIMAL(2,3)", "a BIGINT(3)",
            "a ARRAY<INT>", "a DATE, b INTERVAL",
        )),
    ],
)  # fmt: skip
def test_other_ddl_is_refused(ddl: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        given_schema(ddl)


def test_a_schema_is_given_as_debezium_wrote_it_or_as_a_whole_event() -> None:
    wanted = (COLUMNS, json.dumps(ENVELOPE_SCHEMA, separators=(",", ":")), False)
    assert given_schema(json.dumps(ENVELOPE_SCHEMA)) == wanted
    assert given_schema(GOOD.payload("mysql").decode()) == wanted
