"""Columns that are jetspark's own: refused wherever people name a column, in every schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.ingest_job import ingest_job

from jetspark.errors import ConfigError
from jetspark.payloads.ddl import check_fields
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.json_shape import Shape
from jetspark.payloads.schema import PayloadFormat
from jetspark.reserved_names import check_names, is_reserved, rejection_reason
from jetspark.spark.pipelines.table_rows import derived_columns

OURS = ["_jetspark_files", "_JetSpark_Files", "_jetſpark_files", "_jetspark", "_corrupt_record"]
THEIRS = ["jetspark", "files", "_files", "x_jetspark_files", "data"]


@pytest.mark.parametrize("name", OURS)
def test_reserved_names_are_found_in_any_case(name: str) -> None:
    assert is_reserved(name)
    assert name in (rejection_reason(["a", name]) or "")
    with pytest.raises(ConfigError, match="reserved"):
        check_names("Somewhere", ["a", name])
    check_names("Somewhere", ["a", name], allowed=[name])


@pytest.mark.parametrize("name", THEIRS)
def test_other_names_are_free(name: str) -> None:
    assert not is_reserved(name)
    assert rejection_reason([name]) is None
    check_names("Somewhere", [name])


def schemas(name: str) -> list[tuple[PayloadFormat, str]]:
    """A schema of each format, with a field of this name."""
    connect = {"type": "struct", "fields": [{"field": name, "type": "int64", "optional": True}]}
    properties = {"type": "object", "properties": {name: {"type": "integer"}}}
    record = {"type": "record", "name": "R", "fields": [{"name": name, "type": "long"}]}
    message = f'syntax = "proto3"; message M {{ int64 {name} = 1; }}'
    return [
        ("avro", json.dumps(record)),
        ("protobuf", message),
        ("debezium", f"`{name}` BIGINT"),
        ("debezium", json.dumps(connect)),
        ("cloudevents", f"`{name}` BIGINT"),
        ("cloudevents", json.dumps(properties)),
        ("cloudevents", json.dumps(record)),
    ]


@pytest.mark.parametrize("at", range(len(schemas("x"))))
def test_no_schema_has_a_reserved_field(at: int) -> None:
    for name in ("_jetspark_files", "_corrupt_record"):
        format_, schema = schemas(name)[at]
        with pytest.raises(ConfigError, match="reserved"):
            Decoding.make(format_, schema=schema)
    Decoding.make(*schemas("ours")[at][:1], schema=schemas("ours")[at][1])


def test_no_schema_of_json_has_a_reserved_field() -> None:
    with pytest.raises(ConfigError, match="reserved"):
        check_fields("a INT, `_Jetspark_files` STRUCT<a: INT>", "--json")
    assert check_fields("a STRUCT<_jetspark_files: INT>", "--json") == {"a": ""}


def test_the_found_schema_of_json_leaves_reserved_fields_out() -> None:
    shape = Shape()
    shape.add(b'{"a": 1, "_jetspark_files": {"rows": 1}, "b": {"_jetspark_x": 1}}')
    schema, remarks = shape.schema()
    assert schema == "a BIGINT, b STRUCT<_jetspark_x: BIGINT>"
    assert any("_jetspark_files" in one for one in remarks)


def test_no_derived_column_has_a_reserved_name() -> None:
    def made(items: list[str], rest: str | None) -> None:
        there = ["subject", "data"]
        derived_columns(items, rest, columns=there, schema="a INT")

    made(["site=subject[1]"], "others")
    for items, rest in ((["_jetspark_files=subject[1]"], None), ([], "_jetspark_files")):
        with pytest.raises(ConfigError, match="reserved"):
            made(items, rest)


@pytest.mark.parametrize("partition", ["_jetspark_files=upper(subject)", "_jetspark_table"])
def test_no_partition_has_a_reserved_name(partition: str, tmp_path: Any) -> None:
    options = {"stream": "S", "servers": "nats://127.0.0.1:4"}
    one = ingest_job(options=options, to=str(tmp_path / "t"), partition_by=[partition])
    with pytest.raises(ConfigError, match="reserved"):
        one.check_rows()
