"""The short form; `python -m tests.chaos.table_answers 2000 --seed 1` is the long one."""

from __future__ import annotations

import pytest
from tests.chaos.table_answers import PLACES, campaign


@pytest.mark.parametrize("place", PLACES)
def test_lost_answers_lose_and_repeat_no_row(place: str) -> None:
    figures = campaign(4 if place.endswith("s3") else 20, 3, [place])[place]
    assert figures.failures == []
    assert figures.struck
