"""Values of single messages, by every call that takes a codec."""

from __future__ import annotations

import io
import json
import subprocess
import sys
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
from tests.codecs.avro_schemas import in_spark, payload_schema, record, schemas, values, written
from tests.codecs.test_encoding import AVRO
from tests.codecs.test_framing import Registry
from tests.codecs.test_protobuf import SOURCE, Order

import jetspark.blocking
from jetspark.codecs.avro import fields_of
from jetspark.codecs.codec import Codec
from jetspark.connection.options import make_options
from jetspark.errors import BadPayloadError, CodecError, ConfigError
from jetspark.registry.lookup import schema_lookup
from jetspark.registry.service import serve_registry
from jetspark.wire.headers import Headers

if TYPE_CHECKING:
    from collections.abc import Callable

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
    with pytest.raises(CodecError, match=r"Expected `int \| null`, got `str` - at `\$\.x2`"):
        codec.encode(text.replace(b"3}", b'"3"}'), as_json=True)
    numbers = Codec("protobuf", schema=SOURCE, message="Order")
    assert numbers.decode(numbers.encode(b'{"numbers": {"7": 8}}', as_json=True)[0])["numbers"] == {
        7: 8
    }


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


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"x0": "one"}, r"Expected `int \| null`, got `str` - at `\$\.x0`"),
        ({"x0": 1.5, "x2": []}, r"Expected `int \| null`, got `float` - at `\$\.x0`"),
        ({"x0": 2**63, "x2": []}, r"Expected `int` <= 9223372036854775807 - at `\$\.x0`"),
        ({"y": 1}, "unknown field `y`"),
        ([1], "Expected `object`, got `array`"),
        ({"x0": None, "x2": []}, "x0 is null in a row, and the schema has long"),
        ({}, "x0 is missing, and has no default"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_field_s_name(value: Any, says: str) -> None:
    with pytest.raises(CodecError, match=says):
        Codec("avro", schema=AVRO).encode(value)


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


def test_nothing_in_a_value_is_left_out_or_taken_apart() -> None:
    codec = Codec("protobuf", schema=SOURCE, message="Order")
    for value in ({"by_name": {"k": {"y": 1, "z": 2}}}, {"texts": "ab"}):
        with pytest.raises(CodecError, match="The value does not fit: "):
            codec.encode(value)


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
def test_a_schema_that_cannot_be_used_is_refused_at_once(
    format_: str, schema: str, sentence: str
) -> None:
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


def test_a_client_without_codecs_does_not_load_them() -> None:
    program = (
        "import sys, jetspark, jetspark.blocking; jetspark.connect; "
        "jetspark.blocking.connect; print('pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n"


@pytest.mark.server
async def test_every_call_takes_a_codec_and_headers_name_the_registry_s_schema(
    nc: Client, js: JetStream, shared_server: NatsServer, unique: Callable[[str], str]
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
                await publisher.send(f"{name}.c", VALUE, codec=codec)
            found = [await messages.next(5) for _ in range(3)]
        for one in found:
            assert await to_thread(one.decode, codec) == VALUE
            assert one.headers is not None
            named = one.headers["Nats-Schema"], one.headers["Nats-Schema-Version"]
            assert named == (name, "1")
            assert (one.headers.get("a") == "b") is (one is found[0])
        assert (await js.get_msg(name, ack.seq)).decode(codec) == VALUE
        with pytest.raises(BadPayloadError):
            await nc.publish(f"{name}.a", VALUE)


@pytest.mark.server
def test_the_blocking_client_takes_a_codec(
    shared_server: NatsServer, unique: Callable[[str], str]
) -> None:
    codec, subject = Codec("avro", schema=AVRO), unique("codec")
    with jetspark.blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=subject, subjects=[subject])
        messages = nc.subscribe(subject)
        nc.publish(subject, VALUE, codec=codec)
        js.publish(subject, VALUE, codec=codec)
        with js.publisher() as publisher:
            publisher.send(subject, VALUE, codec=codec)
        assert [messages.next(5).decode(codec) for _ in range(3)] == [VALUE] * 3
