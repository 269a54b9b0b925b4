"""CloudEvents in both modes, with data in JSON, Avro and Protobuf."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.payloads.avro_schemas import written
from tests.payloads.test_framing import OLD, batch, packed, rows_of
from tests.payloads.test_protobuf import SOURCE, Order

from jetspark.errors import ConfigError
from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.json_schema import columns_of
from jetspark.payloads.tolerant import CORRUPT

EVENT = {
    "specversion": "1.0",
    "id": "a-1",
    "source": "/shop",
    "type": "order.placed",
    "subject": "orders/1",
    "time": "2026-01-31T12:00:00.25Z",
    "datacontenttype": "application/json",
    "dataschema": "urn:order",
    "traceparent": "00-x",
    "sampled": 3,
}
COLUMNS = {
    "ce_id": "a-1",
    "ce_source": "/shop",
    "ce_specversion": "1.0",
    "ce_type": "order.placed",
    "ce_subject": "orders/1",
    "ce_time": datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC),
    "ce_datacontenttype": "application/json",
    "ce_dataschema": "urn:order",
    "ce_extensions": [("traceparent", "00-x"), ("sampled", "3")],
}
ORDER = {"id": 7, "amount": 2.5, "tags": ["a"]}
IN_HEADERS = {
    f"ce-{name}": str(value) for name, value in EVENT.items() if name != "datacontenttype"
} | {"Content-Type": "application/json"}
JSON_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "amount": {"type": ["null", "number"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
)


def structured(data: Any = None, **changed: Any) -> bytes:
    event = {**EVENT, **changed}
    return json.dumps(event if data is None else {**event, "data": data}).encode()


def decoding(**how: Any) -> Decoding:
    return Decoding.make("cloudevents", **how)


def test_both_modes_have_the_same_columns() -> None:
    payloads = [structured(ORDER), json.dumps(ORDER).encode(), structured()]
    headers = [{}, IN_HEADERS, {"content-type": "application/cloudevents+json; charset=UTF-8"}]
    first, second, third = rows_of(decoding(), batch(payloads, headers))
    expected = {**COLUMNS, "ce_data": json.dumps(ORDER).encode(), CORRUPT: None, REASON: None}
    assert first == second == expected
    assert third == {**expected, "ce_data": None}
    small = packed("gzip", structured(ORDER))
    assert rows_of(decoding(compression="gzip"), batch([small])) == [first]


def test_data_in_json_has_the_fields_of_a_schema() -> None:
    for schema in ("id BIGINT, amount DOUBLE", JSON_SCHEMA):
        payloads = [structured(ORDER), structured({"id": "x"}), structured([1]), structured()]
        good, wrong, listed, none = rows_of(decoding(schema=schema), batch(payloads))
        assert (good["id"], good["amount"], good["ce_id"]) == (7, 2.5, "a-1")
        assert (wrong["id"], wrong["ce_id"], wrong[CORRUPT]) == (None, None, payloads[1])
        assert wrong[REASON].startswith('id: "x" is not ')
        assert "is a list, not an object" in listed[REASON]
        assert (none["id"], none["ce_id"], none[REASON]) == (None, "a-1", None)
    assert good["tags"] == ["a"]
    assert "tags" not in rows_of(decoding(schema=JSON_SCHEMA, fields=["id"]), batch(payloads))[0]


def test_data_is_decoded_by_the_schema_s_format_and_of_no_other_content_type() -> None:
    datum = written(OLD, {"a": 5})
    encoded = base64.b64encode(datum).decode()
    payloads = [
        datum,
        structured(data_base64=encoded, datacontenttype="application/avro"),
        structured(ORDER),
    ]
    headers = [IN_HEADERS | {"Content-Type": "avro/binary"}, {}, {}]
    rows = rows_of(decoding(schema=json.dumps(OLD)), batch(payloads, headers))
    assert [row["a"] for row in rows] == [5, 5, None]
    assert rows[2][REASON] == (
        "The payload is no CloudEvent: its data is application/json, not avro."
    )
    order = Order(f_int32=5).SerializeToString()
    how = decoding(schema=SOURCE, message="Order", fields=["f_int32"])
    (row,) = rows_of(how, batch([order], [IN_HEADERS | {"Content-Type": "application/protobuf"}]))
    assert row["f_int32"] == 5


def test_what_is_no_event_is_a_bad_record() -> None:
    payloads = [b"", b"[]", b"{}", structured(id=""), structured(time="noon"), b"\xff"]
    found = rows_of(decoding(), batch(payloads))
    assert [row[CORRUPT] for row in found] == payloads
    reasons = [row[REASON].removeprefix("The payload is no CloudEvent: ") for row in found]
    assert reasons[2:4] == ["it lacks id.", "it lacks id."]
    assert "'noon' is not a time" in reasons[4]
    (row,) = rows_of(decoding(), batch([b'{"a":' + b"[" * 500 + b"]" * 500 + b"}"]))
    assert row[REASON] == "The payload is nested more than 200 deep."


@pytest.mark.parametrize("content", ["Application/JSON", "application/JSON; charset=utf-8"])
def test_case_does_not_count_in_content_types_and_in_times(content: str) -> None:
    at = "2026-01-31t12:00:00.25z"
    headers = IN_HEADERS | {"content-TYPE": content, "CE-Time": at}
    rows = batch(
        [structured(ORDER, datacontenttype=content, time=at), json.dumps(ORDER).encode()],
        [{"Content-Type": "Application/CloudEvents+JSON"}, headers],
    )
    for row in rows_of(decoding(schema="id BIGINT"), rows):
        assert (row["id"], row["ce_time"], row[REASON]) == (7, COLUMNS["ce_time"], None)
        assert row["ce_datacontenttype"] == content
    (kept, _) = rows_of(decoding(), rows)
    assert json.loads(kept["ce_data"]) == ORDER


@pytest.mark.parametrize(
    "given",
    [
        {"time": "2026-01-31T12:00:60Z"},
        {"time": "2026-W05-6T12:00:00Z"},
        {"time": "0000-01-01T00:00:00Z"},
        {"time": "9999-12-31T23:59:59-00:01"},
        {"time": 1769860800000},
        {"specversion": "0.3"},
        {"data_base64": "eA=="},
        {"data_base64": "e A="},
    ],
)
def test_what_is_no_event_of_version_1_is_a_bad_record(given: dict[str, Any]) -> None:
    (row,) = rows_of(decoding(), batch([structured(ORDER, **given)]))
    assert row["ce_id"] is None
    assert row[REASON].startswith("The payload is no CloudEvent")


def test_attributes_stay_as_they_came() -> None:
    more = b'{"specversion":"1.0","id":"1","source":"s","type":"t","x":1.10,"y":1e2,"z":{"a": 1}}'
    (row,) = rows_of(decoding(), batch([more]))
    assert row["ce_extensions"] == [("x", "1.10"), ("y", "1e2"), ("z", '{"a": 1}')]
    headers = [IN_HEADERS | {"ce-subject": "%ff"}]
    (row,) = rows_of(decoding(), batch([b""], headers))
    assert (row["ce_subject"], row[REASON] is None) == (None, False)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.binary(max_size=20), st.just(structured(ORDER)), st.just(b'{"id":1}')),
            st.sampled_from([{}, IN_HEADERS, {"ce-specversion": "\u00e9"}]),
        ),
        max_size=4,
    )
)
def test_no_row_is_lost_whatever_is_in_it(messages: list[tuple[bytes, dict[str, str]]]) -> None:
    for schema in (None, "id BIGINT", json.dumps(OLD)):
        found = rows_of(
            decoding(schema=schema), batch([a for a, _ in messages], [b for _, b in messages])
        )
        assert [row[CORRUPT] is None for row in found] == [row[REASON] is None for row in found]
        assert len(found) == len(messages)


def test_a_json_schema_has_the_types_of_columns() -> None:
    schema = {
        "$defs": {"day": {"type": "string", "format": "date"}},
        "type": "object",
        "properties": {
            "day": {"$ref": "#/$defs/day"},
            "at": {"type": "string", "format": "date-time"},
            "in": {"type": "object", "properties": {"x": {"type": "boolean"}}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "maybe": {"anyOf": [{"type": "null"}, {"type": "number"}]},
            "either": {"type": ["string", "number"]},
            "any": True,
        },
    }
    assert columns_of(json.dumps(schema)) == pa.schema(
        {
            "day": pa.date32(),
            "at": pa.timestamp("us", tz="UTC"),
            "in": pa.struct([("x", pa.bool_())]),
            "map": pa.map_(pa.string(), pa.int64()),
            "maybe": pa.float64(),
            "either": pa.string(),
            "any": pa.string(),
        }
    )
    row = {"day": "2026-01-31", "map": {"k": 1}, "any": [1, None]}
    (found,) = rows_of(decoding(schema=json.dumps(schema)), batch([structured(row)]))
    assert (found["day"], found["map"]) == (date(2026, 1, 31), [("k", 1)])
    assert found["any"] == "[1, null]"
    for wrong in ('{"type": "array"}', '{"$ref": "#"}', "{", '{"properties": 5}', "id NOTHING"):
        with pytest.raises(ConfigError, match=r"The (JSON S|s)chema of the data"):
            columns_of(wrong)
