"""Debezium's events as rows: every form of an event, and the order of logs."""

from __future__ import annotations

import base64
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

from jetspark.errors import ConfigError
from jetspark.payloads import debezium, log_position
from jetspark.payloads.debezium_events import Event, NoRowError, parse_event
from jetspark.payloads.debezium_placeholders import Placeholders
from jetspark.payloads.debezium_schema import parse_schema, row_columns
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.json_schema import columns_of
from jetspark.payloads.schema import PayloadSchema
from jetspark.payloads.tolerant import CORRUPT, Decoder

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
    fields = fields or debezium.DebeziumDecoder(COLUMNS)
    given = batch(*payloads)
    found = fields.decode_batch(given)
    assert found.schema == fields.decoded_schema(given.schema)
    found.validate(full=True)
    names = [one for one in found.schema.names if one not in (*given.schema.names, CORRUPT)]
    listed: list[dict[str, Any]] = found.select(names).to_pylist()
    for one in listed:  # the place in the log, which all forms of an event have
        one["__position"] = one["__position"] and one["__position"].partition(".")[0]
    return listed


def log_of(event: Event | None) -> str:
    assert event is not None
    return event.position.partition(".")[0]


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


def test_a_schema_that_is_nested_too_deep_for_spark_is_none() -> None:
    column: dict[str, Any] = {"type": "int32", "field": "id"}
    side: dict[str, Any] = {"type": "struct", "field": "after", "fields": [column]}
    for _ in range(300):
        column = {"type": "array", "items": column, "field": "deep"}
    text = json.dumps({"type": "struct", "fields": [{**side, "fields": [column]}]})
    with pytest.raises(ValueError, match="nested more than 60 deep"):
        row_columns(text.encode())
    assert row_columns(json.dumps({"type": "struct", "fields": [side]}).encode()).names == ["id"]


@pytest.mark.parametrize("connector", ["postgresql", "mysql", "sqlserver", "oracle"])
def test_every_form_of_an_event_gives_the_same_row(connector: str) -> None:
    log = changes()
    fields = debezium.DebeziumDecoder(COLUMNS, json.dumps(ENVELOPE_SCHEMA))
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
        assert row["_corrupt_reason"] is None
    flattened = [one for one in log if one.op != "t"]
    for schema in (True, False):
        flat = [one.payload(connector, schema=schema, flat=True) for one in flattened]
        assert rows(*flat, fields=fields) == [row for row in wanted if row["__op"] != "t"]


@pytest.mark.parametrize("connector", ["postgresql", "mysql", "sqlserver", "oracle"])
def test_positions_sort_like_the_log_and_stay_when_an_event_is_repeated(connector: str) -> None:
    log = [one for one in changes() if (connector, one.op) != ("postgresql", "r")]
    payloads = [one.payload(connector, schema=False) for one in log]
    found = [parse_event(one, seq) for seq, one in enumerate(payloads)]
    places = [one.position for one in found if one is not None]
    assert places == sorted(places)
    assert len({*map(log_of, found)}) > len(log) / 5
    again = [parse_event(one, 10**6 + seq) for seq, one in enumerate(payloads)]
    assert [*map(log_of, again)] == [*map(log_of, found)]
    assert [one and one.position[-12:] for one in again] == [one[-12:] for one in places]


