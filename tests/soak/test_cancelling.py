"""The campaign "cancelling" in small."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.soak.cancelling import run
from tests.soak.cancelling_calls import CALLS


@pytest.mark.server
async def test_a_call_that_is_cancelled_leaves_nothing_behind(
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.14")
    figures = await run(150, seed=3)
    assert figures.wrong == []
    assert figures.cancelled > 100
    assert len(figures.by_call) == len(CALLS)
