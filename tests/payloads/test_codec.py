"""Values of single messages, by every call that takes a codec."""

from __future__ import annotations

import io
import json
from asyncio import to_thread
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.payloads.avro_schemas import in_spark, payload_schema, record, schemas, values, written
from tests.payloads.test_encoding import AVRO
from tests.payloads.test_framing import Registry
from tests.payloads.test_protobuf import SOURCE, Order

import jetspark.blocking
from jetspark.connection.options import make_options
from jetspark.documents import StoredMsg
from jetspark.errors import BadPayloadError, CodecError, ConfigError
from jetspark.payloads.avro_schema import fields_of
from jetspark.payloads.codec import Codec
from jetspark.registry.lookup import schema_lookup
from jetspark.registry.service import serve_registry
from jetspark.wire.headers import Headers

if TYPE_CHECKING:
    from tests.conftest import Unique

    from jetspark.full_client import Client, JetStream
    from jetspark.server import NatsServer

VALUE = {"x0": 1, "x1": "é", "x2": [3]}


def test_a_value_comes_back_and_its_payload_is_the_format_s_own() -> None:
    codec = Codec("avro", schema=AVRO)
    payload, headers = codec.encode(VALUE, {"a": "b"})
    assert payload == written(json.loads(AVRO), VALUE | {"x1": ("string", "é")})
    assert (codec.decode(payload), headers) == (VALUE, {"a": "b"})
    codec = Codec("protobuf", schema=SOURCE, message="Order", compression="gzip")
    value = {
        "f_uint64": Decimal(2**64 - 1),
        "by_name": {"k": {"y": 1, "s": "x", "deep": None}},
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "kind": "OLD",
    }
    payload, headers = codec.encode(value, {"Content-Encoding": "none", "a": "b"})
    sent = Headers(headers or ())
    assert sent.to_dict() == {"Content-Encoding": ["gzip"], "a": ["b"]}
    found = Codec("protobuf", schema=SOURCE, message="Order").decode(payload, sent)
    assert (
        {name: found[name] for name in value}
        == value
        == {name: codec.decode(payload)[name] for name in value}
    )
    plain, _ = Codec("protobuf", schema=SOURCE, message="Order").encode(value)
    assert Order.FromString(plain).by_name["k"].s == "x"


@pytest.mark.parametrize("value", [{"a": [1, None]}, [1, "x"], "text", 7, None])
def test_json_without_a_schema_takes_any_value(value: Any) -> None:
    codec = Codec("json", compression="zstd")
    payload, headers = codec.encode(value)
    assert codec.decode(payload) == Codec("json").decode(payload, Headers(headers or ())) == value
    assert codec.encode(msgspec.json.encode(value), as_json=True)[0] == payload
    with pytest.raises(CodecError, match="The payload is not compressed with zstd"):
        codec.decode(b"{}")
    with pytest.raises(CodecError, match="The payload is not json"):
        Codec("json").decode(b"{")


def test_a_value_in_json_has_the_schema_s_types() -> None:
    schema = record([{"type": "long", "logicalType": "timestamp-millis"}, "bytes", "int"])
    codec = Codec("avro", schema=json.dumps(schema))
    text = b'{"x0": "2026-01-31T12:00:00Z", "x1": "AQI=", "x2": 3}'
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert codec.decode(codec.encode(text, as_json=True)[0]) == {"x0": at, "x1": b"\1\2", "x2": 3}
    with pytest.raises(CodecError, match=r"^Field x2: '3' is not an int\.$"):
        codec.encode(text.replace(b"3}", b'"3"}'), as_json=True)
    numbers = Codec("protobuf", schema=SOURCE, message="Order")
    assert numbers.decode(numbers.encode(b'{"numbers": {"7": 8}}', as_json=True)[0])["numbers"] == {
        7: 8
    }


@pytest.mark.full
@given(st.data())
def test_every_value_of_a_schema_is_what_fastavro_writes(data: st.DataObject) -> None:
    schema = record(data.draw(st.lists(schemas(), min_size=1, max_size=4)))
    value = data.draw(values(schema))
    codec = Codec("avro", schema=json.dumps(schema))
    kind = pa.struct(list(fields_of(payload_schema(schema))))
    (shown,) = pa.array([in_spark(schema, value)], kind).to_pylist(maps_as_pydicts="strict")
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema).replace("logicalType", "l")))
    ours, theirs = (
        fastavro.schemaless_reader(io.BytesIO(one), parsed, None)
        for one in (codec.encode(shown)[0], written(schema, value))
    )
    assert ours == theirs