@pytest.mark.parametrize(
    "source", [{}, {"ts_ms": 5}, {"ts_ms": 5, "ord": 2, "collection": "orders"}, {"lsn": None},
               {"scn": "12", "commit_scn": "13"}, {"commit_lsn": "a:b", "change_lsn": "a:c"},
               {"file": "b.1", "pos": 4, "row": 0}, {"file": "", "pos": 0}]
)  # fmt: skip
def test_the_sequence_orders_what_a_log_does_not(source: dict[str, Any]) -> None:
    payload = json.dumps({"op": "c", "before": None, "after": {"id": 1}, "source": source}).encode()
    places = [event.position for seq in (9, 10, 256) if (event := parse_event(payload, seq))]
    assert places == sorted(set(places))
    assert len(places) == 3


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
        (b"[1]", "The payload is a list, not an object."),
        (b'{"schema": {}, "payload": 3}', "The payload is a number, not an object."),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "The payload is nested more than 200 deep."),
        (changed(op="x"), "op is 'x', and none of c, d, r, t, u."),
        (changed(op=["c"]), "op is ['c'], and none of"),
        (b'{"id": 1, "__op": "x"}', "__op is 'x', and none of"),
        (changed(op="d"), "There is no before, so the row is not known"),
        (changed(after=None), "There is no after"),
        (changed(after='{"_id": 1}'), "after is a text, as of MongoDB"),
        (changed(after={"id": "one"}), 'id: "one" is not a BIGINT.'),
        (changed(after={"id": 1, "changed": 5}), "changed: 5 is not a TIMESTAMP_NTZ, since"),
        (changed(after={"id": 1, "customer": "__debezium_unavailable_value"}),
         "The database did not send customer"),
        (b'{"schema": {"fields": 1}, "payload": {"id": 1}}', "The event's schema cannot be read: "),
    ],
)  # fmt: skip
def test_a_payload_that_is_no_event_keeps_it_and_has_the_reason(
    payload: bytes, reason: str
) -> None:
    fields = debezium.DebeziumDecoder(COLUMNS)
    good = GOOD.payload("postgresql")
    found = rows(good, payload, good, fields=fields)
    assert found[0] | {"__position": 0} == found[2] | {"__position": 0}
    assert found[0]["id"] == 1
    bad = found[1]
    assert bad["_corrupt_reason"].startswith(reason)
    assert {one for name, one in bad.items() if name != "_corrupt_reason"} == {None}


@pytest.mark.parametrize(
    "payload", [b'{"hello": 1}', b"{}", b'{"op": "c", "after": {"id": 1}, "ts_ms": 5}']
)
def test_an_object_that_nothing_marks_as_an_event_is_none(payload: bytes) -> None:
    bad, good, marked = rows(payload, b'{"customer": "b"}', b'{"hello": 1, "__deleted": "false"}')
    assert bad["_corrupt_reason"].startswith("The payload is no event: it has no envelope")
    assert bad["__position"] is None
    assert good["_corrupt_reason"] is marked["_corrupt_reason"] is None


def test_a_decimal_that_is_sent_as_a_number_keeps_all_its_digits() -> None:
    columns, _, _ = parse_schema("n DECIMAL(38,4)")
    payload = changed(after={"n": 7}).replace(b": 7}", b": 1001161287349.0429}")
    (row,) = rows(payload, fields=debezium.DebeziumDecoder(columns))
    assert row["n"] == Decimal("1001161287349.0429")


def test_a_column_that_is_named_twice_is_refused() -> None:
    for read in (parse_schema, columns_of):
        with pytest.raises((ValueError, ConfigError), match="id is there twice"):
            read("id INT, id INT")


def test_the_time_of_the_message_stands_in_for_that_of_the_database() -> None:
    (row,) = rows(b'{"id": 7, "customer": "b"}')
    assert row["__time"] == MOMENT
    assert (row["id"], row["__op"], row["amount"]) == (7, "u", None)


def test_fields_that_the_columns_lack_are_left_out_and_others_are_null() -> None:
    (row,) = rows(changed(after={"id": 1, "new": {"a": [1]}}))
    assert (row["id"], row["customer"]) == (1, None)


# -- what is left out, and what is not -----------------------------------------------------------

FLAT = {"id": 1, "customer": "a", "source": "web"}


