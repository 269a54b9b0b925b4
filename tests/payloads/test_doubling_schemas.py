"""Schemas of a few hundred bytes that become any number of columns are refused at once."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
import pytest
from tests.payloads.avro_schemas import payload_schema
from tests.payloads.test_framing import OLD, Registry, batch, confluent

from jetspark.errors import ConfigError
from jetspark.payloads import protobuf_schema
from jetspark.payloads.avro_schema import fields_of
from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.framing import Framing
from jetspark.payloads.json_schema import columns_of
from jetspark.payloads.protobuf import ProtobufDecoder
from jetspark.payloads.schema import PayloadSchema

PROTO = 'syntax = "proto3";\n'


def records(depth: int, *innermost: dict[str, Any]) -> dict[str, Any]:
    """Records of Avro, each with two fields of the next one."""
    found: dict[str, Any] = {"type": "record", "name": "N0", "fields": list(innermost)}
    for at in range(1, depth):
        fields = [{"name": "a", "type": found}, {"name": "b", "type": f"N{at - 1}"}]
        found = {"type": "record", "name": f"N{at}", "fields": fields}
    return found


def messages(depth: int) -> str:
    """Messages of Protobuf, each with two fields of the next one."""
    each = (f"message M{at} {{ M{at + 1} a = 1; M{at + 1} b = 2; }}" for at in range(depth))
    return PROTO + "\n".join(each) + f"\nmessage M{depth} {{ int32 x = 1; }}"


def each_of_all(count: int) -> str:
    """Messages that have each other as fields: as many columns as there are orders of them."""
    return PROTO + "\n".join(
        f"message M{at} {{ {' '.join(f'M{to} f{to} = {to + 1};' for to in range(count))} }}"
        for at in range(count)
    )


def properties(depth: int, keyword: str = "properties") -> dict[str, Any]:
    """Objects of a JSON Schema, each with two properties of the next one."""
    parts: dict[str, Any] = {f"D{depth}": {"type": "integer"}}
    for at in range(depth):
        inner = {"$ref": f"#/$defs/D{at + 1}"}
        parts[f"D{at}"] = {"type": "object", keyword: {"a": inner, "b": inner}}
    return {"$defs": parts, **parts["D0"]}


@pytest.fixture(autouse=True)
def _is_quick() -> Any:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < 20


LONG = {"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["x" * 100_000]}}
DEFAULT = {"name": "x", "type": "string", "default": "x" * 100_000}


@pytest.mark.parametrize("innermost", [[], [{"name": "x", "type": "int"}], [LONG], [DEFAULT]])
def test_avro(innermost: list[dict[str, Any]]) -> None:
    schema = payload_schema(records(60, *innermost))
    with pytest.raises(ConfigError, match=r"more than 10,000 fields"):
        fields_of(schema)
    decoding = Decoding(payload_schema(OLD), Framing("confluent"), lookup=Registry(OLD, schema))
    found = decoding.decoder().decode_batch(batch([confluent(1, b"\x02"), confluent(0, b"\x02")]))
    assert found.column("a").to_pylist() == [None, 1]
    assert "more than 10,000 fields" in found.column(REASON)[0].as_py()
    assert len(fields_of(payload_schema(records(8, {"name": "x", "type": "int"})))) == 2


@pytest.mark.parametrize("source", [messages(60), messages(18), each_of_all(12)])
def test_protobuf(source: str) -> None:
    schema = protobuf_schema.message_of(PayloadSchema("protobuf", source, "M0"))
    with pytest.raises(ConfigError, match=r"more than 10,000 fields|nested too deeply"):
        ProtobufDecoder(schema)


def test_messages_of_a_usual_size_are_columns() -> None:
    schema = protobuf_schema.message_of(PayloadSchema("protobuf", messages(5), "M0"))
    (a, _) = ProtobufDecoder(schema).fields.types
    assert pa.types.is_struct(a)


def test_a_json_schema() -> None:
    with pytest.raises(ConfigError, match=r"more than 10,000 fields"):
        columns_of(json.dumps(properties(60)))
    assert columns_of(json.dumps(properties(5))).names == ["a", "b"]
    for wrong in ({"$ref": "#/none"}, {"type": "object", "properties": 5}, {"anyOf": 5}):
        with pytest.raises(ConfigError):
            columns_of(json.dumps({"type": "object", "properties": {"a": wrong}}))


def test_protoc_ends_in_time_and_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_schema, "COMPILE_TIMEOUT", 0.001)
    schema = PayloadSchema("protobuf", PROTO + "message Slow { int32 x = 1; }")
    with pytest.raises(ConfigError, match="protoc does not compile"):
        protobuf_schema.message_of(schema)
    monkeypatch.setattr("subprocess.run", None)
    with pytest.raises(ConfigError, match="protoc does not compile"):
        protobuf_schema.message_of(schema)


@pytest.mark.parametrize("name", ["../x.proto", "/etc/x.proto", "", "a\x00b", "x" * 5000, ".."])
def test_an_imported_file_has_a_plain_name(name: str) -> None:
    imported = PayloadSchema("protobuf", PROTO, name)
    schema = PayloadSchema("protobuf", PROTO + "message A {}", references=(imported,))
    with pytest.raises(ConfigError, match="outside of its folder"):
        protobuf_schema.message_of(schema)
