"""The short version; `python -m tests.soak.ordered --kills 100` is the long one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.soak.ordered import campaign, servers

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.server


@pytest.mark.parametrize(("nodes", "kills"), [(1, 3), (3, 1)])
async def test_ordered_reading_loses_and_repeats_nothing(
    nodes: int, kills: int, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.11")  # the oracle reads in batches
    with servers(nodes) as started:
        figures = await asyncio.wait_for(campaign(started, kills, seed=3), 90)
    assert figures.kills == kills
    assert figures.read == figures.published > 0
    assert nodes > 1 or len(figures.consumers) > 1
