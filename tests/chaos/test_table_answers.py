"""The campaign "table_answers" in small."""

from __future__ import annotations

import pytest
from tests.chaos.table_answers import PLACES, run

pytestmark = pytest.mark.tables


@pytest.mark.parametrize("place", PLACES)
def test_lost_answers_lose_and_repeat_no_row(place: str) -> None:
    figures = run(2 if place.endswith("s3") else 4 if place == "rest" else 20, seed=3, place=place)
    assert figures.wrong == []
    assert figures.struck
