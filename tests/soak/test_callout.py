"""The campaign "callout" in small."""

from __future__ import annotations

import asyncio

import pytest
from tests.soak.callout import run


@pytest.mark.server
async def test_callout_ends_each_login_and_each_spoiled_request_as_it_deserves() -> None:
    figures = await asyncio.wait_for(run(200, seed=3), 120)
    assert figures.wrong == []
    assert sum(figures.logins.values()) == sum(figures.requests.values()) == 200
    assert figures.requests["granted"] > 0
    assert figures.requests["refused unread"] > 50
