"""Rows as payloads, read again by us and by each format's own library."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st
from tests.payloads.avro_schemas import in_spark, payload_schema, record, schemas, values, written
from tests.payloads.test_avro import decoded as decoded_avro
from tests.payloads.test_framing import Registry, batch, rows_of
from tests.payloads.test_protobuf import ORDER, SOURCE, Order, as_row, orders
from tests.payloads.test_protobuf import decoded as decoded_protobuf

from jetspark.errors import ConfigError
from jetspark.payloads.avro_schema import fields_of
from jetspark.payloads.codec import Codec
from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.protobuf import ProtobufDecoder
from jetspark.payloads.schema_sources import find_schema
from jetspark.payloads.tolerant import CORRUPT
from jetspark.wire.headers import Headers
from jetspark.wire.kernel import protobuf_messages

AVRO = json.dumps(
    record(["long", ["null", "string"], {"type": "array", "items": "int"}]) | {"name": "R"}
)
PROTO2 = 'syntax = "proto2"; message R { required int32 x0 = 1; optional string x1 = 2; }'
TREE = 'syntax = "proto3"; message R { R x0 = 1; }'
TIME = """
syntax = "proto3"; package google.type; message R { TimeOfDay x0 = 1; }
message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
"""


def encoded(rows: Any, encode: str, **how: Any) -> tuple[list[bytes], list[dict[str, str]]]:
    """Payloads and headers of rows."""
    made = Codec(encode, **how)
    schema = find_schema(encode, **{name: how[name] for name in how.keys() & _OF_SCHEMA})
    fields = fields_of(schema) if encode == "avro" else ProtobufDecoder(schema).fields
    kept = pa.struct([one for one in fields if one.name in rows[0]])
    payloads = made.encoder()(pa.RecordBatch.from_struct_array(pa.array(rows, kept)))
    return payloads, [dict(made.envelope[1])] * len(payloads)


_OF_SCHEMA = {"schema", "lookup", "schema_name", "message"}


def read(
    payloads: list[bytes], headers: list[dict[str, str]], decode: Any, **how: Any
) -> list[dict[str, Any]]:
    found = rows_of(Decoding.make(decode, **how), batch(payloads, headers))
    assert not any(row[CORRUPT] or row[REASON] for row in found), found
    return [
        {name: one for name, one in row.items() if name not in (CORRUPT, REASON)} for row in found
    ]


@pytest.mark.full
@given(st.data())
def test_rows_in_avro_are_what_fastavro_writes_and_what_we_read(data: st.DataObject) -> None:
    schema = record(data.draw(st.lists(schemas(), min_size=1, max_size=4)))
    rows = data.draw(st.lists(values(schema), min_size=1, max_size=4))
    expected = [in_spark(schema, row) for row in rows]
    payloads, _ = encoded(expected, "avro", schema=json.dumps(schema))
    assert decoded_avro(schema, payloads) == expected
    with pytest.MonkeyPatch.context() as patch:  # many rows are written by columns
        patch.setattr("jetspark.payloads.avro_encoder._MIN_KERNEL_ROWS", 0)
        assert encoded(expected, "avro", schema=json.dumps(schema))[0] == payloads
    # It has no time-millis before midnight, and writes some decimals with a byte more.
    numbers = re.sub(r'"logicalType": "(?!decimal)', '"l": "', json.dumps(schema))
    parsed = fastavro.parse_schema(json.loads(numbers))

    def of_fastavro(payload: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)

    theirs = [written(schema, row) for row in rows]
    assert [*map(of_fastavro, payloads)] == [*map(of_fastavro, theirs)]


@given(st.lists(orders(), min_size=1, max_size=3))
def test_rows_in_protobuf_are_what_its_library_reads(messages: list[Any]) -> None:
    for one in messages:
        one.kind = 5 if one.kind == 77 else one.kind  # a number without a name cannot be written
    rows = [as_row(one) for one in messages]
    for write in (protobuf_messages, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("jetspark.payloads.protobuf_encoder.protobuf_messages", write)
            payloads, _ = encoded(rows, "protobuf", schema=ORDER.text, message="Order")
        assert decoded_protobuf(payloads) == rows
        assert [as_row(Order.FromString(one)) for one in payloads] == rows


_COLUMNS = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("t", pa.timestamp("us", "UTC")),
        ("d", pa.date32()),
        ("n", pa.decimal128(20, 4)),
        ("l", pa.list_(pa.struct([("x", pa.bool_()), ("y", pa.string())]))),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
_DDL = "i BIGINT, f DOUBLE, s STRING, b BINARY, t TIMESTAMP, d DATE, n DECIMAL(20, 4)"
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_full = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
_rows = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | _texts,
        "b": st.none() | st.binary(max_size=5),
        "t": st.none() | st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC)),
        "d": st.none() | st.dates(),
        "n": st.none() | st.decimals(-(10**15), 10**15, places=4),
        "l": st.none()
        | st.lists(
            st.fixed_dictionaries({"x": st.none() | st.booleans(), "y": st.none() | _texts}),
            max_size=2,
        ),
        "m": st.none() | st.dictionaries(_texts, st.none() | st.integers(-9, 9), max_size=2),
    }
)


def as_json(value: Any) -> Any:
    """What a value is in JSON: without fields that are null, with values of maps that are."""
    match value:
        case dict():
            fields = {key: one for key, one in value.items() if one is not None}
            return {key: one if key == "m" else as_json(one) for key, one in fields.items()}
        case list():
            return [as_json(one) for one in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
    return value


@given(st.lists(_rows, min_size=1, max_size=3))
def test_rows_in_json_are_what_python_s_parser_reads(rows: list[Any]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, _COLUMNS)
    for payload, row in zip(Codec("json").encoder()(batch), rows, strict=True):
        found = json.loads(payload, parse_float=Decimal)
        assert found | {"f": float(found.get("f", 0))} == as_json(row | {"f": row["f"] or 0.0})
    codec = Codec("json", schema=_DDL)
    for payload, row in zip(codec.encoder()(batch.drop_columns(["l", "m"])), rows, strict=True):
        plain = {name: one for name, one in row.items() if name not in "lm"}
        assert codec.decode(payload) == plain
        assert codec.encode(plain)[0] == payload


@given(
    st.fixed_dictionaries(
        {"ce_id": _full, "ce_source": _full, "ce_type": _full},
        optional={
            "ce_subject": _full,
            "ce_dataschema": _full,
            "ce_datacontenttype": st.sampled_from(["application/json", "text/json"]),
            "ce_time": st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC)),
            "ce_extensions": st.dictionaries(
                st.from_regex("[a-z0-9]{5,9}z", fullmatch=True), _texts
            ),
        },
    ),
    st.sampled_from(["json", "avro", "none"]),
)
def test_events_are_what_their_sdk_reads_and_what_we_read(event: Any, format_: str) -> None:
    schema = {"json": "n INT", "avro": AVRO}.get(format_)
    data: dict[str, Any] = {"n": 1}
    if format_ != "json":
        event.pop("ce_datacontenttype", None)
        data = {"x0": 1, "x1": None, "x2": [3]} if schema else {"ce_data": b"\0a"}
    codec = Codec("cloudevents", schema=schema)
    payload, headers = codec.encode(event | data)
    assert Headers(headers or ())["Content-Type"] == "application/cloudevents+json"
    found = codec.decode(payload)
    assert {name: found[name] for name in (*event, *data)} == event | data
    theirs = JSONFormat().read(CloudEvent, payload)
    attributes = {f"ce_{name}": one for name, one in theirs.get_attributes().items()}
    wanted = {name: one for name, one in event.items() if name != "ce_extensions"}
    assert {name: attributes[name] for name in wanted} == wanted
    for name, one in event.get("ce_extensions", {}).items():
        assert theirs.get_extension(name) == one
    if format_ == "avro":
        assert theirs.get_data() == Codec("avro", schema=AVRO).encode(data)[0]
    else:
        assert theirs.get_data() == data.get("ce_data", data)


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd", "snappy"])
@pytest.mark.parametrize("framing", ["confluent", "apicurio", "azure", "nats"])
@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_a_frame_names_the_schema_by_which_we_read(
    format_: Any, framing: str, compression: str
) -> None:
    if (format_, framing) == ("protobuf", "azure"):
        pytest.skip("Azure's framing has no Protobuf.")
    schema = payload_schema(json.loads(AVRO))
    rows: list[dict[str, Any]] = [{"x0": 1, "x1": None, "x2": [3]}, {"x0": 2, "x1": "é", "x2": []}]
    if format_ == "protobuf":
        schema, rows = ORDER, [{"z": Decimal(7), "b": [b"a"]}]
    registry = Registry(*[replace(schema, version=2, number=2)] * 3)
    name = "0123456789abcdef0123456789abcdef"
    how = {"lookup": registry, "schema_name": name, "framing": framing}
    if format_ == "protobuf":
        how["message"] = "shop.Order.Deep"
    payloads, headers = encoded(rows, format_, compression=compression, **how)
    registry.asked.clear()
    assert read(payloads, headers, format_, **how) == rows
    wanted = {"confluent": 2, "apicurio": 2, "azure": (name, None), "nats": (name, 2)}
    if format_ == "avro" or framing == "confluent":
        assert wanted[framing] in registry.asked


def test_a_column_that_is_not_there_has_the_schema_s_default() -> None:
    fields = [{"name": "a", "type": "int", "default": 5}, {"name": "b", "type": ["int", "null"]}]
    schema = {"type": "record", "name": "R", "fields": [*fields, {"name": "c", "type": "string"}]}
    payloads, _ = encoded([{"c": "x"}], "avro", schema=json.dumps(schema))
    assert decoded_avro(schema, payloads) == [{"a": 5, "b": None, "c": "x"}]
    with pytest.raises(ConfigError, match=r"^Field c is missing, and has no default\.$"):
        encoded([{"a": 1}], "avro", schema=json.dumps(schema))


COLOR = {"type": "enum", "name": "C", "symbols": ["RED"]}
DEEP = {"type": "map", "values": {"type": "record", "name": "D", "fields": [
    {"name": "y", "type": "int"}]}}  # fmt: skip
SMALL = {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 3}


@pytest.mark.parametrize(
    ("encode", "schema", "value", "says"),
    [
        ("avro", "long", pa.array([1, None]), "Field x0 is null, and the schema has long"),
        ("avro", "int", pa.array([2**31]), "Field x0: 2147483648 is not an int"),
        ("avro", "int", pa.array(["7"]), "Field x0 is string, and the schema has int: cast it"),
        ("avro", "float", pa.array([0.1]), "x0 is double, and the schema has float: cast it"),
        ("avro", COLOR, pa.array(["BLUE"]), "Field x0: 'BLUE' is not one of RED"),
        ("avro", SMALL, pa.array([Decimal(128)]), "Field x0: a number needs more than 1 bytes"),
        ("avro", "string", pa.array([b"x"]), "x0 is binary, and the schema has string"),
        (
            "avro",
            DEEP,
            pa.array([[("k", {"y": None})]], pa.map_(pa.string(), pa.struct([("y", pa.int32())]))),
            "Field x0.value.y is null",
        ),
        (
            "avro",
            {"type": "array", "items": DEEP["values"]},
            pa.array([[{"y": 1, "z": 2}]]),
            "x0.element.z is not in the schema, which has y: drop it",
        ),
        (
            "avro",
            ["string", "int"],
            pa.array([{"member0": "a", "member1": 1}]),
            "x0 has a value in more than one member",
        ),
        ("protobuf", PROTO2, pa.array([None], pa.int32()), "Field x0 is null, and the schema"),
        ("protobuf", TREE, pa.array([b"\xff"]), r"Field x0: b'\\xff' is not a message of R"),
        ("protobuf", TIME, pa.array([25 * 3600 * 10**6]), "Field x0 has a time that no day has"),
        ("protobuf", "f_uint32", pa.array([-1]), "Field f_uint32: -1 is not an uint32"),
        ("protobuf", "kind", pa.array(["77"]), "kind: '77' is not one of NEW, OLD"),
        ("protobuf", "texts", pa.array([["a", None]]), "texts.element is null"),
        ("protobuf", "nope", pa.array([1]), "nope is not in the schema, which has"),
        (
            "protobuf",
            "at",
            pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC")),
            "a time outside of the years 1 to 9999",
        ),
        ("json", "x0 DOUBLE", pa.array([float("inf")]), "Field x0: inf is not a number in JSON"),
        ("json", "x0 INT", pa.array(["7"]), "Field x0 is string, and the schema has int: cast it"),
        ("cloudevents", "n INT", pa.array(["7"]), "x0 is not in the schema, which has ce_id"),
        (
            "protobuf",
            "numbers",
            pa.array([[(1, None)]], pa.map_(pa.int32(), pa.int64())),
            "numbers.value is null",
        ),
    ],
)
def test_a_value_that_the_schema_does_not_have_stops_the_batch_by_its_field_s_name(
    encode: str, schema: Any, value: pa.Array, says: str
) -> None:
    name, how = "x0", {"schema": schema}
    if encode == "avro":
        how["schema"] = json.dumps(record([schema]))
    elif encode == "protobuf" and "syntax" not in schema:
        name, how = schema, {"schema": SOURCE, "message": "Order"}
    encode_rows = Codec(encode, **how).encoder()
    with pytest.raises(ConfigError, match=says):
        encode_rows(pa.record_batch([value], [name]))


def test_two_members_of_one_are_refused() -> None:
    rows = [{"one": 1, "other": "x"}]
    with pytest.raises(ConfigError, match="either has a value in more than one member"):
        encoded(rows, "protobuf", schema=SOURCE, message="Order")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (
            {"format": "debezium"},
            "The codecs are avro, protobuf, json, cloudevents: there is no 'deb",
        ),
        ({"format": "avro"}, "need their schema"),
        ({"format": "json", "compression": "header"}, "compression must be none, gzip"),
        ({"format": "cloudevents", "framing": "nats"}, "give the registry that has it"),
        ({"format": "json", "schema": "a WORD"}, "The schema of the data cannot be used"),
        (
            {"format": "avro", "framing": "confluent", "schema": AVRO},
            "give the registry that has it, and its name",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(how: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Codec(**how).encoder()