DEEP_AVRO = {
    "type": "record", "name": "D", "fields": [
        {"name": "n", "type": "int"}, {"name": "d", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"name": "list", "type": {"type": "array", "items": {
            "type": "record", "name": "E", "fields": [{"name": "y", "type": "boolean"}]}}},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["NEW", "OLD"]}}],
}  # fmt: skip
GOOD = {"n": 1, "d": Decimal("1.5"), "list": [{"y": True}], "map": {"k": 1.5}, "kind": "NEW"}
WRONG: list[tuple[Codec, Any, str]] = [
    *((Codec("avro", schema=json.dumps(DEEP_AVRO)), GOOD | wrong, says) for wrong, says in (
        ({"n": 12.5}, "Field n: 12.5 is not an int."),
        ({"n": True}, "Field n: True is not an int."),
        ({"n": None}, "Field n is null, and the schema has int."),
        ({"n": 2**31}, "Field n: 2147483648 is not an int."),
        ({"d": Decimal("123.4")}, "Field d: Decimal('123.4') is not a decimal(4,2)."),
        ({"d": 1.5}, "Field d: 1.5 is not a decimal(4,2)."),
        ({"list": [{"y": True}, {"y": 0}]}, "Field list[1].y: 0 is not a boolean."),
        ({"list": [{"y": True, "z": 1}]}, "Field list[0].z is not in the schema, which has y: "),
        ({"map": {"k": "much"}}, "Field map['k']: 'much' is not a double."),
        ({"kind": "BLUE"}, "Field kind: 'BLUE' is not one of NEW, OLD."),
        ({"m": 1}, "Field m is not in the schema, which has n, d, list, map, kind: drop it."),
    )),
    (Codec("avro", schema=AVRO), {"x0": 1}, "Field x2 is missing, and has no default."),
    (Codec("avro", schema=AVRO), [1], "The value: [1] is not a struct."),
    *((Codec("protobuf", schema=SOURCE, message="Order"), wrong, says) for wrong, says in (
        ({"by_name": {"k": {"y": 12.5}}}, "Field by_name['k'].y: 12.5 is not an int."),
        ({"f_uint32": -1}, "Field f_uint32: -1 is not an uint32."),
        ({"texts": ["a", None]}, "Field texts.element is null, and the schema has a value in"),
        ({"at": datetime(2026, 1, 1)}, "Field at: datetime.datetime(2026, 1, 1, 0, 0) is not a "),
        ({"kind": 7}, "Field kind: 7 is not a string."),
        ({"by_name": {"k": {"y": 1, "z": 2}}}, "Field by_name['k'].z is not in"),
        ({"texts": "ab"}, "Field texts: 'ab' is not an array"),
    )),
    *((Codec("json", schema="n INT, d DECIMAL(4,2), f DOUBLE"), wrong, says) for wrong, says in (
        ({"n": "7"}, "Field n: '7' is not an int."),
        ({"d": Decimal("1.505")}, "Field d: Decimal('1.505') is not a decimal(4,2)."),
        ({"f": float("inf")}, "Field f: inf is not a number in JSON."),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("codec", "value", "says"), WRONG)
def test_a_value_that_does_not_fit_has_its_field(codec: Codec, value: Any, says: str) -> None:
    with pytest.raises(CodecError) as raised:
        codec.encode(value)
    assert str(raised.value).startswith(says)


def test_a_decimal_beside_a_wrong_value_in_json_is_not_blamed() -> None:
    codec = Codec("json", schema="d DECIMAL(4,2), n INT")
    with pytest.raises(CodecError, match=r"^Field n: 'x' is not an int\.$"):
        codec.encode(b'{"d": 1.25, "n": "x"}', as_json=True)
    with pytest.raises(CodecError, match="The value does not fit: Input data was truncated"):
        codec.encode(b'{"d": 1.25', as_json=True)
    with pytest.raises(CodecError, match=r"a\.b: 1\.5 is not a"):
        b = {"type": "object", "properties": {"b": {"type": "integer"}}}
        schema = json.dumps({"type": "object", "properties": {"a": b}})
        Codec("json", schema=schema).decode(b'{"a": {"b": 1.5}}')


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("TIMESTAMP", datetime(2026, 1, 1)),
        ("TIMESTAMP_NTZ", datetime(2026, 1, 1, tzinfo=UTC)),
        ("TIMESTAMP", 7),
        ("DATE", datetime(2026, 1, 1)),
        ("STRING", b"x"),
        ("BINARY", "x"),
        ("BOOLEAN", 1),
        ("DECIMAL(4, 2)", Decimal("123.4")),
        ("DOUBLE", float("nan")),
    ],
)
def test_nothing_is_taken_for_another_value(kind: str, value: Any) -> None:
    with pytest.raises(CodecError):
        Codec("json", schema=f"v {kind}").encode({"v": value})


