"""The campaign "frames" in small."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.frames.frames import CALLS, SCRIPTS, WAYS, Figures, Place, a_leaf_node, run_on
from tests.support.frame_proxy import Kind

from jetspark.server import NatsServer

pytestmark = pytest.mark.server

OVER_A_LEAF_NODE = ("ordered", "keys", "watch", "live", "history", "object_get", "fetch")


def check(figures: Figures) -> None:
    assert figures.wrong == []
    assert figures.frames_hit > figures.runs // 2


async def test_whichever_frame_is_disturbed_the_result_is_right_or_a_typed_error(
    shared_server: NatsServer, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")  # fast ingest
    async with asyncio.timeout(300):
        figures = await run_on(Place(shared_server), 120, 7)
    check(figures)
    assert len(figures.calls) > len(SCRIPTS) * 0.8


async def test_whichever_call_of_spark_s_source_or_sink_is_lost_no_row_is_or_comes_twice(
    shared_server: NatsServer, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")  # interestConsumer
    async with asyncio.timeout(300):
        check(await run_on(Place(shared_server), 20, 7, CALLS, WAYS))


@pytest.mark.parametrize("kind", ["drop", "cut"])
async def test_whichever_frame_is_disturbed_behind_a_leaf_node_the_result_is_right_or_a_typed_error(
    kind: Kind, needs_server: Callable[[str], None]
) -> None:
    # Before 2.15 a leaf node whose link is cut goes to the hub itself, past the proxy.
    needs_server("2.15" if kind == "cut" else "2.14")
    runs = 10 if kind == "drop" else 4
    async with a_leaf_node() as place, asyncio.timeout(300):
        check(await run_on(place, runs, 7, OVER_A_LEAF_NODE, [kind]))
