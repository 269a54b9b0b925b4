"""The campaign "groups" in small."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.chaos.groups import KEYS, Figures, run


@pytest.mark.server
async def test_keys_stay_in_order_and_nothing_is_lost_while_members_come_go_and_die(
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.11")
    figures = await asyncio.wait_for(run(8, ack_wait=1, every=0.2, within=60, seed=3), 200)
    assert figures.wrong == []
    assert figures.turns["instance dies"] > 0
    assert figures.turns["drops"] > 0
    assert figures.handled["first"] == figures.published


def test_the_oracle_notices_what_is_lost_repeated_or_out_of_order() -> None:
    figures = Figures()
    figures.handle("k", 0, "m1")
    figures.handle("k", 0, "m2")
    assert figures.wrong == []
    figures.confirmed.add(("k", 0))
    figures.handle("k", 0, "m1")
    figures.handle("k", 2, "m1")
    assert len(figures.wrong) == 2
    for number in range(KEYS - 1):
        figures.handle(f"k{number}", 0, "m1")
    figures.judge(3)
    assert len(figures.wrong) == 3
