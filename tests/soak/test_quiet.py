"""The campaign "quiet" in small."""

from __future__ import annotations

import pytest
from tests.soak.quiet import run


@pytest.mark.server
async def test_an_idle_connection_does_nothing_and_memory_does_not_grow_with_the_messages() -> None:
    figures = await run(idle=0.5, messages=100_000)
    assert figures.wrong == []