@pytest.mark.parametrize(
    ("ddl", "payload", "wanted"),
    [
        # A table's columns have any names.
        ("id INT, source STRING", FLAT, {"id": 1, "source": "web"}),
        ("id INT, source STRING", FLAT | {"__op": "c"}, {"source": "web"}),
        ("status STRING, id STRING, data_collections STRING",
         {"status": "new", "id": "a", "data_collections": "x"}, {"status": "new"}),
        ("status STRING, id STRING, event_count INT, data_collections STRING",
         {"status": "END", "id": "a", "event_count": 1, "data_collections": None},
         {"event_count": 1}),
        ("ts_ms BIGINT", {"ts_ms": 5}, {"ts_ms": 5}),
        ("ddl STRING, source STRING", {"ddl": "x", "source": "y"}, {"ddl": "x"}),
        ("id STRING, type STRING", {"id": "a", "type": "b", "aggregate_type": "c"}, {"id": "a"}),
        ("op STRING, source STRING", {"op": "m", "source": "x"}, {"op": "m"}),
        ("id INT, __kind STRING", {"id": 1, "__kind": "x", "__op": "c"}, {"__kind": "x"}),
        ("id INT, __lsn BIGINT", {"id": 1, "__lsn": 5, "__op": "c"}, {"__lsn": 5}),
    ],
)  # fmt: skip
def test_a_row_is_never_taken_for_what_debezium_sends_beside_rows(
    ddl: str, payload: dict[str, Any], wanted: dict[str, Any]
) -> None:
    (row,) = rows(
        json.dumps(payload).encode(), fields=debezium.DebeziumDecoder(parse_schema(ddl)[0])
    )
    assert row["_corrupt_reason"] is None
    assert wanted.items() <= row.items()


@pytest.mark.parametrize(
    "payload",
    [
        {"source": "web", "user": 1},
        {"source": {"app": 1}, "user": 1},
        {"source": {}, "ddl": "x", "user": 1},
        {"status": "BEGIN", "id": "5:1", "data_collections": 1, "event_count": 1},
        {"op": "m", "source": {}, "message": "hello"},
        {"op": "m", "message": {}},
        {"ts_ms": "5"},
        {
            "specversion": "1.0",
            "id": "1",
            "source": "/a",
            "type": "order.placed",
            "data": {"id": 1},
        },
    ],
)
def test_an_event_of_an_application_is_a_bad_record(payload: dict[str, Any]) -> None:
    (row,) = rows(
        json.dumps(payload).encode(), fields=debezium.DebeziumDecoder(pa.schema([("x", pa.int8())]))
    )
    assert row["_corrupt_reason"]


def test_a_schema_says_what_a_message_is() -> None:
    schema: dict[str, Any] = {"fields": [{"type": "int64", "field": "ts_ms"}]}
    value = {"schema": schema | {"name": "shop.public.beats.Value"}, "payload": {"ts_ms": 5}}
    fields = debezium.DebeziumDecoder(row_columns(json.dumps(value["schema"]).encode()))
    assert [one["ts_ms"] for one in rows(json.dumps(value).encode(), fields=fields)] == [5]
    value["schema"] = schema | {"name": "io.debezium.connector.common.Heartbeat"}
    assert rows(json.dumps(value).encode(), fields=fields) == []


def test_notifications_are_left_out() -> None:
    value = {"id": "5f6a", "aggregate_type": "Initial Snapshot", "type": "STARTED",
             "additional_data": {"connector_name": "shop"}, "timestamp": 5}  # fmt: skip
    assert rows(json.dumps(value).encode()) == []


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_event_in_debezium_s_format_of_cloud_events_is_its_row(*, wrapped: bool) -> None:
    after = {"id": 1, "customer": "a", "amount": None, "changed": None}
    data: Any = {"before": None, "after": after}
    if wrapped:
        sides = [one for one in ENVELOPE_SCHEMA["fields"] if one["field"] in ("before", "after")]
        data = {"schema": {"type": "struct", "fields": sides}, "payload": data}
    value = {
        "id": "name:shop;lsn:29274832;txId:565", "source": "/debezium/postgresql/shop",
        "specversion": "1.0", "type": "io.debezium.connector.postgresql.DataChangeEvent",
        "time": "2020-01-13T13:55:39.738Z", "datacontenttype": "application/json",
        "iodebeziumop": "u", "iodebeziumversion": "3.2.0.Final",
        "iodebeziumconnector": "postgresql", "iodebeziumname": "shop",
        "iodebeziumtsms": "1578923739738", "iodebeziumsnapshot": "false",
        "iodebeziumtable": "orders", "iodebeziumlsn": "29274832", "iodebeziumxmin": None,
        "data": data,
    }  # fmt: skip
    (row,) = rows(json.dumps(value).encode())
    assert (row["id"], row["__op"], row["__table"]) == (1, "u", "orders")
    assert row["__time"] == datetime(2020, 1, 13, 13, 55, 39, 738000, UTC)
    assert row["__position"] == f"{29274832:016x}"
    (flat,) = rows(json.dumps(value | {"data": after}).encode())
    assert flat == row
    (bare,) = rows(json.dumps({k: v for k, v in value.items() if "iodeb" not in k}).encode())
    assert "extension.attributes.enable" in bare["_corrupt_reason"]


