"""The short version; `python -m tests.soak.restarts 200` is the long one."""

from __future__ import annotations

import asyncio

import pytest
from tests.soak.restarts import cluster, restarts


@pytest.mark.server
async def test_ten_restarts_under_load_lose_no_subscription_and_leave_nothing() -> None:
    with cluster() as servers:
        figures = await asyncio.wait_for(restarts(servers, 10, seed=1), 60)
    assert figures.restarts == 10
    assert figures.reconnects >= 5
    assert 0 < figures.received <= figures.published
    assert figures.answered > 0
