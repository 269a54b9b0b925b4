"""Which schema may follow which; the rules of Protobuf and JSON Schema have tests of their own."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from jetspark.errors import ConfigError
from jetspark.payloads.schema import PayloadSchema
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
        ("avro", '{"type": "record"}', "^It is no Avro schema: the record has no 'name'.$"),
        ("avro", '{"type": "enum", "name": "E"}', "the enum 'E' has no 'symbols'"),
        ("avro", '["null", {"type": {"type": "array"}}]', "the array has no 'items'"),
        (
            "avro",
            '{"type": "record", "name": "R", "fields": [{"name": "x"}]}',
            "the field 'x' has no 'type'",
        ),
        ("avro", '{"name": "A"}', "the schema 'A' has no 'type'"),
        ("json", "{", "It is no JSON: Expecting"),
        ("json", "3", "^It is no JSON Schema, which is an object, true or false."),
        ("json", '{"$schema": []}', r"It is no JSON Schema: \$schema is no text\."),
        ("json", '{"type": "what"}', r"It is no JSON Schema: \$\.type: 'what' is not valid"),
        ("protobuf", "%", "neither a FileDescriptorSet .* nor the source of a .proto file"),
        ("protobuf", "AAAA", "neither a FileDescriptorSet"),
        ("protobuf", "", "`protoc --include_imports --descriptor_set_out=order.binpb order.proto`"),
        ("protobuf", "message {", "The Protobuf schema cannot be compiled"),
    ],
)
def test_a_text_that_is_no_schema_is_refused(format: Any, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_definition(PayloadSchema(format, text))


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("null", [None], [0, "null"]),
        ("boolean", [True], [0, "true"]),
        ("int", [0, -(2**31), 2**31 - 1], ["x", 1.0, True, None, 2**31]),
        ("long", [2**63 - 1], [2**63, "0"]),
        ("double", [1, 0.5], ["0.5", True]),
        ("string", ["", "é"], [0, None]),
        ("bytes", ["", "\xff"], ["\u0100", [1]]),
        ({"type": "fixed", "name": "F", "size": 2}, ["ab"], ["a", 2]),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, ["A"], ["B", ["A"]]),
        ({"type": "array", "items": "int"}, [[], [1]], [["x"], {}, None]),
        ({"type": "map", "values": "int"}, [{}, {"a": 1}], [{"a": "x"}, []]),
        (["null", "int"], [None, 1], ["x"]),
        ({"type": "int", "logicalType": "date"}, [1], ["2026-01-01"]),
        (json.loads(avro("int").text) | {"name": "Inner"}, [{"a": 1}], [{}, {"a": "x"}, 1]),
        (json.loads(avro("int", default=1).text) | {"name": "Inner"}, [{}], [[]]),
    ],
)
def test_a_default_in_avro_is_a_value_of_its_type(
    kind: Any, right: list[Any], wrong: list[Any]
) -> None:
    for value in right:
        check_definition(avro(kind, default=value))
    for value in wrong:
        said = re.escape(f"the default {json.dumps(value)} of R.a is no ")
        with pytest.raises(ConfigError, match=said):
            check_definition(avro(kind, default=value))


def test_defaults_are_looked_at_wherever_a_record_is() -> None:
    inner = json.loads(avro("int", default="x").text) | {"name": "Inner"}
    for kind in ({"type": "array", "items": inner}, {"type": "map", "values": inner}, [inner]):
        with pytest.raises(ConfigError, match=r"the default \"x\" of Inner.a is no int\."):
            check_definition(avro(kind))
    wrong = avro("int", default="x")
    assert incompatibilities(wrong, avro("int")) == []  # what is stored may be followed


@pytest.mark.parametrize(
    ("schema", "missing"),
    [
        ({"$ref": "#/$defs/none"}, "#/$defs/none"),
        ({"properties": {"a": {"items": {"$ref": "#/$defs/none"}}}, "$defs": {}}, "#/$defs/none"),
        ({"$ref": "#none"}, "#none"),
        ({"$id": "https://here/a", "properties": {"a": {"$ref": "a#/x"}}}, "a#/x"),
        ({"$ref": "#/title/x", "title": "t"}, "#/title/x"),
        ({"$ref": "#/title", "title": "t"}, "#/title"),
        ({"$ref": "http://[x"}, "http://[x"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "not": {"$ref": 5}}, "5"),
        ({"$ref": "#"}, ""),
        ({"$ref": "#/$defs/a", "$defs": {"a": True}}, ""),
        ({"$ref": "#/x/0/y", "x": [{"y": {}}]}, ""),
        ({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}, ""),
        ({"$id": "https://here/a", "$defs": {"b": {"$id": "b"}}, "items": {"$ref": "b#"}}, ""),
        ({"properties": {"$ref": {"type": "string"}}}, ""),
        ({"enum": [{"$ref": "#/none"}]}, ""),
        ({"$ref": "https://elsewhere/x"}, ""),
    ],
)
def test_a_ref_into_a_json_schema_leads_to_a_schema(schema: Any, missing: str) -> None:
    payload_schema = PayloadSchema("json", json.dumps(schema))
    if not missing:
        check_definition(payload_schema)
        return
    with pytest.raises(ConfigError, match=rf"It is no JSON Schema: .*{re.escape(missing)}"):
        check_definition(payload_schema)


def test_an_id_that_is_no_uri_is_refused() -> None:
    with pytest.raises(ConfigError, match="It is no JSON Schema"):
        check_definition(PayloadSchema("json", '{"$defs": {"a": {"$id": "http://[x"}}}'))


@pytest.mark.full
def test_what_the_rules_use_is_imported_before_they_are_asked() -> None:
    script = """if True:
        import sys
        from jetspark.payloads.schema import PayloadSchema
        from jetspark.registry.compatibility import check_definition, load_rules, violations
        load_rules()
        before = set(sys.modules)
        files = 'syntax = "proto3"; message M { int32 n = 1; }'
        record = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
        thing = '{"$defs": {"a": {}}, "properties": {"a": {"$ref": "#/$defs/a"}}}'
        for format, text in (("avro", record), ("protobuf", files), ("json", thing)):
            schema = PayloadSchema(format, text)
            check_definition(schema)
            violations("full", schema, schema)
        print(*sorted(set(sys.modules) - before))
    """
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


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
