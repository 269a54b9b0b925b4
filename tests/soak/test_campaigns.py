"""The campaigns of this folder in small, but for those with a file of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from tests.soak import (
    backup,
    callout,
    cancelling,
    cancelling_calls,
    deadlines,
    every_thread,
    fairness,
    listings,
    objects,
    quiet,
    services,
)

from jetspark.server import NatsServer

pytestmark = pytest.mark.server


def test_thirty_megabytes_come_back_message_by_message() -> None:
    assert backup.run(seed=1, gigabytes=0.03).messages > 3000


async def test_callout_ends_each_login_and_each_spoiled_request_as_it_deserves() -> None:
    figures = await asyncio.wait_for(callout.run(200, seed=3), 120)
    assert figures.wrong == []
    assert sum(figures.logins.values()) == sum(figures.requests.values()) == 200
    assert figures.requests["granted"] > 0
    assert figures.requests["refused unread"] > 50


async def test_a_call_that_is_cancelled_leaves_nothing_behind(
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.14")
    figures = await cancelling.run(150, seed=3)
    assert figures.wrong == []
    assert figures.cancelled > 100
    assert len(figures.by_call) == len(cancelling_calls.CALLS)


async def test_deadlines_begin_with_the_call(nats_server: NatsServer) -> None:
    slow = {"fetch", "consumer next"}  # half a second more
    figures = deadlines.Figures()
    calls = [name for name in deadlines.CALLS if name not in slow]
    await deadlines.run_on(nats_server, figures, 3.0, calls)
    assert figures.wrong == []


def test_eight_threads_share_one_client(needs_server: Callable[[str], None]) -> None:
    needs_server("2.14")
    figures = every_thread.run(600, seed=1)
    assert figures.wrong == []
    assert figures.calls.keys() == {call.__name__ for call in every_thread.CALLS}


@pytest.mark.parametrize("what", ["shared_publisher", "shared_ingest"])
def test_threads_through_one_publisher_lose_and_log_nothing(
    needs_server: Callable[[str], None], what: str
) -> None:
    needs_server("2.14")
    figures = every_thread.run(30, only=what)
    assert figures.wrong == []
    assert figures.calls[what] == 30


async def test_equal_tasks_get_equal_shares(shared_server: NatsServer) -> None:
    figures = fairness.Figures()
    await fairness.run_on(shared_server.url, figures, 1.5, Random(1), threads=False)
    assert figures.wrong == []


async def test_listings_beside_writers_are_complete(shared_server: NatsServer) -> None:
    assert (await listings.run_on(shared_server.url, 60, seed=3, writers=1)).wrong == []


@pytest.mark.parametrize("client", ["asyncio", "blocking"])
def test_large_objects_need_little_memory(client: str) -> None:
    assert objects.run(client=client, gigabytes=0.1).wrong == []


def test_killed_servers_change_no_byte() -> None:
    assert objects.run(seed=5, gigabytes=0.03, kills=2).wrong == []


async def test_an_idle_connection_does_nothing_and_memory_does_not_grow_with_the_messages() -> None:
    assert (await quiet.run(idle=0.5, messages=100_000)).wrong == []


@pytest.mark.parametrize("gently", [False, True])
async def test_every_request_ends_while_instances_are_replaced_and_none_fails_in_good_order(
    gently: bool,
) -> None:
    every = 0.2 if gently else 0.3
    figures = await asyncio.wait_for(services.run(600, seed=2, every=every, gently=gently), 120)
    assert figures.wrong == []
    assert figures.ended.total() == 600
    assert figures.stopped if gently else figures.killed
    assert figures.ended["answered"] > (599 if gently else 400)