def test_columns_that_begin_with_two_underscores_are_columns() -> None:
    column = {"type": "string", "optional": True, "field": "__kind"}
    after = {"type": "struct", "fields": [*FLAT_SCHEMA["fields"][:1], column], "field": "after"}
    schema = {"type": "struct", "fields": [after | {"field": "before"}, after,
                                           {"type": "string", "field": "op"}]}  # fmt: skip
    text = json.dumps(schema).encode()
    assert row_columns(text).names == ["id", "__kind"]
    fields = debezium.DebeziumDecoder(row_columns(text), text.decode())
    payload = {"op": "c", "source": {}, "before": None, "after": {"id": 1, "__kind": "x"}}
    assert [one["__kind"] for one in rows(json.dumps(payload).encode(), fields=fields)] == ["x"]
    flat = {"type": "struct", "fields": [*FLAT_SCHEMA["fields"], column,
                                         column | {"field": "__source_lsn"}]}  # fmt: skip
    assert row_columns(json.dumps(flat).encode()).names == [*COLUMNS.names, "__kind"]


def test_a_column_with_the_name_of_one_of_each_event_is_refused() -> None:
    with pytest.raises(ValueError, match="__position"):
        parse_schema("id INT, __position STRING")
    after = {"type": "struct", "fields": [{"type": "int32", "field": "__op"}], "field": "after"}
    schema = {"fields": [after | {"field": "before"}, after, {"type": "string", "field": "op"}]}
    with pytest.raises(ValueError, match="__op"):
        row_columns(json.dumps(schema).encode())


# -- values that the database did not send -------------------------------------------------------

_PLACEHOLDER = "__debezium_unavailable_value"


def placeholders(text: str) -> list[tuple[str, Any]]:
    raw = text.encode()
    return [
        ("STRING", text), ("BINARY", base64.b64encode(raw).decode()), ("STRING", raw.hex()),
        ("STRING", base64.urlsafe_b64encode(raw).decode()), ("ARRAY<STRING>", [text]),
        ("ARRAY<INT>", list(raw)), ("ARRAY<BIGINT>", list(raw)), ("ARRAY<DATE>", list(raw)),
        ("MAP<STRING, STRING>", {text: text}), ("STRING", f'{{"{text}": "{text}"}}'),
        ("STRUCT<a: STRUCT<b: STRING>>", {"a": {"b": text}}),
        ("ARRAY<STRUCT<a: STRING>>", [{"a": text}]), ("STRING", {"deep": [[text]]}),
    ]  # fmt: skip


_TYPES = {
    "STRING": pa.string(), "BINARY": pa.binary(), "ARRAY<STRING>": pa.list_(pa.string()),
    "ARRAY<INT>": pa.list_(pa.int32()), "ARRAY<BIGINT>": pa.list_(pa.int64()),
    "ARRAY<DATE>": pa.list_(pa.date32()), "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    "STRUCT<a: STRUCT<b: STRING>>": pa.struct([("a", pa.struct([("b", pa.string())]))]),
    "ARRAY<STRUCT<a: STRING>>": pa.list_(pa.struct([("a", pa.string())])),
}  # fmt: skip


