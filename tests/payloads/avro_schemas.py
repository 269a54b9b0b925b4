"""Schemas of Avro, their values, and what a column has for a value; for properties."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import fastavro
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from jetspark.payloads.schema import PayloadSchema

Schema = Any
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = st.integers(-(2**40), 2**41)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)

PRIMITIVES: dict[str, SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": _TEXTS,
    "bytes": st.binary(max_size=5),
}
LOGICAL: list[Schema] = [
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
]
_numbers = count()


def named(kind: str, **more: Any) -> Schema:
    """A definition with a name that no other one has."""
    return {"type": kind, "name": f"N{next(_numbers)}", **more}


def schemas(*, unions: bool = True) -> SearchStrategy[Schema]:
    """Types, nested."""
    simple = st.one_of(
        st.sampled_from([*PRIMITIVES]),
        st.sampled_from(LOGICAL),
        st.builds(lambda: named("enum", symbols=["A", "B", "C"])),
        st.builds(lambda: named("fixed", size=3)),
        st.builds(lambda: named("fixed", size=6, logicalType="decimal", precision=14, scale=2)),
    )
    return st.recursive(simple, lambda inner: _nested(inner, unions), max_leaves=8)


def _nested(inner: SearchStrategy[Schema], unions: bool) -> SearchStrategy[Schema]:
    kinds = [
        st.builds(lambda one: {"type": "array", "items": one}, inner),
        st.builds(lambda one: {"type": "map", "values": one}, inner),
        st.builds(record, st.lists(inner, min_size=1, max_size=3)),
        inner.map(lambda one: ["null", _no_union(one)]),
        inner.map(lambda one: [_no_union(one), "null"]),
    ]
    if unions:
        kinds.append(
            st.lists(inner, min_size=2, max_size=3).map(
                lambda parts: [
                    "null",
                    *{_branch(one): one for one in map(_no_union, parts)}.values(),
                ]
            )
        )
    return st.one_of(kinds)


def record(types: Sequence[Schema]) -> Schema:
    """A record of these fields."""
    return named("record", fields=[{"name": f"x{at}", "type": one} for at, one in enumerate(types)])


def _no_union(schema: Schema) -> Schema:
    """Unions have no unions in them."""
    return record([schema]) if isinstance(schema, list) else schema


def _branch(schema: Schema) -> str:
    """What tells the branches of a union apart."""
    if isinstance(schema, str):
        return schema
    return str(schema.get("name", schema["type"]))


def values(schema: Schema) -> SearchStrategy[Any]:
    """Values, as fastavro writes them: those of unions with their branches."""
    if isinstance(schema, str):
        return PRIMITIVES[schema]
    if isinstance(schema, list):
        return st.one_of([_of_branch(one) for one in schema])
    match schema["type"], schema.get("logicalType"):
        case "record", _:
            return st.fixed_dictionaries({f["name"]: values(f["type"]) for f in schema["fields"]})
        case "array", _:
            return st.lists(values(schema["items"]), max_size=3)
        case "map", _:
            return st.dictionaries(_TEXTS, values(schema["values"]), max_size=3)
        case "enum", _:
            return st.sampled_from(schema["symbols"])
        case _, "decimal":
            most = 10 ** (schema["precision"] - 1)
            return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-schema["scale"]))
        case "fixed", _:
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "int", "date":
            return st.integers(-700_000, 2_900_000)
        case "long", "timestamp-micros" | "timestamp-millis" | "local-timestamp-micros":
            return _TIMES
    return PRIMITIVES[schema["type"]]


def _of_branch(schema: Schema) -> SearchStrategy[Any]:
    if schema == "null":
        return st.none()
    return values(schema).map(lambda value: (_branch(schema), value))


def written(schema: Schema, value: Any) -> bytes:
    """A datum."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def in_spark(schema: Schema, value: Any) -> Any:
    """What a column has."""
    if isinstance(schema, str):
        return value
    if isinstance(schema, list):
        return _of_union(schema, value)
    match schema["type"], schema.get("logicalType"):
        case "record", _:
            return {f["name"]: in_spark(f["type"], value[f["name"]]) for f in schema["fields"]}
        case "array", _:
            return [in_spark(schema["items"], one) for one in value]
        case "map", _:
            return [(key, in_spark(schema["values"], one)) for key, one in value.items()]
        case _, "date":
            return date(1970, 1, 1) + timedelta(value)
        case _, "timestamp-millis":
            return EPOCH + timedelta(milliseconds=value)
        case _, "timestamp-micros":
            return EPOCH + timedelta(microseconds=value)
        case _, "local-timestamp-micros":
            return (EPOCH + timedelta(microseconds=value)).replace(tzinfo=None)
    return value


def _of_union(schema: Schema, value: Any) -> Any:
    branches = [one for one in schema if one != "null"]
    if value is None:
        return None
    name, inner = value
    at = [_branch(one) for one in branches].index(name)
    found = in_spark(branches[at], inner)
    if len(branches) == 1:
        return found
    plain = {_kind(one) for one in branches}
    if plain in ({"int", "long"}, {"float", "double"}):
        return inner
    return {f"member{n}": found if n == at else None for n in range(len(branches))}


def _kind(schema: Schema) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def payload_schema(schema: Schema) -> PayloadSchema:
    return PayloadSchema("avro", json.dumps(schema))


def leaves(schema: Schema) -> Iterator[Schema]:
    """The types in it that have no others in them."""
    if isinstance(schema, list):
        for one in schema:
            yield from leaves(one)
    elif isinstance(schema, dict) and schema["type"] == "record":
        for one in schema["fields"]:
            yield from leaves(one["type"])
    elif isinstance(schema, dict) and schema["type"] in ("array", "map"):
        yield from leaves(schema.get("items", schema.get("values")))
    else:
        yield schema
