"""Which schema may follow which; the rules of Protobuf and JSON Schema have tests of their own."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from jetspark.codecs.schema import PayloadSchema
from jetspark.errors import ConfigError
from jetspark.registry.compatibility import check_definition, incompatibilities, violations


def avro(kind: Any, **more: Any) -> PayloadSchema:
    """A record with one field."""
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **more}]}
    return PayloadSchema("avro", json.dumps(record))


def logical(name: str, kind: str = "long", **more: Any) -> PayloadSchema:
    return avro({"type": kind, "logicalType": name, **more})


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        (avro("long"), avro("int"), ""),
        (avro("int"), avro("long"), "type mismatch (reader type: int"),
        (avro(["null", "int"]), avro("int"), ""),
        (avro("int"), avro(["null", "int"]), "type mismatch"),
        (avro("int", aliases=["b"], default=0), avro("int"), ""),
        (logical("timestamp-millis"), logical("timestamp-millis"), ""),
        (logical("timestamp-millis"), logical("timestamp-micros"), "timestamp-micros is read as"),
        (logical("timestamp-millis"), avro("long"), ""),
        (
            logical("decimal", "bytes", precision=9, scale=2),
            logical("decimal", "bytes", precision=9, scale=3),
            "decimal(9, 3) is read as decimal(9, 2)",
        ),
    ],
)
def test_avro_is_compatible_by_schema_resolution_and_logical_types(
    reader: PayloadSchema, writer: PayloadSchema, why: str
) -> None:
    found = "; ".join(incompatibilities(reader, writer))
    assert why in found if why else found == ""


def test_a_policy_says_who_reads_what() -> None:
    narrow, wide = avro("int"), avro("long")
    assert violations("none", wide, narrow) == []
    assert violations("backwards", narrow, wide) == []
    assert len(violations("backwards", wide, narrow)) == 1
    assert violations("forward", wide, narrow) == []
    (why,) = violations("full", narrow, wide)
    assert why.endswith("(for readers with the previous schema)")


def test_a_schema_knows_what_it_refers_to() -> None:
    money = PayloadSchema("avro", '{"type": "fixed", "name": "Money", "size": 8}', "Money")
    schema = PayloadSchema("avro", avro("Money").text, references=(money,))
    assert incompatibilities(schema, schema) == []
    with pytest.raises(ConfigError, match="It is no Avro schema"):
        check_definition(avro("Money"))


@pytest.mark.parametrize(
    ("format", "text", "sentence"),
    [
        ("avro", "{", "It is no Avro schema: Expecting"),
        ("avro", '{"type": "record"}', "It is no Avro schema"),
        ("json", "{", "It is no JSON: Expecting"),
        ("json", "3", "It is no JSON Schema, which is an object, true or false."),
        ("json", '{"type": "what"}', r"It is no JSON Schema: \$\.type: 'what' is not valid"),
        ("protobuf", "%", "neither a FileDescriptorSet .* nor the source of a .proto file"),
        ("protobuf", "AAAA", "neither a FileDescriptorSet"),
        ("protobuf", "", "The Protobuf schema has no files"),
        ("protobuf", "message {", "The Protobuf schema cannot be compiled"),
    ],
)
def test_a_text_that_is_no_schema_is_refused(format: Any, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_definition(PayloadSchema(format, text))


@pytest.mark.parametrize(
    ("format", "depth", "around"),
    [
        ("avro", 150, '{"type": "array", "items": %s}'),
        ("avro", 100_000, '{"type": "array", "items": %s}'),
        ("json", 300, '{"items": %s}'),
        ("json", 100_000, '{"items": %s}'),
    ],
)
def test_what_is_nested_deep_is_compared_or_refused(format: Any, depth: int, around: str) -> None:
    before, after = around.split("%s")
    texts = (f"{before * depth}{inner}{after * depth}" for inner in ('"int"', '"long"'))
    if format == "json":
        texts = (f"{before * depth}{inner}{after * depth}" for inner in ("true", "{}"))
    one, other = (PayloadSchema(format, text) for text in texts)
    try:
        found = incompatibilities(other, one)
    except ConfigError:
        return
    assert found in ([], ["they are nested too deep to be compared"])


def test_protobuf_is_source_or_descriptors() -> None:
    source = 'syntax = "proto3"; import "b.proto"; message A { int64 n = 1; B b = 2; }'
    imported = PayloadSchema("protobuf", 'syntax = "proto3"; message B {}', "b.proto")
    new = PayloadSchema("protobuf", source, "orders-value", references=(imported,))
    files = FileDescriptorSet(file=[FileDescriptorProto(name="a", syntax="proto3")])
    message = files.file[0].message_type.add(name="A")
    message.field.add(name="n", number=1, type=5, label=1)  # int32
    old = PayloadSchema("protobuf", base64.b64encode(files.SerializeToString()).decode())
    assert incompatibilities(new, old) == []
    assert incompatibilities(old, new) == ["A.n: int64 is read as int32"]
