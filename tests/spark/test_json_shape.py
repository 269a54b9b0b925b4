"""Schemas from samples: types that take every value, names that Spark reads."""

from __future__ import annotations

import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.streams import Admin

from jetspark.cli import app
from jetspark.payloads.ddl import check_fields
from jetspark.payloads.json_shape import Shape
from jetspark.reserved_names import is_reserved

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["2026-01-31", "2026-01-31T12:00:00Z", "2026-02-30", "12:00"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=5)


def shape_of(*values: Any) -> tuple[str, list[str]]:
    shape = Shape()
    for one in values:
        shape.add(one if isinstance(one, bytes) else json.dumps(one).encode())
    return shape.schema()


def test_a_number_beyond_double_is_a_string() -> None:
    assert shape_of(b'{"x": 1e400}', b'{"x": 0.5}') == ("x STRING", [])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False, None], "BOOLEAN"),
        ([1, -(2**63)], "BIGINT"),
        ([2**63], "STRING"),
        ([1, 0.5], "DOUBLE"),
        ([9007199254740993, 1], "BIGINT"),
        ([9007199254740993, 0.5], "STRING"),
        (["0001-01-01T00:00:00+10:00"], "STRING"),
        (["2026-01-31T12:00:00+19:00"], "STRING"),
        ([1, None, 1e300], "DOUBLE"),
        ([1, True], "STRING"),
        ([1, "1"], "STRING"),
        (["2026-01-31", None], "DATE"),
        (["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456+02:00"], "TIMESTAMP"),
        (["2026-01-31T12:00:00"], "STRING"),
        (["2026-02-30"], "STRING"),
        (["2026-01-31", "2026-01-31T12:00:00Z"], "STRING"),
        ([[1], [0.5, None], []], "ARRAY<DOUBLE>"),
        ([[[1]], [[]]], "ARRAY<ARRAY<BIGINT>>"),
        ([[1, "a"]], "ARRAY<STRING>"),
        ([{"a": 1}, {"b": [True]}, None], "STRUCT<a: BIGINT, b: ARRAY<BOOLEAN>>"),
        ([{"a b": 1, "c`d": "x"}], "STRUCT<`a b`: BIGINT, `c``d`: STRING>"),
        ([{"a": 1}, [1]], "STRING"),
        ([{str(n): 1 for n in range(1001)}, {}], "STRING"),
    ],
)
def test_a_field_has_a_type_that_takes_all_of_its_values(values: list[Any], kind: str) -> None:
    chosen = random.Random(1).sample(values, len(values))
    for order in (values, chosen):
        schema, remarks = shape_of(*({"x": one} for one in order))
        if "STRUCT" in kind:
            assert sorted(schema[:-1].partition("<")[2].split(", ")) == sorted(
                f"x {kind}"[:-1].partition("<")[2].split(", ")
            )
        else:
            assert schema == f"x {kind}"
        assert remarks == []


def test_what_a_schema_cannot_say_is_remarked() -> None:
    schema, remarks = shape_of(
        {"gone": None, "empty": [], "none": {}, "Subject": "x", "a": 1, "A": 2, "": 3},
        {"in": {"b": None, "B": 1, "of": [{"c": None}]}},
        [1],
        b"{",
        b"\xff",
    )
    assert schema == (
        "gone STRING, empty ARRAY<STRING>, none STRING, Subject STRING, a BIGINT, "
        "in STRUCT<b: STRING, of: ARRAY<STRUCT<c: STRING>>>"
    )
    left_out = "is left out: there is a field of that name, and Spark ignores case."
    assert remarks == [
        "3 of the messages are no JSON objects.",
        "gone is always null: STRING.",
        "empty[] is always null: STRING.",
        "none has only objects without fields: STRING.",
        f"A {left_out}",
        "A field without a name is left out.",
        "in.b is always null: STRING.",
        f"in.B {left_out}",
        "in.of[].c is always null: STRING.",
    ]


@given(OBJECTS)
def test_the_schema_is_one_that_json_takes(objects: list[dict[str, Any]]) -> None:
    schema, _ = shape_of(*objects)
    if schema:
        names = check_fields(schema, "--json")
        names_given = {name for one in objects for name in one if name}
        folded = {name.casefold() for name in names_given if not is_reserved(name)}
        assert {name.casefold() for name in names} == folded


def test_infer_prints_a_schema_for_each_table_and_writes_nothing(
    admin: Admin,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    name = admin.stream(under=".>")
    # What comes late has another type, and half of the stream is of each kind.
    admin.fill(
        [(f"{name}.a", json.dumps({"n": number, "kind": "k"}).encode()) for number in range(3000)]
        + [(f"{name}.b", json.dumps({"n": number / 2}).encode()) for number in range(3000)]
        + [(f"{name}.odd", b"{")]
    )
    common = ["ingest", name, "--server", admin.url, "--infer"]
    assert app.run([*common, "--infer-messages", "100"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == ["'n DOUBLE, kind STRING'"]
    assert said.err.splitlines() == ["100 messages looked at."]
    assert app.run([*common, "--to", "lake/{subject[1]}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["schemas"]
    assert [(one["table"], one["messages"], one["schema"]) for one in found] == [
        ("lake/a", 3000, "n BIGINT, kind STRING"),
        ("lake/b", 3000, "n DOUBLE"),
        ("lake/odd", 1, ""),
    ]
    assert app.run([*common, "--to", "lake/{kind}", "--subjects", f"{name}.a"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["# lake/k", "'n BIGINT, kind STRING'"]
    assert check_fields(shlex.split(printed[1])[0], "--json") == {"n": "bigint", "kind": "string"}
    assert list(tmp_path.iterdir()) == []