def test_a_decimal_in_json_keeps_all_its_digits() -> None:
    codec = Codec("json", schema="n DECIMAL(38,4)")
    for text in ("1001161287349.0429", "1234567890123456789012345678901234.5678"):
        assert codec.decode(f'{{"n":{text}}}'.encode()) == {"n": Decimal(text)}


def test_a_value_may_have_no_field() -> None:
    field = {"name": "a", "type": "long", "default": 7}
    avro = json.dumps({"type": "record", "name": "Order", "fields": [field]})
    for codec, payload in (
        (Codec("protobuf", schema=SOURCE, message="Order"), b""),
        (Codec("json", schema="a BIGINT"), b"{}"),
        (Codec("avro", schema=avro), b"\x0e"),
    ):
        assert codec.encode({})[0] == payload


@pytest.mark.parametrize(
    ("format_", "schema", "sentence"),
    [
        (
            "avro",
            '{"type": "record", "name": "N", "fields": [{"name": "n", "type": "lng"}]}',
            "lng",
        ),
        ("protobuf", "message A { int32 x = 1; ", "cannot be compiled"),
        ("json", "a LNG", "there is no type LNG"),
        ("cloudevents", "a LNG", "there is no type LNG"),
    ],
)
def test_an_unusable_schema_is_refused_at_once(format_: str, schema: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Codec(format_, schema=schema)


def test_a_payload_that_does_not_decode_is_an_error() -> None:
    with pytest.raises(CodecError, match="The payload is not R in Avro"):
        Codec("avro", schema=AVRO).decode(b"\1")
    with pytest.raises(CodecError, match="duplicate key was '7'"):
        twice = Order(numbers={7: 8}).SerializeToString() * 2
        Codec("protobuf", schema=SOURCE, message="Order").decode(twice)
    schema = payload_schema(json.loads(AVRO))
    # Frames are read without a name in the registry, and not written.
    framed = Codec("avro", lookup=Registry(schema), schema=AVRO, framing="nats")
    assert framed.decode(written(json.loads(AVRO), VALUE | {"x1": ("string", "é")})) == VALUE
    with pytest.raises(ConfigError, match="give the registry that has it, and its name"):
        framed.encode(VALUE)


@pytest.mark.parametrize("codec", ["avro", {"schema": AVRO}])
def test_the_name_of_a_format_is_no_codec(codec: Any) -> None:
    with pytest.raises(ConfigError, match=r"^codec is a jetspark\.payloads\.Codec, not "):
        StoredMsg(subject="a", seq=1, data=b"", time=datetime.now(UTC)).decode(codec)


@pytest.mark.server
async def test_every_call_takes_a_codec_and_headers_name_the_registry_s_schema(
    nc: Client, js: JetStream, shared_server: NatsServer, unique: Unique
) -> None:
    name = unique("CODEC")
    await js.create_stream(name=name, subjects=[f"{name}.>"])
    async with await serve_registry(nc, js):
        await nc.schema_registry().add(name, AVRO, format="avro")
        registry = schema_lookup("nats", make_options(shared_server.url))
        codec = await to_thread(Codec, "avro", lookup=registry, schema_name=name, framing="nats")
        async with nc.subscribe(f"{name}.>") as messages:
            await nc.publish(f"{name}.a", VALUE, codec=codec, headers={"a": "b"})
            ack = await js.publish(f"{name}.b", VALUE, codec=codec, msg_id="1")
            async with js.publisher() as publisher:
                await publisher.publish(f"{name}.c", VALUE, codec=codec)
            found = [await messages.next(5) for _ in range(3)]
        for one in found:
            assert await to_thread(one.decode, codec) == VALUE
            assert one.headers is not None
            named = one.headers["Nats-Schema"], one.headers["Nats-Schema-Version"]
            assert named == (name, "1")
            assert (one.headers.get("a") == "b") is (one is found[0])
        assert (await js.stream(name).get(ack.seq)).decode(codec) == VALUE
        with pytest.raises(BadPayloadError):
            await nc.publish(f"{name}.a", VALUE)
        for publish in (nc.publish, js.publish):
            with pytest.raises(ConfigError, match="codec is a "):
                await publish(f"{name}.a", VALUE, codec="avro")  # type: ignore[arg-type]


@pytest.mark.server
def test_the_blocking_client_takes_a_codec(shared_server: NatsServer, unique: Unique) -> None:
    codec, subject = Codec("avro", schema=AVRO), unique("codec")
    with jetspark.blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=subject, subjects=[subject])
        messages = nc.subscribe(subject)
        nc.publish(subject, VALUE, codec=codec)
        js.publish(subject, VALUE, codec=codec)
        with js.publisher() as publisher:
            publisher.publish(subject, VALUE, codec=codec)
        assert [messages.next(5).decode(codec) for _ in range(3)] == [VALUE] * 3