@pytest.mark.parametrize("text", [_PLACEHOLDER, "hex:5f5fc3bc", "<unchanged>"])
def test_a_placeholder_never_stands_for_a_value(text: str) -> None:
    sent = bytes.fromhex(text[4:]).decode() if text.startswith("hex:") else text
    for kind, value in placeholders(sent):
        columns = pa.schema([("id", pa.int64()), ("v", _TYPES[kind])])
        fields = debezium.DebeziumDecoder(columns, placeholders=Placeholders(text))
        after = {"id": 1, "v": value}
        (row,) = rows(changed(after=after), fields=fields)
        assert "REPLICA IDENTITY" in row["_corrupt_reason"], (kind, value)
        (row,) = rows(changed(op="d", before=after, after=None), fields=fields)
        assert (row["id"], row["v"], row["__op"]) == (1, None, "d")
        (row,) = rows(changed(after=after | {"v": None}), fields=fields)
        assert row["_corrupt_reason"] is None


def test_a_row_with_a_number_that_json_lacks_is_one() -> None:
    fields = debezium.DebeziumDecoder(pa.schema([("v", pa.float64()), ("s", pa.string())]))
    payload = b'{"v": NaN, "s": "a\\n", "__op": "c"}', b'{"v": -Infinity, "s": "\\\\"}'
    found = rows(*payload, fields=fields)
    assert [str(one["v"]) for one in found] == ["nan", "-inf"]
    assert [one["s"] for one in found] == ["a\n", "\\"]


def test_the_placeholder_is_an_option_of_debezium_s_decoder_alone() -> None:
    schema = "id INT, customer STRING"
    fields = Decoding.make("debezium", schema=schema, unavailable_value="<unchanged>").decoder()
    bad, good = rows(
        changed(after={"id": 1, "customer": "<unchanged>"}),
        changed(after={"id": 1, "customer": _PLACEHOLDER}), fields=fields,
    )  # fmt: skip
    assert "REPLICA IDENTITY" in bad["_corrupt_reason"]
    assert good["customer"] == _PLACEHOLDER
    with pytest.raises(ConfigError, match="unavailableValue: non-hexadecimal number"):
        Decoding.make("debezium", schema=schema, unavailable_value="hex:x")
    with pytest.raises(ConfigError, match="is for Debezium"):
        Decoding.make("cloudevents", unavailable_value="x")


# -- order ---------------------------------------------------------------------------------------


def position(source: dict[str, Any], seq: int, op: str = "u", **row: Any) -> str:
    value = {"op": op, "before": row, "after": row, "source": source}
    event = parse_event(json.dumps(value).encode(), seq)
    assert event is not None
    return event.position


@pytest.mark.parametrize(
    ("placed", "unplaced"),
    [
        ({"lsn": 5}, {"lsn": None}),
        ({"file": "b.1", "pos": 4, "row": 0}, {"file": "", "pos": 0, "row": 0}),
        ({"commit_lsn": "1:2:3", "change_lsn": "1:2:3"}, {"commit_lsn": None, "change_lsn": None}),
        ({"scn": "5", "commit_scn": "6"}, {"scn": None, "commit_scn": None}),
        ({"ord": 1, "ts_ms": 5}, {"ord": None, "ts_ms": 7}),
    ],
)
def test_an_event_without_a_place_in_the_log_outranks_none_that_has_one(
    placed: dict[str, Any], unplaced: dict[str, Any]
) -> None:
    time = {"ts_ms": 1_790_000_000_000}
    assert position(time | unplaced, 99, "r") < position(time | placed, 1)


def test_changes_of_a_transaction_that_was_open_replace_rows_of_a_snapshot() -> None:
    """PostgreSQL has them at places before the snapshot's."""
    read, earlier = position({"lsn": 9, "snapshot": "true"}, 1, "r"), position({"lsn": 7}, 2)
    assert read < earlier
    assert log_position.place_after(position({"lsn": 9}, 3, "r"), [read, earlier]) > earlier


