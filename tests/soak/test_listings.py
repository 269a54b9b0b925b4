"""The campaign "listings" in small."""

from __future__ import annotations

import pytest
from tests.soak.listings import run_on

from jetspark.server import NatsServer

pytestmark = pytest.mark.server


async def test_listings_beside_writers_are_complete(shared_server: NatsServer) -> None:
    figures = await run_on(shared_server.url, 120, seed=3, writers=1)
    assert figures.wrong == []
