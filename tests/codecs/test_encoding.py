"""Rows as payloads, read again by us and by each format's own library."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.avro_schemas import (
    in_spark,
    payload_schema,
    record,
    schemas,
    values,
    written,
)
from tests.codecs.test_avro import decoded as decoded_avro
from tests.codecs.test_framing import Registry, batch, rows_of
from tests.codecs.test_protobuf import ORDER, SOURCE, Order, as_row, orders
from tests.codecs.test_protobuf import decoded as decoded_protobuf

from jetspark.codecs.avro import fields_of
from jetspark.codecs.decoder import REASON
from jetspark.codecs.decoding import Decoding
from jetspark.codecs.encoding import Encoding
from jetspark.codecs.protobuf import ProtobufWriter
from jetspark.errors import ConfigError

AVRO = json.dumps(
    record(["long", ["null", "string"], {"type": "array", "items": "int"}]) | {"name": "R"}
)
PROTO2 = 'syntax = "proto2"; message R { required int32 x0 = 1; optional string x1 = 2; }'


def encoded(rows: Any, encode: str, **how: Any) -> tuple[list[bytes], list[dict[str, str]]]:
    """Payloads and headers of rows."""
    made = Encoding.make(encode, **how)
    batch = pa.array(rows, pa.struct(_of(made, rows[0])))
    payloads = made.encoder()(pa.RecordBatch.from_struct_array(batch))
    return payloads, [dict(made.headers)] * len(payloads)


def _of(made: Encoding, row: Any) -> list[pa.Field]:
    of_avro = made.schema.format == "avro"
    fields = fields_of(made.schema) if of_avro else ProtobufWriter(made.schema).fields
    return [one for one in fields if one.name in row]


def read(
    payloads: list[bytes], headers: list[dict[str, str]], decode: Any, **how: Any
) -> list[dict[str, Any]]:
    found = rows_of(Decoding.make(decode, **how), batch(payloads, headers))
    assert not any(row["data"] or row[REASON] for row in found), found
    return [
        {name: one for name, one in row.items() if name not in ("data", REASON)} for row in found
    ]


@given(st.data())
def test_rows_in_avro_are_what_fastavro_writes_and_what_we_read(data: st.DataObject) -> None:
    schema = record(data.draw(st.lists(schemas(), min_size=1, max_size=4)))
    rows = data.draw(st.lists(values(schema), min_size=1, max_size=4))
    expected = [in_spark(schema, row) for row in rows]
    payloads, _ = encoded(expected, "avro", schema=json.dumps(schema))
    assert decoded_avro(schema, payloads) == expected
    # It has no time-millis before midnight.
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema).replace("logicalType", "l")))

    def of_fastavro(payload: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)

    theirs = [written(schema, row) for row in rows]
    assert [*map(of_fastavro, payloads)] == [*map(of_fastavro, theirs)]


@given(st.lists(orders(), min_size=1, max_size=3))
def test_rows_in_protobuf_are_what_its_library_reads(messages: list[Any]) -> None:
    for one in messages:
        one.kind = 5 if one.kind == 77 else one.kind  # a number without a name cannot be written
    rows = [as_row(one) for one in messages]
    payloads, _ = encoded(rows, "protobuf", schema=ORDER.text, message="Order")
    assert decoded_protobuf(payloads) == rows
    assert [as_row(Order.FromString(one)) for one in payloads] == rows


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
    wanted = {
        "confluent": 2,
        "apicurio": 2,
        "azure": (name, None),
        "nats": (name, 2),
    }
    if format_ == "avro" or framing == "confluent":
        assert wanted[framing] in registry.asked


def test_a_column_that_is_not_there_has_the_schema_s_default() -> None:
    fields = [{"name": "a", "type": "int", "default": 5}, {"name": "b", "type": ["int", "null"]}]
    schema = {"type": "record", "name": "R", "fields": [*fields, {"name": "c", "type": "string"}]}
    payloads, _ = encoded([{"c": "x"}], "avro", schema=json.dumps(schema))
    assert decoded_avro(schema, payloads) == [{"a": 5, "b": None, "c": "x"}]
    with pytest.raises(ConfigError, match=r"^c is missing, and has no default\.$"):
        encoded([{"a": 1}], "avro", schema=json.dumps(schema))


COLOR = {"type": "enum", "name": "C", "symbols": ["RED"]}
DEEP = {"type": "map", "values": {"type": "record", "name": "D", "fields": [
    {"name": "y", "type": "int"}]}}  # fmt: skip
SMALL = {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 3}


@pytest.mark.parametrize(
    ("encode", "schema", "value", "says"),
    [
        ("avro", "long", pa.array([1, None]), "x0 is null in a row, and the schema has long"),
        ("avro", "int", pa.array([2**31]), "x0 has a value that is no int32: Integer value"),
        ("avro", "int", pa.array(["7"]), "x0 is string, and the schema has int32: cast it"),
        ("avro", "float", pa.array([0.1]), "x0 is double, and the schema has float: cast it"),
        ("avro", COLOR, pa.array(["BLUE"]), "x0 is 'BLUE', not one of RED"),
        ("avro", SMALL, pa.array([Decimal(128)]), "x0 has a number of more than 1 bytes"),
        ("avro", "string", pa.array([b"x"]), "x0 is binary, and the schema has string"),
        (
            "avro",
            DEEP,
            pa.array([[("k", {"y": None})]], pa.map_(pa.string(), pa.struct([("y", pa.int32())]))),
            "x0.value.y is null in a row",
        ),
        (
            "avro",
            {"type": "array", "items": DEEP["values"]},
            pa.array([[{"y": 1, "z": 2}]]),
            "x0.element.z is no field of the schema, which has y: drop it",
        ),
        (
            "avro",
            ["string", "int"],
            pa.array([{"member0": "a", "member1": 1}]),
            "x0 has more than one member with a value",
        ),
        ("protobuf", PROTO2, pa.array([None], pa.int32()), "x0 is null in a row, and the schema"),
        ("protobuf", "f_uint32", pa.array([-1]), "f_uint32 has a value that is no uint32"),
        ("protobuf", "kind", pa.array(["77"]), "kind is '77', not one of NEW, OLD"),
        ("protobuf", "texts", pa.array([["a", None]]), "texts.element is null in a row"),
        ("protobuf", "nope", pa.array([1]), "nope is no field of the schema, which has"),
        (
            "protobuf",
            "at",
            pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC")),
            "a time outside of the years 1 to 9999",
        ),
        (
            "protobuf",
            "numbers",
            pa.array([[(1, None)]], pa.map_(pa.int32(), pa.int64())),
            "numbers.value is null in a row",
        ),
    ],
)
def test_a_value_that_the_schema_does_not_have_stops_the_batch_by_its_field_s_name(
    encode: str, schema: Any, value: pa.Array, says: str
) -> None:
    name, how = "x0", {"schema": schema}
    if encode == "avro":
        how["schema"] = json.dumps(record([schema]))
    elif schema != PROTO2:
        name, how = schema, {"schema": SOURCE, "message": "Order"}
    encode_rows = Encoding.make(encode, **how).encoder()
    with pytest.raises(ConfigError, match=says):
        encode_rows(pa.record_batch([value], [name]))


def test_two_members_of_one_are_refused() -> None:
    rows = [{"one": 1, "other": "x"}]
    with pytest.raises(ConfigError, match="either has more than one member with a value in a row"):
        encoded(rows, "protobuf", schema=SOURCE, message="Order")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"encode": "debezium"}, "encode must be avro, protobuf, not 'debezium'"),
        ({"encode": "avro"}, "need their schema"),
        ({"encode": "avro", "compression": "header"}, "compression must be none, gzip"),
        (
            {"encode": "avro", "framing": "confluent", "schema": AVRO},
            "give the registry that has it, and its name",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(how: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Encoding.make(**how)