def test_events_of_one_place_have_the_order_of_the_stream() -> None:
    source = {"file": "b.1", "pos": 4}  # of a compressed transaction
    insert = position(source | {"row": 2}, 7, "c")
    assert insert < position(source | {"row": 0}, 8) < position(source | {"row": 1}, 9, "d")


@pytest.mark.parametrize(
    "in_order",
    [
        [{"lsn": 9}, {"lsn": 10}, {"lsn": "11"}, {"lsn": 2**63}],
        [{"file": file, "pos": pos, "row": 0} for file, pos in (
            ("b.9", 2**31), ("b.10", 4), ("b.10", 40), ("b.999999", 4), ("b.1000000", 4))],
        [{"scn": "9"}, {"scn": "10"}, {"scn": "9", "commit_scn": "11"}, {"scn": 12}],
        [{"commit_lsn": "9:0:1"}, {"commit_lsn": "a:0:1"},  # rows of a snapshot, then changes
         {"commit_lsn": "0000000A:00:1", "change_lsn": "9:0:1"},
         {"commit_lsn": "a:0:1", "change_lsn": "A:0:1"}, {"commit_lsn": "10:0:1"}],
        [{"ts_ms": 9000, "ord": 9}, {"ts_ms": 9000, "ord": 10}, {"ts_ms": 10000, "ord": 1}],
    ],
)  # fmt: skip
def test_places_have_the_order_of_numbers(in_order: list[dict[str, Any]]) -> None:
    places = [position(one, 9 - at) for at, one in enumerate(in_order)]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "source",
    [{"lsn": "x"}, {"lsn": True}, {"lsn": 1.5}, {"lsn": -1}, {"lsn": 2**64}, {"lsn": "١"},
     {"file": "b.1"}, {"file": "b", "pos": 1}, {"file": 1, "pos": 1}, {"file": "b.1", "pos": None},
     {"ord": 1}, {"ord": 1, "ts_ms": None}, {"ord": {}, "ts_ms": 1}, {"scn": []},
     {"commit_lsn": "x"}, {"commit_lsn": "1", "change_lsn": 5}, {"ts_ms": 10**18}, {"ts_ms": "x"}],
)  # fmt: skip
def test_a_place_or_time_of_no_database_makes_a_bad_record(source: dict[str, Any]) -> None:
    bad, good = rows(changed(source=source), GOOD.payload("mysql"))
    assert bad["_corrupt_reason"]
    assert good["id"] == 1


@given(st.binary() | st.text().map(str.encode))
def test_any_payload_is_an_event_or_refused(payload: bytes) -> None:
    with suppress(NoRowError):
        parse_event(payload, 1)


@given(st.data())
def test_spoilt_events_never_stop_a_batch(data: st.DataObject) -> None:
    payload = bytearray(GOOD.payload("postgresql", schema=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    for row in rows(bytes(payload)):
        assert (row["__op"] is None) == (row["_corrupt_reason"] is not None)


def test_recorded_events_are_the_rows_of_their_table() -> None:
    payloads = RECORDED.read_bytes().splitlines()
    found = rows(*payloads, fields=debezium.DebeziumDecoder(COLUMNS))
    assert "".join(one["__op"] for one in found) == "rrcuddctc"
    assert found[3] == {
        "id": 1001, "customer": "Ann", "amount": Decimal("22.50"),
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
        event = {"before": one.before, "after": one.after, "source": source,
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
    assert parse_schema(ddl) == (pa.schema(wanted), None, False)


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
        parse_schema(ddl)


def test_a_schema_is_given_as_debezium_wrote_it_or_as_a_whole_event() -> None:
    wanted = (COLUMNS, json.dumps(ENVELOPE_SCHEMA, separators=(",", ":")), False)
    assert parse_schema(json.dumps(ENVELOPE_SCHEMA)) == wanted
    assert parse_schema(GOOD.payload("mysql").decode()) == wanted
