"""The table "Requests Error Handling" of nats-tcl 3.0: a test for each cell, named by it.

Rows: request, ping, fetch. Columns: timeout, no responders, reconnecting, connection lost (no
server is left to try), connection closed (on purpose). The two last ones raise at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from tests.client.conftest import Connect

import jetspark.errors as errors
from jetspark import Client, Disconnected, JetStream, Message
from jetspark.jetstream.consumers import PullConsumer
from jetspark.server import NatsServer

LONG = 60.0


async def consumer_of(nc: Client) -> PullConsumer:
    js: JetStream = nc.jetstream()
    await js.create_stream(name="S", subjects=["s"])
    await js.stream("S").create_consumer(name="c")
    return await js.stream("S").consumer("c")


async def started(awaitable: Awaitable[object], nc: Client) -> asyncio.Task[object]:
    """The call as a task, once the server has what it sent."""

    async def call() -> object:
        return await awaitable

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    await nc.flush()
    return task


async def fails(task: asyncio.Task[object], error: type[Exception]) -> BaseException:
    """`error`, and exactly that, within a time much shorter than the call's own timeout."""
    done, _ = await asyncio.wait({task}, timeout=10)
    assert done, "the call waits for its timeout"
    raised = task.exception()
    assert type(raised) is error
    return raised


async def lose(nc: Client, server: NatsServer) -> None:
    """The server goes, and there is no other one."""
    events = nc.events()
    await asyncio.to_thread(server.kill)
    async for event in events:
        if isinstance(event, Disconnected):
            assert isinstance(event.error, errors.BrokenSocketError)


def check_lost(nc: Client, error: BaseException) -> None:
    """It is no timeout, as it comes at once; what went wrong is its cause and last_error."""
    assert isinstance(error, errors.ConnectionClosedError)
    assert not isinstance(error, TimeoutError)
    assert isinstance(error.__cause__, errors.ServerRefusedError | errors.BrokenSocketError)
    assert nc.last_error is error.__cause__
    with pytest.raises(errors.ConnectionClosedError):
        nc.publish_nowait("a")


# -- timeout -------------------------------------------------------------------------------------


async def test_request_timeout(own: Client) -> None:
    own.subscribe("silent")
    with pytest.raises(errors.RequestTimeoutError):
        await own.request("silent", timeout=0.02)
    assert own.is_connected


async def test_ping_timeout(own: Client, nats_server: NatsServer) -> None:
    nats_server.pause()
    try:
        with pytest.raises(errors.RequestTimeoutError):
            await own.flush(0.05)
    finally:
        nats_server.resume()
    await own.flush(30)


async def test_fetch_timeout(
    own: Client, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server gets half of the time, for it may be slow.
    monkeypatch.setattr("jetspark.jetstream.fetch.EXPIRES_EARLIER", 60)
    # The reference raises ErrTimeout when nothing came at all; our fetch gives an empty list for
    # "the server says there is nothing", and the error when the server says nothing either.
    consumer = await consumer_of(own)
    assert await consumer.fetch(1, timeout=1) == []
    nats_server.pause()
    try:
        with pytest.raises(errors.RequestTimeoutError):
            await consumer.fetch(1, timeout=0.05)
    finally:
        nats_server.resume()


# -- no responders -------------------------------------------------------------------------------


async def test_request_no_responders(own: Client) -> None:
    start = time.perf_counter()
    with pytest.raises(errors.NoRespondersError) as caught:
        await own.request("nobody", timeout=LONG)
    assert time.perf_counter() - start < 10
    assert caught.value.subject == "nobody"
    assert len(own.requests) == 0


# ping and fetch: not applicable. What a fetch makes of a consumer that is gone is in
# tests/jetstream/test_fetch.py.


# -- reconnecting --------------------------------------------------------------------------------


async def test_request_reconnecting_continues(own: Client, nats_server: NatsServer) -> None:
    asked: asyncio.Queue[Message] = asyncio.Queue()
    own.subscribe("svc", callback=asked.put_nowait)
    task = await started(own.request("svc", timeout=LONG), own)
    await asyncio.to_thread(nats_server.kill)
    await asyncio.to_thread(nats_server.start)
    await (await asyncio.wait_for(asked.get(), 30)).respond(b"ok")
    reply = await asyncio.wait_for(task, 30)
    assert isinstance(reply, Message)
    assert reply.data == b"ok"
    assert own.stats.reconnects == 1


async def test_ping_reconnecting_is_closed(nats_server: NatsServer, connect: Connect) -> None:
    own = await connect(nats_server.url, max_reconnect_attempts=5)
    nats_server.pause()  # so that the PING is not answered before the end
    task = asyncio.create_task(own.flush(LONG))
    await asyncio.sleep(0)
    stream = own.events()
    await asyncio.to_thread(nats_server.kill)
    assert isinstance(await asyncio.wait_for(anext(stream), 30), Disconnected)
    await fails(task, errors.ConnectionClosedError)
    with pytest.raises(errors.ConnectionClosedError):
        await own.flush(LONG)


async def test_fetch_reconnecting_continues(own: Client, nats_server: NatsServer) -> None:
    consumer = await consumer_of(own)
    task = await started(consumer.fetch(1, timeout=LONG), own)
    await asyncio.to_thread(nats_server.kill)
    await asyncio.to_thread(nats_server.start)
    await own.jetstream().publish("s", b"x")
    messages = await asyncio.wait_for(task, 30)
    assert isinstance(messages, list)
    assert [message.data for message in messages] == [b"x"]


# -- connection lost -----------------------------------------------------------------------------


Calls = dict[str, Callable[[], Awaitable[object]]]


async def calls_of(nc: Client) -> Calls:
    nc.subscribe("silent")
    consumer = await consumer_of(nc)
    return {
        "request": lambda: nc.request("silent", timeout=LONG),
        "request_many": lambda: nc.request_many("silent", timeout=LONG).all(),
        "fetch": lambda: consumer.fetch(1, timeout=LONG),
    }


@pytest.mark.parametrize("how", ["request", "request_many", "fetch"])
async def test_lost_raises_at_once(nats_server: NatsServer, connect: Connect, how: str) -> None:
    nc = await connect(nats_server.url, max_reconnect_attempts=0)
    task = await started((await calls_of(nc))[how](), nc)
    await lose(nc, nats_server)
    check_lost(nc, await fails(task, errors.ConnectionLostError))


async def test_ping_lost_is_closed(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url, max_reconnect_attempts=0)
    nats_server.pause()
    task = asyncio.create_task(nc.flush(LONG))
    await asyncio.sleep(0)
    await lose(nc, nats_server)
    await fails(task, errors.ConnectionClosedError)


# -- connection closed ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["request", "request_many", "fetch"])
async def test_closed_raises_at_once(own: Client, how: str) -> None:
    task = await started((await calls_of(own))[how](), own)
    own.report(errors.JetsparkError("an error of before"))
    await own.close()
    assert (await fails(task, errors.ConnectionClosedError)).__cause__ is None
    assert own.last_error is None


async def test_ping_closed_raises_at_once(own: Client, nats_server: NatsServer) -> None:
    nats_server.pause()
    task: asyncio.Task[object] = asyncio.create_task(own.flush(LONG))
    await asyncio.sleep(0)
    await own.close()
    await fails(task, errors.ConnectionClosedError)
