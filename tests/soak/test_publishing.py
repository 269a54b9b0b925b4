"""The short version; `python -m tests.soak.publishing identified --kills 100` is the long one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.soak.publishing import HOW, kills

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.server import NatsServer


@pytest.mark.server
@pytest.mark.parametrize("how", HOW)
async def test_under_kills_every_message_is_stored_once_or_reported(
    nats_server: NatsServer, needs_server: Callable[[str], None], how: str
) -> None:
    if how.startswith("ingest"):
        needs_server("2.14")
    figures = await asyncio.wait_for(kills(nats_server, how, 3, seed=5), 60)
    assert figures.kills + figures.stops == 3
    assert figures.acked > 500
