"""The campaign "services" in small."""

from __future__ import annotations

import asyncio

import pytest
from tests.soak.services import run


@pytest.mark.server
async def test_every_request_ends_while_instances_are_killed() -> None:
    figures = await asyncio.wait_for(run(600, seed=2, every=0.3), 120)
    assert figures.wrong == []
    assert figures.ended.total() == 600
    assert figures.killed > 0
    assert figures.ended["answered"] > 400


@pytest.mark.server
async def test_no_request_fails_while_instances_are_replaced_in_good_order() -> None:
    figures = await asyncio.wait_for(run(600, seed=2, every=0.2, gently=True), 120)
    assert figures.wrong == []
    assert figures.ended == {"answered": 600}
    assert figures.stopped > 0
