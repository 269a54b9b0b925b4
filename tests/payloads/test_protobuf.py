"""Protobuf against its own library: every type, evolution, damaged messages."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import ConfigError
from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.protobuf import ProtobufDecoder
from jetspark.payloads.protobuf_encoder import ProtobufEncoder
from jetspark.payloads.protobuf_schema import message_of, schema_of_module
from jetspark.payloads.schema import PayloadSchema

SOURCE = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Kind { NEW = 0; OLD = 5; }
message Part { int32 y = 1; string s = 2; Order.Deep deep = 3; }
message Order {
  message Deep { uint64 z = 1; repeated bytes b = 2; }
  double f_double = 1; float f_float = 2; int64 f_int64 = 3; uint64 f_uint64 = 4;
  int32 f_int32 = 5; fixed64 f_fixed64 = 6; fixed32 f_fixed32 = 7; bool f_bool = 8;
  string f_string = 9; bytes f_bytes = 10; uint32 f_uint32 = 11; sfixed32 f_sfixed32 = 12;
  sfixed64 f_sfixed64 = 13; sint32 f_sint32 = 14; sint64 f_sint64 = 15;
  Kind kind = 16; Part part = 17;
  repeated int32 packed = 18; repeated int64 unpacked = 19 [packed = false];
  repeated string texts = 20; repeated Part parts = 21; repeated Kind kinds = 22;
  map<string, Part> by_name = 23; map<int32, uint32> numbers = 24;
  oneof either { int32 one = 25; string other = 26; }
  optional int32 maybe = 27;
  google.protobuf.Timestamp at = 28; google.protobuf.Duration took = 29;
  google.protobuf.StringValue text = 30; google.protobuf.UInt64Value count = 31;
}
"""
ORDER = message_of(PayloadSchema("protobuf", SOURCE, "Order"))


def classes(schema: PayloadSchema) -> Any:
    """The class of a schema's message."""
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema.text))
    pool = descriptor_pool.DescriptorPool()
    for one in files.file:
        pool.Add(one)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))


Order = classes(ORDER)


def decoded(
    payloads: Sequence[bytes], schema: PayloadSchema = ORDER, fields: Any = None
) -> list[dict[str, Any]]:
    decoder = ProtobufDecoder(schema, fields)
    found, reasons = decoder.decode(pa.array(payloads, pa.binary()))
    for reason in reasons.drop_null().to_pylist():
        raise Undecodable(reason)
    for one, field in zip(found, decoder.fields, strict=True):
        assert one.type == field.type
        one.validate(full=True)
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(found, decoder.fields.names).to_pylist()
    return rows


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNSIGNED_64 = ("f_uint64", "f_fixed64", "z")


def as_row(message: Any) -> dict[str, Any]:
    """What a message's columns have."""
    return {one.name: _of_field(message, one) for one in message.DESCRIPTOR.fields}


