"""JSON of any content becomes a table: good neighbours are rows, and bad records say why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.lake import Lake

from jetspark.spark.source.infer_schema import infer_schemas

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.tables]

DDL = (
    "id BIGINT, y TINYINT, d DATE, at TIMESTAMP, price DECIMAL(10,2), m MAP<STRING, INT>, "
    "items ARRAY<STRUCT<price: INT>>, timestamp TIMESTAMP, data STRING"
)
BAD: list[tuple[bytes, str]] = [
    (b'"y": 200', "y: 200 is not a TINYINT."),
    (b'"d": "1"', 'd: "1" is not a DATE.'),
    (b'"d": "2026-01-31T12:00:00Z"', 'd: "2026-01-31T12:00:00Z" is not a DATE.'),
    (b'"at": "12:30:00"', 'at: "12:30:00" is not a TIMESTAMP.'),
    (b'"at": 1769860800000', "at: 1769860800000 is not a TIMESTAMP."),
    (b'"price": 1.005', "price: 1.005 is not a DECIMAL(10,2)."),
    (b'"m": [[null, 1]]', "m: [[null, 1]] is not a MAP."),
    (b'"items": [{"price": 1}, {"price": 12.5}]', "items[1].price: 12.5 is not an INT."),
    (b'"z": "\\ud800"', "The payload is not one JSON object"),
    (b'"\\ud800": 1', "The payload is not one JSON object"),
    (b'"z": ' + b"[" * 990 + b"]" * 990, "The payload is nested more than 200 deep."),
    (b"'z': 1", "The payload is not one JSON object"),
]


def _hostile() -> Iterator[bytes]:
    for at, (field, _) in enumerate(BAD):
        yield b'{"id": %d, %s}' % (at, field)
        yield b'{"id": %d, "timestamp": "2026-01-31T12:00:00Z", "data": "x", "y": 1}' % (100 + at)


@pytest.mark.full
def test_what_does_not_fit_is_put_aside_and_its_neighbours_are_rows(lake: Lake) -> None:
    lake.fill(*(("a", one) for one in _hostile()), ("a", b'{"z": %s, "id": 99}' % (b"1" * 4301)))
    how: dict[str, Any] = {"json_schema": DDL, "rescued_data_column": "rest", "evolve": True}
    how |= {"quarantine": str(lake.folder / "bad"), "options": {"rename": "data=body"}}
    assert lake.grow(lake.job("good", **how)) == 2
    aside = lake.rows("bad")
    assert [row["seq"] for row in aside] == list(range(1, 2 * len(BAD), 2))
    for row, (_, says) in zip(aside, BAD, strict=True):
        assert row["reason"].startswith(says)
        name = says.partition(":")[0].partition("[")[0]
        assert row["column"] == (None if says.startswith("The ") else name)
    rows = lake.rows("good")
    assert [row["id"] for row in rows] == [*range(100, 100 + len(BAD)), 99]
    assert (rows[0]["payload_timestamp"], rows[0]["body"]) == (1769860800000000, "x")
    assert rows[-1]["z"] == "1" * 4301


@pytest.mark.full
def test_no_field_is_lost_beside_constants_and_odd_names(lake: Lake) -> None:
    lake.fill(
        ("a", b'{"id": 1, "x": NaN, "subject": "s", "timestamp": 5, "a b": {"q": 1}}'),
        ("a", b'{"id": 2, "whole": 9007199254740993}'),
        ("a", b'{"id": 3, "whole": 0.5, "data": null, "seq": 7}'),
    )
    how: dict[str, Any] = {"json_schema": "id BIGINT", "quarantine": str(lake.folder / "bad")}
    assert lake.grow(lake.job("good", evolve=True, **how)) == 2
    rows = lake.rows("good")
    names = ("x", "payload_subject", "payload_timestamp", "whole", "payload_seq")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("NaN", "s", 5, None, None),
        (None, None, None, "9007199254740993", None),
        (None, None, None, "0.5", 7),
    ]
    assert json.loads(rows[0]["other_fields"]) == {"a b": {"q": 1}}


def test_a_sample_of_anything_has_a_schema_that_its_objects_fit(lake: Lake) -> None:
    deep = b'{"id": 1, "deep": %s1%s}'
    lake.fill(
        ("a", deep % (b'{"x":' * 50, b"}" * 50)),
        ("a", deep % (b"[" * 500, b"]" * 500)),
        ("a", b'{"id": 2, "at": "0001-01-01T00:00:00+10:00", "timestamp": "2026-01-31T12:00:00Z"}'),
        ("a", b'{"id": %s}' % (b"1" * 5000)),
    )
    (found,) = infer_schemas(lake.options, None, 100)
    assert "at STRING, timestamp TIMESTAMP" in found.schema
    lake.ingest("table", json_schema=found.schema, quarantine=str(lake.folder / "bad"))
    assert [row["seq"] for row in lake.rows("table")] == [1, 3]
    assert [row["seq"] for row in lake.rows("bad")] == [2, 4]


def test_a_sample_names_the_table_that_it_is_for(lake: Lake) -> None:
    lake.fill(("a", b'{"id": 1, "region": "eu"}'), ("a", b'{"id": 2}'))
    for to, tables in (
        (None, [None]),
        ("lake/orders", ["lake/orders"]),
        ("lake/{region}", ["lake/eu", None]),
    ):
        assert [found.table for found in infer_schemas(lake.options, to, 100)] == tables
