"""The short version; `python -m tests.frames --runs 10000` is the long one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.frames.__main__ import a_leaf_node
from tests.frames.campaign import CALLS, SCRIPTS, WAYS, Outcome, Place, campaign

from jetspark.server import NatsServer

pytestmark = pytest.mark.server

OVER_A_LEAF_NODE = ("ordered", "keys", "watch", "live", "history", "object_get", "fetch")


def check(outcomes: list[Outcome]) -> None:
    assert [str(outcome) for outcome in outcomes if outcome.wrong] == []
    assert sum(bool(outcome.frame) for outcome in outcomes) > len(outcomes) // 2


async def test_whichever_frame_is_disturbed_the_result_is_right_or_a_typed_error(
    shared_server: NatsServer, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")  # fast ingest
    async with asyncio.timeout(300):
        outcomes = await campaign(Place(shared_server), runs=120, seed=7)
    check(outcomes)
    assert len({outcome.script for outcome in outcomes}) > len(SCRIPTS) * 0.8


async def test_whichever_call_of_spark_s_source_or_sink_is_lost_no_row_is_or_comes_twice(
    shared_server: NatsServer, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")  # interestConsumer
    async with asyncio.timeout(300):
        outcomes = await campaign(Place(shared_server), CALLS, kinds=WAYS, runs=30, seed=7)
    check(outcomes)


@pytest.mark.parametrize("kind", ["drop", "cut"])
async def test_whichever_frame_is_disturbed_behind_a_leaf_node_the_result_is_right_or_a_typed_error(
    kind: str, needs_server: Callable[[str], None]
) -> None:
    # Before 2.15 a leaf node whose link is cut goes to the hub itself, past the proxy.
    needs_server("2.15" if kind == "cut" else "2.14")
    runs = 15 if kind == "drop" else 6
    async with a_leaf_node() as place, asyncio.timeout(300):
        outcomes = await campaign(
            place,
            OVER_A_LEAF_NODE,
            kinds=[kind],  # type: ignore[list-item]
            runs=runs,
            seed=7,
        )
    check(outcomes)
