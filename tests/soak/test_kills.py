"""The campaign "kills" in small."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.soak.kills import run
from tests.soak.kills_load import Figures

pytestmark = pytest.mark.server


async def short(load: str, faults: int, **options: Any) -> Figures:
    figures = await asyncio.wait_for(run(faults, load=load, **options), 100)
    assert figures.faults.total() == faults
    return figures


async def test_restarts_under_load_lose_no_subscription_and_leave_nothing() -> None:
    figures = await short("core", 10, servers=3, seed=1)
    assert figures.reconnects >= 5
    assert 0 < figures.received <= figures.sent


@pytest.mark.parametrize("how", ["identified", "plain", "ingest-fail", "ingest-ok"])
async def test_under_kills_every_message_is_stored_once_or_reported(
    needs_server: Callable[[str], None], how: str
) -> None:
    if how.startswith("ingest"):
        needs_server("2.14")
    figures = await short(how, 3, seed=5)
    assert figures.acknowledged > 500


@pytest.mark.parametrize(("how", "kinds"), [("plain", "stepdown"), ("identified", "kill,pause")])
async def test_a_new_leader_loses_nothing_that_could_be_kept(how: str, kinds: str) -> None:
    figures = await short(how, 2, servers=3, kinds=kinds, away=1.0)
    assert figures.acknowledged > 500


@pytest.mark.parametrize("how", ["fetch", "consume"])
async def test_killed_servers_lose_no_message_and_no_acknowledgement(how: str) -> None:
    figures = await short(how, 4, seed=3)
    assert figures.stored > 100


@pytest.mark.parametrize(("servers", "faults"), [(1, 4), (3, 2)])
async def test_ordered_reading_loses_and_repeats_nothing(
    servers: int, faults: int, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.11")  # the oracle reads in batches
    figures = await short("ordered", faults, servers=servers, seed=3)
    assert figures.received == figures.sent > 0
    assert servers > 1 or len(figures.consumers) > 1


async def test_writers_under_two_kills_are_linearizable() -> None:
    figures = await short("bucket", 2, pause=2, seed=1)
    assert figures.acknowledged > 100
    assert figures.received >= figures.acknowledged
