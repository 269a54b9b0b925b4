"""Waiting on a connection that was lost for good, or closed, is no timeout, and freezes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from tests.conftest import MakeServer

import jetspark
from jetspark import blocking
from jetspark.errors import ClosedError, ConnectionClosedError, JetsparkError

Wait = Callable[[], Any]
LONG = 20


def waits_of(nc: Any, js: Any, consumer: Any, bucket: Any, store: Any) -> dict[str, Wait]:
    """Each wait, by name."""
    sources = {
        "subscription": nc.subscribe("quiet"),
        "consume": consumer.consume(),
        "ordered": js.stream("S").ordered(),
        "events": js.events(stream="OTHER"),
        "watch": bucket.watch(updates_only=True),
        "objects": store.watch(updates_only=True),
    }
    return {
        **{name: partial(source.next, LONG) for name, source in sources.items()},
        "fetch": lambda: consumer.fetch(1, timeout=LONG),
        "next": lambda: consumer.next(timeout=LONG),
        "request": lambda: nc.request("nobody", timeout=LONG),
        "flush": lambda: nc.flush(LONG),
        "rtt": lambda: nc.rtt(LONG),
        "get": lambda: bucket.get("k"),
        "for ever": sources["ordered"].next,
    }


def late(js: Any, consumer: Any, bucket: Any, unread: Any) -> list[Wait]:
    """What begins after the end, and what was not read before it."""
    return [
        lambda: unread.next(),
        lambda: consumer.consume().next(LONG),
        lambda: js.stream("S").ordered().next(),
        lambda: js.stream("S").ordered(callback=print),
        lambda: bucket.watch(updates_only=True).next(LONG),
    ]


@pytest.mark.parametrize("end", ["lost", "closed"])
async def test_a_wait_on_an_ended_link_is_no_timeout(make_server: MakeServer, end: str) -> None:
    server = make_server(jetstream=True)
    nc = await jetspark.connect(server.url, reconnect=False)
    js = nc.jetstream()
    await js.create_stream(name="S", subjects=["s"], storage="memory")
    consumer = await js.stream("S").create_consumer(name="c")
    bucket = await js.create_bucket("B", storage="memory")
    store = await js.create_object_store("O", storage="memory")
    waits, unread = waits_of(nc, js, consumer, bucket, store), js.stream("S").ordered()
    begun = [asyncio.create_task(wait()) for wait in waits.values()]
    await js.publish("s")
    await asyncio.sleep(0.3)
    if end == "lost":
        await asyncio.to_thread(server.kill)
    else:
        await nc.close()
    async with asyncio.timeout(30):
        while nc.status != "closed":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        ends = await asyncio.gather(*begun, return_exceptions=True)
    # The others had their message, answer or mark before.
    waited = [one for one in ends if isinstance(one, ConnectionClosedError)]
    assert len(waited) >= 5
    assert not any(isinstance(one, TimeoutError) for one in ends)

    for begin in late(js, consumer, bucket, unread):
        with pytest.raises(ConnectionClosedError):
            await begin()
    with pytest.raises(ConnectionClosedError):
        await anext(unread)
    for name, wait in waits.items():
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        for _ in range(20):
            with pytest.raises(ConnectionClosedError) as raised:
                await wait()
            assert not isinstance(raised.value, TimeoutError), name
        assert ticks >= 20, name
        ticking.cancel()


def test_a_blocking_wait_on_an_ended_connection_is_no_timeout(make_server: MakeServer) -> None:
    server = make_server(jetstream=True)
    nc = blocking.connect(server.url, reconnect=False)
    js = nc.jetstream()
    js.create_stream(name="S", subjects=["s"], storage="memory")
    consumer = js.stream("S").create_consumer(name="c")
    bucket = js.create_bucket("B", storage="memory")
    store = js.create_object_store("O", storage="memory")
    waits, unread = waits_of(nc, js, consumer, bucket, store), js.stream("S").ordered()
    server.kill()
    for name, wait in waits.items():
        for _ in range(2):
            with pytest.raises(ConnectionClosedError) as raised:
                wait()
            assert not isinstance(raised.value, TimeoutError), name
    for begin in late(js, consumer, bucket, unread):
        with pytest.raises(ConnectionClosedError):
            begin()
    with pytest.raises(ConnectionClosedError):
        next(iter(unread))


async def test_a_source_that_was_ended_says_so(make_server: MakeServer) -> None:
    server = make_server(jetstream=True)
    async with jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s"], storage="memory")
        consumer = await js.stream("S").create_consumer(name="c")
        bucket = await js.create_bucket("B", storage="memory")
        for source in (
            nc.subscribe("quiet"),
            consumer.consume(),
            js.stream("S").ordered(),
            js.events(stream="OTHER"),
            bucket.watch(),
        ):
            async with source:
                pass
            for _ in range(2):
                with pytest.raises(ClosedError):
                    await source.next(LONG)
        with suppress(JetsparkError):
            await js.delete_stream("S")