def _of_field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_value = field.message_type.fields_by_name["value"]
        return [(key, _value(of_value, value[key])) for key in value]
    if field.is_repeated:
        return [_value(field, one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(field, value)


def _value(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    if field.name in _UNSIGNED_64:
        return Decimal(value)
    if field.message_type is None:
        return value
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        case "google.protobuf.Duration":
            return value.seconds * 1_000_000 + value.nanos // 1000
        case "google.protobuf.StringValue":
            return value.value
        case "google.protobuf.UInt64Value":
            return Decimal(value.value)
    return as_row(value)


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "bool": st.booleans(),
    "string": _TEXTS,
    "bytes": st.binary(max_size=4),
    **{
        f"{kind}{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for kind in ("int", "sint", "sfixed")
        for bits in (32, 64)
    },
    **{
        f"{kind}{bits}": st.integers(0, 2**bits - 1)
        for kind in ("uint", "fixed")
        for bits in (32, 64)
    },
}


@st.composite
def orders(draw: st.DrawFn) -> Any:
    found = Order()
    for kind, some in _SCALARS.items():
        if draw(st.booleans()):
            setattr(found, f"f_{kind}", draw(some))
    found.kind = draw(st.sampled_from([0, 5, 77]))
    for part in (found.part, found.parts.add(), found.by_name[draw(_TEXTS)]):
        if draw(st.booleans()):
            part.y, part.s = draw(_SCALARS["int32"]), draw(_TEXTS)
            part.deep.z = draw(_SCALARS["uint64"])
            part.deep.b.extend(draw(st.lists(_SCALARS["bytes"], max_size=2)))
    found.packed.extend(draw(st.lists(_SCALARS["int32"], max_size=3)))
    found.unpacked.extend(draw(st.lists(_SCALARS["int64"], max_size=3)))
    found.texts.extend(draw(st.lists(_TEXTS, max_size=2)))
    found.kinds.extend(draw(st.lists(st.sampled_from([0, 5]), max_size=2)))
    found.numbers[draw(_SCALARS["int32"])] = draw(_SCALARS["uint32"])
    if (name := draw(st.sampled_from(["", "one", "other", "maybe"]))) != "":
        setattr(found, name, "x" if name == "other" else draw(_SCALARS["int32"]))
    if draw(st.booleans()):
        found.at.seconds = draw(st.integers(-(10**9), 4 * 10**9))
        found.at.nanos = draw(st.integers(0, 999_999)) * 1000
        found.took.seconds, found.text.value = draw(st.integers(-(10**6), 10**6)), draw(_TEXTS)
        found.count.value = draw(_SCALARS["uint64"])
    return found


@given(st.lists(orders(), min_size=1, max_size=3))
def test_all_types_have_the_values_that_were_written(messages: list[Any]) -> None:
    payloads = [one.SerializeToString() for one in messages]
    assert decoded(payloads) == [as_row(one) for one in messages]
    some = ("one", "f_string", "part")
    expected = [{name: as_row(one)[name] for name in some} for one in messages]
    assert decoded(payloads, fields=some) == expected


@given(orders(), st.data())
def test_a_damaged_message_is_what_protobuf_finds(message: Any, data: st.DataObject) -> None:
    good = message.SerializeToString()
    cut = good[: data.draw(st.integers(0, len(good)))] + data.draw(st.binary(max_size=6))
    try:
        expected = as_row(Order.FromString(cut))
    except (DecodeError, OverflowError):
        with pytest.raises(Undecodable):
            decoded([cut])
        return
    try:
        rows = decoded([cut, good])
    except Undecodable as error:  # it cuts a number of more than 64 bits, and takes any nanos
        if not re.search("a number is out of range|a time outside", str(error)):
            raise
        return
    assert same(rows[0], expected)


def same(one: Any, other: Any) -> bool:
    """Whether they are equal, with NaN equal to itself."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))


def test_fields_are_found_by_their_numbers_in_every_version() -> None:
    later = message_of(
        PayloadSchema(
            "protobuf",
            'syntax = "proto3"; package shop; message Order { string name = 9; int64 wider = 5; '
            "optional string fresh = 99; repeated int32 packed = 18; }",
        )
    )
    old = Order(f_string="x", f_int32=-3, packed=[1])
    expected = {"name": "x", "wider": -3, "fresh": None, "packed": [1]}
    assert decoded([old.SerializeToString()], later) == [expected]
    new = classes(later)(name="y", wider=2**40, fresh="z")
    (found,) = decoded([new.SerializeToString()], fields=("f_string", "f_int32"))
    assert found == {"f_string": "y", "f_int32": 0}


def test_a_schema_that_cannot_be_used_is_refused_with_a_sentence() -> None:
    for text, sentence in (
        ('syntax = "proto3"; message A { nothing x = 1; }', 'cannot be compiled: .*"nothing"'),
        ("no base64!", "neither a FileDescriptorSet"),
        ("AAAA", "neither a FileDescriptorSet"),
        ("", "neither a FileDescriptorSet"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            message_of(PayloadSchema("protobuf", text))
    with pytest.raises(ConfigError, match=r"no message 'Oder'; it has shop\.Part, shop\.Order, "):
        message_of(PayloadSchema("protobuf", SOURCE, "Oder"))
    group = 'syntax = "proto2"; message A { optional group G = 1 { optional int32 q = 1; } }'
    with pytest.raises(
        ConfigError, match=r"^g of A is a group, .* in fields \(there are none\)\.$"
    ):
        ProtobufDecoder(message_of(PayloadSchema("protobuf", group)), None)


@pytest.mark.parametrize(
    "message",
    [
        "Timestamp { int64 ticks = 1; }",
        "Timestamp { string seconds = 1; int32 nanos = 2; }",
        "Duration { int64 seconds = 1; repeated int32 nanos = 2; }",
        "Int32Value { int32 v = 1; }",
        "Int32Value { int32 value = 3; }",
        "Int32Value { Int32Value value = 1; }",
    ],
)
def test_a_known_message_with_other_fields_is_refused(message: str) -> None:
    name = message.partition(" ")[0]
    text = f'syntax = "proto3"; package google.protobuf; message A {{ {name} t = 1; }} message '
    schema = message_of(PayloadSchema("protobuf", text + message))
    for use in (ProtobufDecoder, ProtobufEncoder):
        with pytest.raises(ConfigError, match=rf"defines google\.protobuf\.{name} without"):
            use(schema)


def test_a_known_message_is_decoded_with_some_of_its_fields() -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { int32 a = 1; }'
    schema = message_of(PayloadSchema("protobuf", text))
    decoder = ProtobufDecoder(replace(schema, name="google.protobuf.Timestamp"), ["nanos"])
    assert decoder.fields == pa.schema([("nanos", pa.int32())])


def test_each_entry_of_a_map_is_there_with_and_without_the_kernel() -> None:
    text = (
        'syntax = "proto3"; message A { map<string, int32> n = 1; map<int32, B> b = 2; } '
        "message B { int32 x = 1; map<string, int32> n = 2; }"
    )
    decoder = ProtobufDecoder(message_of(PayloadSchema("protobuf", text)))
    payload = (
        b"\n\x05\n\x01k\x10\x01\n\x05\n\x01k\x10\x02\n\x00"
        b"\x12\x02\x08\x07\x12\x0d\x08\x07\x12\x09\x12\x03\n\x01k\x12\x02\x10\x05"
    )
    payloads = pa.array([payload], pa.binary())
    columns, reasons = decoder.decode_plainly(payloads)
    assert reasons.to_pylist() == [None]
    assert [one.to_pylist() for one in columns] == [
        [[("k", 1), ("k", 2), ("", 0)]],
        [[(7, None), (7, {"x": 0, "n": [("k", 0), ("", 5)]})]],
    ]
    assert [one.to_pylist() for one in decoder.decode(payloads)[0]] == [
        one.to_pylist() for one in columns
    ]


GROUPS = """
syntax = "proto2";
message Order { optional int64 id = 1; optional Part part = 2; optional Part2 other = 3; }
message Part { optional int32 y = 1; repeated group Piece = 2 { optional string name = 1; } }
message Part2 { optional int32 y = 1; optional Part2 inner = 2; }
"""


def test_a_group_at_any_depth_is_refused_and_the_other_fields_can_be_had() -> None:
    with pytest.raises(ConfigError, match=r"^part of Order is a group, or .* \(id, other\)\.$"):
        Decoding.make("protobuf", schema=GROUPS)
    with pytest.raises(ConfigError, match="has no field 'idd'; it has id, part, other"):
        Decoding.make("protobuf", schema=GROUPS, fields=("idd",))
    whole = message_of(PayloadSchema("protobuf", GROUPS))
    order = classes(whole)(id=5)
    order.part.piece.add(name="x")
    assert decoded([order.SerializeToString()], whole, ("id", "other")) == [
        {"id": 5, "other": None}
    ]


@pytest.mark.parametrize("seconds", [253_402_300_800, -62_135_596_801, 2**63 - 1, -(2**63)])
def test_a_time_that_protobuf_does_not_have_is_refused(seconds: int) -> None:
    bad, long, good = Order(), Order(), Order()
    bad.at.seconds = long.took.seconds = seconds
    for order in [bad] + [long] * (abs(seconds) > 2**60):
        with pytest.raises(Undecodable, match="outside of the years 1 to 9999"):
            decoded([order.SerializeToString()])
    good.at.seconds, good.at.nanos = 253_402_300_799, 999_999_999
    (row,) = decoded([good.SerializeToString()], fields=("at",))
    assert row["at"] == datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)


def test_a_compiled_class_is_a_schema() -> None:
    found = schema_of_module("google.protobuf.timestamp_pb2:Timestamp")
    assert decoded([b"\x08\x05"], found) == [{"seconds": 5, "nanos": 0}]
    for name in ("google.protobuf.timestamp_pb2:Tim", "no_such_module:X"):
        with pytest.raises(ConfigError, match="is no message of a compiled module"):
            schema_of_module(name)


def test_a_message_in_itself_stays_as_it_came() -> None:
    tree = 'syntax = "proto3"; message Tree { int32 v = 1; Tree left = 2; }'
    schema = message_of(PayloadSchema("protobuf", tree))
    assert decoded([b"\x08\x01\x12\x02\x08\x02"], schema) == [{"v": 1, "left": b"\x08\x02"}]
