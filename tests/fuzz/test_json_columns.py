"""The campaign "json_columns" in small."""

from __future__ import annotations

from tests.fuzz.json_columns import run


def test_hostile_json_makes_bad_records_and_nothing_else() -> None:
    figures = run(600, seed=3)
    assert (figures.runs, figures.wrong) == (600, [])
