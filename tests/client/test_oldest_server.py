"""The core of the client on the oldest server that is supported, beside the newest.

Quick enough for every run; `python scripts/servers.py` fetches that server once, and
`python scripts/matrix.py --servers` runs everything on all of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.conftest import Connect, next_of
from tests.support.js_peer import cache

from jetspark import Message, NoRespondersError, Reconnected
from jetspark.server import NatsServer

OLDEST = "2.9"

pytestmark = pytest.mark.server


@pytest.fixture
def oldest() -> Iterator[NatsServer]:
    binary: Path = cache() / "servers" / OLDEST / "nats-server"
    if not os.access(binary, os.X_OK):
        pytest.skip(f"no nats-server {OLDEST} in the cache: python scripts/servers.py {OLDEST}")
    with NatsServer(binary=binary) as server:
        yield server


async def test_oldest_server_does_what_newest_does(oldest: NatsServer, connect: Connect) -> None:
    nc = await connect(oldest.url)
    assert nc.server_info is not None
    assert nc.server_info.version.startswith(OLDEST + ".")

    async def answer(message: Message) -> None:
        await message.respond(message.data, headers=message.headers)

    nc.subscribe("svc", queue="g", callback=answer)
    sub = nc.subscribe("a.*", max_msgs=3)
    headers = {"k": ["1", "zwei", "três"], "K": "x"}
    reply = await nc.request("svc", b"?", timeout=5, headers=headers)
    assert reply.headers is not None
    assert reply.headers.to_dict() == {"k": ["1", "zwei", "três"], "K": ["x"]}
    assert len(await nc.request_many("svc", max_msgs=1, timeout=5).all()) == 1
    with pytest.raises(NoRespondersError):
        await nc.request("nobody", timeout=30)
    await nc.publish("a.1", b"before")
    await nc.flush()
    events = nc.events()
    await asyncio.to_thread(oldest.kill)
    await asyncio.to_thread(oldest.start)
    await next_of(events, Reconnected)
    for number in range(3):
        await nc.publish("a.2", b"%d" % number)
    assert [message.data async for message in sub] == [b"before", b"0", b"1"]
    await nc.drain()


async def test_the_oldest_server_stores_and_delivers(oldest: NatsServer, connect: Connect) -> None:
    nc = await connect(oldest.url)
    js = nc.jetstream()
    await js.create_stream(name="S", subjects=["s"])
    for number in range(3):
        await js.publish("s", b"%d" % number)
    await js.stream("S").create_consumer(name="c")
    messages = await (await js.stream("S").consumer("c")).fetch(3, timeout=5)
    assert [message.data for message in messages] == [b"0", b"1", b"2"]
    for message in messages:
        await message.ack_sync()
