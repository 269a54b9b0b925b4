"""Batches of direct gets whose link is cut before, within and at the end of an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.frame_proxy import FrameProxy

from jetspark.errors import ConnectionClosedError
from jetspark.full_client import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jetspark.documents.streams import StoredMsg
    from jetspark.full_client import JetStream
    from jetspark.server import NatsServer

pytestmark = pytest.mark.server


async def range_of(js: JetStream, stream: str) -> list[StoredMsg]:
    return await js.get_msgs(stream, 2, max_msgs=7, batch=4).all()


async def last(js: JetStream, stream: str) -> list[StoredMsg]:
    return await js.get_last_msgs(stream, f"{stream}.>", batch=2).all()


async def together(js: JetStream, stream: str) -> list[StoredMsg]:
    return (await js.get_last_msgs_together(stream, f"{stream}.>")).messages


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("read", [range_of, last, together])
async def test_an_answer_that_is_cut_goes_on_over_the_next_link(
    js: JetStream,
    stream: str,
    shared_server: NatsServer,
    read: Callable[[JetStream, str], Awaitable[list[StoredMsg]]],
    position: int,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.11")
    await js.update_stream(name=stream, allow_direct=True)
    for number in range(10):
        await js.publish(f"{stream}.{number % 5}", b"%d" % number)
    async with (
        FrameProxy(shared_server.port) as proxy,
        connect(proxy.url, reconnect_wait=0.05) as nc,
    ):
        far = nc.jetstream(timeout=60)
        fault = proxy.arm(position, "cut")
        begun = asyncio.get_running_loop().time()
        assert await read(far, stream) == await read(js, stream)
        assert asyncio.get_running_loop().time() - begun < 50  # no timeout
        assert nc.stats.reconnects == 1
    assert fault.hit is not None


async def test_an_answer_that_is_cut_for_good_is_an_error_at_once(
    js: JetStream,
    stream: str,
    shared_server: NatsServer,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.11")
    await js.update_stream(name=stream, allow_direct=True)
    await js.publish(f"{stream}.a", b"")
    async with (
        FrameProxy(shared_server.port) as proxy,
        connect(proxy.url, reconnect=False) as nc,
        asyncio.timeout(50),
    ):
        far = nc.jetstream(timeout=60)
        proxy.arm(1, "cut")
        with pytest.raises(ConnectionClosedError):
            await range_of(far, stream)
