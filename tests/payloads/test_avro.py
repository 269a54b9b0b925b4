"""Avro against fastavro: every type, and every pair of a writer's and a reader's schema."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.payloads.avro_schemas import (
    EPOCH,
    Schema,
    in_spark,
    payload_schema,
    record,
    schemas,
    values,
    written,
)

from jetspark.errors import ConfigError
from jetspark.payloads.avro import AvroDecoder
from jetspark.payloads.avro_schema import fields_of
from jetspark.payloads.decoder import Undecodable


def decoded(
    writer: Schema, payloads: Sequence[bytes], reader: Schema = None, fields: Any = None
) -> list[dict[str, Any]]:
    """The rows of datums."""
    here = payload_schema(writer if reader is None else reader)
    columns = fields_of(here)
    names = columns.names if fields is None else fields
    decoder = AvroDecoder(payload_schema(writer), here, names)
    datums = pa.array(payloads, pa.binary())
    found, reasons = decoder.decode(datums)
    with pytest.MonkeyPatch.context() as patch:  # without the C kernel the same
        patch.setattr("jetspark.payloads.avro.avro_columns", None)
        plain, why = decoder.decode(datums)
    assert repr([one.to_pylist() for one in plain]) == repr([one.to_pylist() for one in found])
    assert why.to_pylist() == reasons.to_pylist()
    for reason in reasons.drop_null().to_pylist():
        raise Undecodable(reason)
    for one, field in zip(found, [columns.field(name) for name in names], strict=True):
        assert one.type == field.type
        one.validate(full=True)
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(found, names).to_pylist()
    return rows


@pytest.mark.full
@given(st.data())
def test_all_types_have_the_values_that_were_written(data: st.DataObject) -> None:
    schema = record(data.draw(st.lists(schemas(), min_size=1, max_size=4)))
    rows = data.draw(st.lists(values(schema), min_size=1, max_size=4))
    payloads = [written(schema, row) for row in rows]
    expected = [in_spark(schema, row) for row in rows]
    assert decoded(schema, payloads) == expected
    names = data.draw(st.permutations([one["name"] for one in schema["fields"]]))[:2]
    some = [{name: row[name] for name in names} for row in expected]
    assert decoded(schema, payloads, fields=names) == some


@pytest.mark.full
@given(st.data())
def test_a_damaged_datum_is_refused_or_ends_where_it_ends(data: st.DataObject) -> None:
    schema = record(data.draw(st.lists(schemas(), min_size=1, max_size=3)))
    good = written(schema, data.draw(values(schema)))
    cut = good[: data.draw(st.integers(0, len(good)))] + data.draw(st.binary(max_size=12))
    with suppress(Undecodable):
        rows = decoded(schema, [good, cut, good])
        assert rows[0] == rows[2]


def test_a_decimal_with_more_digits_than_its_type_is_refused() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
    schema = record([{"type": "array", "items": kind}])
    assert decoded(schema, [b"\x02\x04\x03\xe7\x00"]) == [{"x0": [Decimal("99.9")]}]
    with pytest.raises(Undecodable, match="too many digits"):
        decoded(schema, [b"\x02\x04\x03\xe8\x00"])


@pytest.mark.parametrize(
    ("kind", "logical", "last"),
    [
        ("int", "date", 2_932_896),
        ("long", "timestamp-millis", 253_402_300_799_999),
        ("long", "local-timestamp-micros", 253_402_300_799_999_999),
    ],
)
def test_a_time_before_or_after_all_years_is_refused(kind: str, logical: str, last: int) -> None:
    def schema(one: Schema) -> Schema:
        return record([{"type": "map", "values": record([{"type": "array", "items": one}])}])

    def row(value: int) -> Any:
        return {"x0": {"a": {"x0": [0, value]}}}

    plain, typed = schema(kind), schema({"type": kind, "logicalType": logical})
    assert decoded(typed, [written(plain, row(last))])
    with pytest.raises(Undecodable, match="a time outside of the years 1 to 9999"):
        decoded(typed, [written(plain, row(last + 1))])


def test_a_time_in_a_union_with_int_is_the_number_that_was_written() -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    schema = record([["null", "int", moment], ["int", moment]])
    row = {"x0": ("int", 1), "x1": ("long", 1)}
    assert decoded(schema, [written(schema, row)]) == [{"x0": 1, "x1": 1}]


def test_a_date_in_a_union_with_long_is_the_number_of_its_days() -> None:
    schema = record([["long", {"type": "int", "logicalType": "date"}]])
    assert decoded(schema, [b"\x00\x06", b"\x02\x0a"]) == [{"x0": 3}, {"x0": 5}]


# -- schema resolution ---------------------------------------------------------------------------

_WIDER = {
    "int": ["int", "long", "float", "double"],
    "long": ["long", "float", "double"],
    "float": ["float", "double"],
    "string": ["string", "bytes"],
}
_DEFAULTS: list[tuple[Schema, Any]] = [
    ("int", 7),
    ("string", "none"),
    ("bytes", "\u00ff"),
    (["null", "string"], None),
    (["string", "null"], "a"),
    ({"type": "array", "items": "long"}, [1, 2]),
    ({"type": "map", "values": "boolean"}, {"k": True}),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1500),
]


@st.composite
def later(draw: st.DrawFn, schema: Schema) -> Schema:
    """A later version of a schema."""
    if isinstance(schema, str):
        wider = draw(st.sampled_from(_WIDER.get(schema, [schema])))
        return ["null", wider] if draw(st.integers(0, 5)) == 0 else wider
    if isinstance(schema, list):
        (one,) = (one for one in schema if one != "null")
        if draw(st.integers(0, 3)) == 0:
            return draw(later(one))
        return ["null", one]
    match schema["type"]:
        case "array":
            return {"type": "array", "items": draw(later(schema["items"]))}
        case "map":
            return {"type": "map", "values": draw(later(schema["values"]))}
        case "enum":
            return draw(
                st.sampled_from(
                    [
                        schema,
                        {**schema, "symbols": ["C", "A"], "default": "C"},
                        {**schema, "symbols": ["A"]},
                    ]
                )
            )
        case "record":
            return {**schema, "fields": draw(_later_fields(schema["fields"]))}
    return schema


@st.composite
def _later_fields(draw: st.DrawFn, fields: list[Schema]) -> list[Schema]:
    found = []
    for one in fields:
        change = draw(st.sampled_from(["keep", "keep", "change", "rename", "drop", "add"]))
        if change == "drop" and len(fields) > 1:
            continue
        if change == "change":
            one = {**one, "type": draw(later(one["type"]))}
        if change == "rename":
            one = {**one, "name": f"{one['name']}_new", "aliases": [one["name"]]}
        found.append(one)
        if change == "add":
            kind, default = draw(st.sampled_from(_DEFAULTS))
            found.append({"name": f"{one['name']}_added", "type": kind, "default": default})
    return draw(st.permutations(found or fields))


def read_by_fastavro(payload: bytes, writer: Schema, reader: Schema) -> Any:
    found = fastavro.schemaless_reader(
        io.BytesIO(payload), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    )
    return as_column(reader, found)


def as_column(schema: Schema, value: Any) -> Any:
    """What fastavro has read, as a column has it."""
    if isinstance(schema, list):
        (one,) = (one for one in schema if one != "null")
        return None if value is None else as_column(one, value)
    match schema if isinstance(schema, str) else schema["type"]:
        case "record":
            return {f["name"]: as_column(f["type"], value[f["name"]]) for f in schema["fields"]}
        case "array":
            return [as_column(schema["items"], one) for one in value]
        case "map":
            return [(key, as_column(schema["values"], one)) for key, one in value.items()]
        case "bytes" if isinstance(value, str):
            return value.encode("latin-1" if value == "\u00ff" else "utf-8")
        case "long" if value == 1500 and isinstance(schema, dict):  # a default, which it leaves raw
            return EPOCH + timedelta(milliseconds=1500)
        case "float" | "double":
            return pytest.approx(float(value), rel=1e-6)
    return value


@pytest.mark.full
@given(st.data())
def test_a_reader_s_schema_has_of_each_writer_what_fastavro_finds(data: st.DataObject) -> None:
    kinds = st.lists(schemas(unions=False).filter(_is_plain), min_size=1, max_size=4)
    writer = record(data.draw(kinds))
    reader = {**writer, "fields": data.draw(_later_fields(writer["fields"]))}
    rows = data.draw(st.lists(values(writer), min_size=1, max_size=3))
    payloads = [written(writer, row) for row in rows]
    try:
        expected = [read_by_fastavro(one, writer, reader) for one in payloads]
    except (fastavro.read.SchemaResolutionError, OverflowError):
        with pytest.raises(Undecodable):
            decoded(writer, payloads, reader)
        return
    assert decoded(writer, payloads, reader) == expected


def _is_plain(schema: Schema) -> bool:
    """fastavro has its own types for some."""
    text = json.dumps(schema)
    return "time-millis" not in text and "nanos" not in text


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (
            {"type": "int", "logicalType": "date"},
            {"type": "long", "logicalType": "timestamp-millis"},
        ),
        (
            {"type": "int", "logicalType": "time-millis"},
            {"type": "long", "logicalType": "time-micros"},
        ),
        *(
            ({"type": "long", "logicalType": one}, {"type": "long", "logicalType": other})
            for one, other in [
                ("timestamp-nanos", "timestamp-micros"),
                ("timestamp-millis", "timestamp-nanos"),
                ("timestamp-millis", "local-timestamp-millis"),
            ]
        ),
    ],
)
def test_a_number_of_one_logical_type_is_none_of_another(writer: Schema, reader: Schema) -> None:
    one = {"type": "record", "name": "R", "fields": [{"name": "a", "type": writer}]}
    other = {"type": "record", "name": "R", "fields": [{"name": "a", "type": reader}]}
    with pytest.raises(
        Undecodable, match=f"a is {writer['logicalType']}, not {reader['logicalType']}"
    ):
        decoded(one, [b"\x02"], other)


@pytest.mark.parametrize(("kind", "default"), [("int", 1.5), ("long", True), ("string", 1)])
def test_a_default_of_another_type_is_refused(kind: str, default: Any) -> None:
    writer = record(["int"])
    reader = {**writer, "fields": [{"name": "y", "type": kind, "default": default}]}
    with pytest.raises(Undecodable, match="default of y"):
        decoded(writer, [b"\x02"], reader)


def test_a_record_with_a_field_twice_is_refused() -> None:
    one = {"name": "a", "type": "int"}
    with pytest.raises(ConfigError, match="a field twice"):
        fields_of(payload_schema({"type": "record", "name": "R", "fields": [one, one]}))
