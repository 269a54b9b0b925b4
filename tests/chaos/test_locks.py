"""The campaign "locks" in small."""

from __future__ import annotations

import asyncio

import pytest
from tests.chaos.locks import Resource, run


@pytest.mark.server
async def test_no_old_token_is_accepted_after_a_newer_one_while_holders_die_and_stand_still() -> (
    None
):
    figures = await asyncio.wait_for(
        run(5, seed=4, contenders=3, lease=1, every=0.8, pause=1.2, without_ttl=True), 120
    )
    assert figures.wrong == []
    assert figures.tokens > 5
    assert figures.refused_for_no_reason < 5
    assert figures.pauses > 0
    assert figures.killed > 0


def test_the_resource_notices_locks_that_are_wrong() -> None:
    resource = Resource()
    assert resource.write(2, "careful-1")
    assert resource.write(4, "careless-2")
    assert not resource.write(2, "careful-1")
    assert not resource.write(4, "careful-1") or resource.wrong
    resource.accepted += [(3, "careful-3"), (4, "careless-2")]
    resource.judge()
    assert len(resource.wrong) == 3
