"""The short version; `python -m tests.soak.reading consume --kills 100` is the long one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.soak.reading import kills

if TYPE_CHECKING:
    from jetspark.server import NatsServer


@pytest.mark.server
@pytest.mark.parametrize("how", ["fetch", "consume"])
async def test_killed_servers_lose_no_message_and_no_acknowledgement(
    nats_server: NatsServer, how: str
) -> None:
    figures = await asyncio.wait_for(kills(nats_server, how, 4, seed=3), 60)
    assert figures.kills + figures.stops == 4
    assert figures.stored > 100
