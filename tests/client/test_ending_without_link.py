"""Draining and closing while the link is away: nothing that was published is lost in silence."""

from __future__ import annotations

import asyncio

import pytest
from tests.blocking.conftest import open_requests
from tests.client.conftest import Connect
from tests.conftest import Unique
from tests.jetstream.eventually import eventually
from tests.support.frame_proxy import FrameProxy

from jetspark import (
    Client,
    Closed,
    ConnectionClosedError,
    ConnectionLostError,
    ConnectionStatus,
    Disconnected,
    Draining,
    JetsparkError,
    JetStream,
    Reconnected,
    blocking,
)
from jetspark.server import NatsServer


class Door(FrameProxy):
    """A way to the server that can be shut."""

    is_open = True

    async def _carry(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self.is_open:
            await super()._carry(reader, client)

    async def slam(self) -> None:
        self.is_open = False
        await self._end_all()

    async def shut(self, nc: Client) -> None:
        stream = nc.events()
        await self.slam()
        assert isinstance(await anext(stream), Disconnected)


async def test_draining_waits_for_a_link_to_send_what_was_published(
    shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    other = await connect(shared_server.url)
    sub = other.subscribe(unique("late"))
    await other.flush()
    async with Door(shared_server.port) as door:
        nc = await connect(door.url, max_reconnect_attempts=-1)
        await door.shut(nc)
        nc.publish_nowait(sub.subject, b"x")
        events = nc.events()
        drain = asyncio.create_task(nc.drain())
        second = asyncio.create_task(nc.drain())
        await asyncio.sleep(0)  # both wait
        door.is_open = True
        await asyncio.gather(drain, second)
        assert [type(event) async for event in events] == [Reconnected, Draining, Closed]
    assert (await sub.next(30)).data == b"x"
    assert nc.last_error is None


@pytest.mark.parametrize("end", ["drain", "close"])
async def test_ending_without_a_link_says_how_much_was_not_sent(
    shared_server: NatsServer, connect: Connect, end: str
) -> None:
    errors: list[JetsparkError] = []
    async with Door(shared_server.port) as door:
        nc = await connect(door.url, max_reconnect_attempts=-1, error_callback=errors.append)
        await door.shut(nc)
        nc.publish_nowait("a", b"x")
        if end == "close":
            await nc.close()
        else:
            with pytest.raises(ConnectionLostError, match="12 bytes"):
                await nc.drain(0.2)
    assert nc.status is ConnectionStatus.CLOSED
    assert nc.last_error is None
    await asyncio.sleep(0)
    assert str(errors[-1]).startswith("12 bytes were never sent: the client was closed")


@pytest.mark.parametrize("sent", [False, True])
async def test_a_publish_that_waits_when_the_client_is_closed_says_whether_it_was_sent(
    shared_server: NatsServer, connect: Connect, js: JetStream, stream: str, sent: bool
) -> None:
    async with Door(shared_server.port) as door:
        nc = await connect(door.url, max_reconnect_attempts=-1)
        if not sent:
            await door.shut(nc)
        fault = door.arm(1, wanted=lambda frame: b'"stream"' in frame)
        waiting = asyncio.create_task(nc.jetstream().publish(f"{stream}.a", b"x", timeout=60))
        if sent:
            await eventually(lambda: fault.hit is not None)
        else:
            await asyncio.sleep(0)
        await nc.close()
        with pytest.raises(ConnectionClosedError) as caught:
            await waiting
        with pytest.raises(ConnectionClosedError) as later:
            await nc.jetstream().publish(f"{stream}.a", b"x")
    assert caught.value.sent == sent
    expected = (
        "it is not known whether it was stored." if sent else "was not sent, and will not be."
    )
    assert str(caught.value).endswith(expected)
    assert caught.value.sentence() == str(caught.value)  # what commands show
    assert (str(later.value), later.value.sent) == ("The connection is closed.", False)
    assert (await js.stream(stream).info()).state.messages == sent


@pytest.mark.parametrize("sent", [False, True])
async def test_a_publish_of_the_blocking_client_says_whether_it_was_sent(
    shared_server: NatsServer, connect: Connect, js: JetStream, stream: str, sent: bool
) -> None:
    async with Door(shared_server.port) as door, asyncio.timeout(30):
        nc = await asyncio.to_thread(blocking.connect, door.url, max_reconnect_attempts=-1)
        if not sent:
            await door.slam()
            await eventually(lambda: not nc.is_connected)
        fault = door.arm(1, wanted=lambda frame: b'"stream"' in frame)
        publish = asyncio.to_thread(nc.jetstream().publish, f"{stream}.a", b"x", timeout=60)
        waiting = asyncio.create_task(publish)
        await eventually(lambda: fault.hit is not None if sent else open_requests(nc) > 0)
        await asyncio.to_thread(nc.close)
        with pytest.raises(ConnectionClosedError) as caught:
            await waiting
    assert caught.value.sent == sent
    assert (await js.stream(stream).info()).state.messages == sent


async def test_draining_without_a_link_and_anything_to_send_does_not_wait(
    shared_server: NatsServer, connect: Connect
) -> None:
    async with Door(shared_server.port) as door, asyncio.timeout(15):
        nc = await connect(door.url, max_reconnect_attempts=-1)
        await door.shut(nc)
        with pytest.raises(ConnectionClosedError, match="lost before"):
            await nc.drain()
    assert nc.status is ConnectionStatus.CLOSED


async def test_the_blocking_client_drains_over_the_next_link(
    shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    other = await connect(shared_server.url)
    sub = other.subscribe(unique("late"))
    await other.flush()
    away = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told(event: object) -> None:
        if isinstance(event, Disconnected):
            loop.call_soon_threadsafe(away.set)

    async with Door(shared_server.port) as door:
        nc = await asyncio.to_thread(
            blocking.connect,
            door.url,
            max_reconnect_attempts=-1,
            reconnect_wait=0.05,
            event_callback=told,
        )
        await door.slam()
        await away.wait()
        nc.publish(sub.subject, b"x")
        drain = asyncio.create_task(asyncio.to_thread(nc.drain))
        await asyncio.sleep(0.1)
        assert not drain.done()
        door.is_open = True
        await drain
    assert (await sub.next(30)).data == b"x"


async def test_what_waits_for_a_link_learns_that_there_will_be_none(connect: Connect) -> None:
    with NatsServer() as server:
        nc = await connect(server.url, reconnect_wait=0.3, max_reconnect_attempts=2)
        events = nc.events()
        server.kill()
        assert isinstance(await anext(events), Disconnected)
        calls = (nc.flush(20), nc.force_reconnect(), nc.request("nobody", timeout=20))
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ends] == [ConnectionLostError] * 3
    assert nc.last_error is not None
    with pytest.raises(ConnectionClosedError):
        await nc.flush()
