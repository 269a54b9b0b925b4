"""The campaign "round_trips" in small."""

from __future__ import annotations

from tests.fuzz.round_trips import run


def test_rewritten_rows_stay_the_same_for_every_reader_and_are_found_by_filters() -> None:
    figures = run(8, seed=2026)
    assert figures.wrong == []
    assert figures.filters > 100
