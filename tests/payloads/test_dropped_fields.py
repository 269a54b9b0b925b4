"""A later version of a schema that drops a field takes no value from what older producers wrote."""

from __future__ import annotations

from typing import Any

from tests.payloads.avro_schemas import payload_schema, written
from tests.payloads.test_framing import batch, confluent

from jetspark.errors import SchemaNotFoundError
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.schema import PayloadSchema


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": one, "type": kind} for one, kind in fields.items()],
    }


VERSIONS = [
    record("R", a="int", b="string", c={"type": "array", "items": record("In", x="int", y="int")}),
    None,  # removed from the registry
    record("R", a="int", d="double", c={"type": "array", "items": record("In", x="int")}),
    record("R", a="long", c={"type": "array", "items": record("In", x="int")}),
]


class Versions:
    """A registry with the versions of one subject; the ids are those of the versions."""

    def by_id(self, number: int) -> PayloadSchema:
        schema = VERSIONS[number - 1]
        if schema is None:
            raise SchemaNotFoundError("It was removed.")
        return payload_schema(schema)

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        number = len(VERSIONS) if version is None else version
        found = self.by_id(number)
        return PayloadSchema("avro", found.text, name, number)


ROWS = [
    (1, {"a": 1, "b": "old", "c": [{"x": 1, "y": 2}]}),
    (3, {"a": 2, "d": 0.5, "c": [{"x": 3}]}),
    (4, {"a": 3, "c": []}),
]


def rows_of(**how: Any) -> list[dict[str, Any]]:
    decoding = Decoding.make("avro", lookup=Versions(), schema_name="n", framing="confluent", **how)
    framed = [confluent(number, written(VERSIONS[number - 1], row)) for number, row in ROWS]
    found = decoding.decoder().decode_batch(batch(framed))
    kept: list[dict[str, Any]] = found.select(found.schema.names[5:]).to_pylist()
    return kept


def test_a_table_that_follows_the_schema_keeps_the_fields_of_former_versions() -> None:
    none = {"_corrupt_record": None, "_corrupt_reason": None}
    assert rows_of(on_new_version="stop") == [
        {"a": 1, "c": [{"x": 1, "y": 2}], "d": None, "b": "old", **none},
        {"a": 2, "c": [{"x": 3, "y": None}], "d": 0.5, "b": None, **none},
        {"a": 3, "c": [], "d": None, "b": None, **none},
    ]
    assert [row["b"] for row in rows_of(on_new_version="stop", fields=["b"])] == ["old", None, None]


def test_without_it_the_columns_are_those_of_the_latest_version() -> None:
    assert list(rows_of()[0]) == ["a", "c", "_corrupt_record", "_corrupt_reason"]
