"""The campaign "streams" in small."""

from __future__ import annotations

import asyncio

from tests.fuzz.streams import run


async def test_mutated_streams_are_events_or_a_typed_error_and_clients_always_end() -> None:
    figures = await asyncio.wait_for(run(15_000, seed=1), 120)
    assert figures.streams["refused"] > 1500
    assert figures.streams["accepted"] > 1500
    assert figures.clients.total() == 300
    assert figures.clients["connected"] > 30
    assert len(figures.clients) > 3
