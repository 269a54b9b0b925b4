"""The campaign "change_data" in small."""

from __future__ import annotations

import pytest
from tests.fuzz.change_data import BAD, LEFT_OUT, run


@pytest.mark.tables
def test_tables_and_histories_of_events_are_those_of_the_database() -> None:
    figures = run(runs=8, seed=40, events=200)
    assert figures.wrong == []
    assert figures.versions > 0
    assert figures.rows > 1000
    assert figures.bad_records > len(BAD)
    assert figures.left_out > len(LEFT_OUT)
