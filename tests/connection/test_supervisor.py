"""The life of a link against a scripted peer: what no real server does on demand."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.scripted_server import Peer, ScriptedServer

import jetspark
import jetspark.errors as errors
from jetspark.connection.events import TRANSITIONS, Reconnected
from jetspark.connection.options import make_options
from jetspark.connection.supervisor import LOG_INTERVAL, MAX_LOGGED, LogBudget
from jetspark.wire.kernel import MessageFrame

T = TypeVar("T")


async def soon(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, 30)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


class Connected:
    """A client, its peer, and what the client told."""

    def __init__(self, client: jetspark.Client, server: ScriptedServer) -> None:
        self.client = client
        self.server = server
        self.peer: Peer
        self.errors: asyncio.Queue[jetspark.JetsparkError] = asyncio.Queue()
        self.events: asyncio.Queue[jetspark.ConnectionEvent] = asyncio.Queue()

    async def event(self, kind: type[T]) -> T:
        while True:
            event = await soon(self.events.get())
            if isinstance(event, kind):
                return event


Link = Callable[..., Awaitable[Connected]]


@pytest.fixture
async def link(server: ScriptedServer) -> AsyncIterator[Link]:
    clients: list[jetspark.Client] = []

    async def make(
        *, info: dict[str, Any] | None = None, servers: list[str] | None = None, **options: Any
    ) -> Connected:
        options = {"reconnect_wait": 0.01, "reconnect_jitter": 0, "randomize": False} | options
        client = jetspark.Client(
            make_options(servers or server.url, **options),
            event_callback=lambda event: made.events.put_nowait(event),
            error_callback=lambda error: made.errors.put_nowait(error),
        )
        clients.append(client)
        made = Connected(client, server)
        connecting = asyncio.create_task(client.connect())
        made.peer = await server.welcome(**(info or {}))
        await soon(connecting)
        return made

    yield make
    for client in clients:
        await client.close()


# -- connecting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first_words", "options", "error"),
    [
        (b"-ERR 'Authorization Violation'\r\n", {}, jetspark.AuthorizationError),
        (b"-ERR 'maximum connections exceeded'\r\n", {}, errors.ServerError),
        (b"SSH-2.0-OpenSSH\r\n", {}, errors.ProtocolError),
        (b"PING\r\n", {}, errors.ProtocolError),
        (b"INFO {broken\r\n", {}, errors.ProtocolError),
        (b"INFO {}\r\n", {"tls": True}, errors.SecureConnectionWantedError),
        (b"", {"connect_timeout": 0.1}, errors.ConnectTimeoutError),
        (b"INFO {}\r\n", {"connect_timeout": 0.1}, errors.ConnectTimeoutError),
        (None, {}, errors.BrokenSocketError),
    ],
)
async def test_one_server_raises_its_own_error(
    server: ScriptedServer,
    first_words: bytes | None,
    options: dict[str, Any],
    error: type[Exception],
) -> None:
    client, connecting, peer = await server.client(**options)
    if first_words is None:
        peer.close()
    else:
        peer.send(first_words)
    with pytest.raises(error):
        await soon(connecting)
    assert client.status is jetspark.ConnectionStatus.CLOSED
    assert isinstance(client.last_error, error)
    with pytest.raises(jetspark.ConnectionClosedError):
        client.publish_nowait("a")
    while await peer.line():  # the client hangs up
        pass


async def test_several_servers_are_tried_once_each_and_the_last_error_is_the_cause(
    server: ScriptedServer,
) -> None:
    async with ScriptedServer() as other:
        urls = [server.url, other.url]
        client = jetspark.Client(make_options(urls, randomize=False, max_reconnect_attempts=9))
        connecting = asyncio.create_task(client.connect())
        (await server.accept()).close()
        (await other.accept()).send(b"-ERR 'Authorization Violation'\r\n")
        with pytest.raises(jetspark.NoServersError) as caught:
            await soon(connecting)
        assert isinstance(caught.value.__cause__, jetspark.AuthorizationError)


async def test_connect_takes_first_server_that_answers(server: ScriptedServer, link: Link) -> None:
    async with ScriptedServer() as gone:
        dead = gone.url
    made = await link(servers=[dead, server.url])
    assert made.client.current_server == server.url


async def test_cancelling_connect_closes_everything(server: ScriptedServer) -> None:
    client, connecting, peer = await server.client()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert await peer.line() == b""
    assert client.status is jetspark.ConnectionStatus.CLOSED
    with pytest.raises(jetspark.ConnectionClosedError):
        await client.connect()


async def test_ping_during_handshake_is_answered(server: ScriptedServer) -> None:
    client, connecting, peer = await server.client()
    peer.send_info()
    peer.send(b"PING\r\n")
    assert (await peer.line()).startswith(b"CONNECT ")
    await peer.expect(b"PING", b"PONG")
    peer.send(b"PONG\r\n")
    await soon(connecting)
    await client.close()


async def test_credentials_of_the_url_win(server: ScriptedServer) -> None:
    url = f"nats://me:pass%40word@127.0.0.1:{server.port}"
    client = jetspark.Client(make_options(url, token="t", name="n", echo=False))
    connecting = asyncio.create_task(client.connect())
    document = await (await server.accept()).shake_hands()
    await soon(connecting)
    assert (document["user"], document["pass"]) == ("me", "pass@word")
    assert "auth_token" not in document
    assert (document["name"], document["echo"], document["lang"]) == ("n", False, "python")
    assert document["headers"]
    assert document["no_responders"]
    await client.close()


# -- living --------------------------------------------------------------------------------------


async def test_a_message_in_pieces_is_delivered_whole(link: Link) -> None:
    made = await link()
    sub = made.client.subscribe("a")
    await made.peer.expect(b"SUB a 1")
    for byte in b"MSG a 1 r 6\r\nx\r\ny\r\n\r\nMSG a 1 0\r\n\r\n":
        made.peer.send(bytes([byte]))
        await asyncio.sleep(0)
    message = await sub.next(30)
    assert (message.data, message.reply) == (b"x\r\ny\r\n", "r")
    assert (await sub.next(30)).data == b""


async def test_pings_are_answered_in_order_with_what_is_published(link: Link) -> None:
    made = await link()
    made.peer.send(b"PING\r\n")
    await made.peer.expect(b"PONG")
    made.client.publish_nowait("a", b"x")
    flushing = asyncio.create_task(made.client.flush())
    await made.peer.expect(b"PUB a 1", b"x", b"PING")
    assert not flushing.done()
    made.peer.send(b"PONG\r\n")
    await soon(flushing)


async def test_flush_times_out(link: Link) -> None:
    made = await link()
    with pytest.raises(TimeoutError):
        await made.client.flush(0.01)
    # The late PONG is not taken for that of the next PING.
    flushing = asyncio.create_task(made.client.flush())
    await made.peer.expect(b"PING", b"PING")
    made.peer.send(b"PONG\r\n")
    await made.client.loop.run_in_executor(None, lambda: None)
    assert not flushing.done()
    made.peer.send(b"PONG\r\n")
    await soon(flushing)


async def test_unanswered_pings_make_the_connection_stale(link: Link) -> None:
    made = await link(ping_interval=0.02, max_outstanding_pings=2)
    await made.peer.expect(b"PING", b"PING", b"")
    assert isinstance(await soon(made.errors.get()), errors.StaleConnectionError)
    await made.server.welcome()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (b"-ERR 'Stale Connection'\r\n", errors.StaleConnectionError),
        (b"-ERR 'Slow Consumer Detected'\r\n", errors.ServerError),
        (b"-ERR 'User Authentication Expired'\r\n", errors.AuthExpiredError),
        (b"NONSENSE\r\n", errors.ProtocolError),
        (b"MSG a 1 5\r\nxx", errors.BrokenSocketError),
    ],
)
async def test_lost_link_reports_its_error_and_reconnect_restores_subscriptions(
    link: Link, words: bytes, error: type[Exception]
) -> None:
    made = await link()
    sub = made.client.subscribe("a")
    await made.peer.expect(b"SUB a 1")
    made.peer.send(words)
    if error is errors.BrokenSocketError:
        await made.peer.writer.drain()
        made.peer.reset()
    lost = await made.event(jetspark.Disconnected)
    assert isinstance(lost.error, error)
    again = await made.server.welcome()
    await again.expect(b"SUB a 1")
    again.send(b"MSG a 1 2\r\nok\r\n")
    assert (await sub.next(30)).data == b"ok"
    assert made.client.stats.reconnects == 1
    assert made.client.last_error is None


async def test_after_a_reconnect_come_the_subs_with_what_remains_then_the_publishes(
    link: Link,
) -> None:
    made = await link()
    client, peer = made.client, made.peer
    client.subscribe("all")
    limited = client.subscribe("few", queue="q", max_msgs=3)
    later = client.subscribe("later")
    gone = client.subscribe("gone")
    await peer.expect(b"SUB all 1", b"SUB few q 2", b"UNSUB 2 3", b"SUB later 3", b"SUB gone 4")
    peer.send(b"MSG few 2 1\r\n1\r\nMSG later 3 1\r\n1\r\n")
    await limited.next(30)
    await later.next(30)
    later.unsubscribe(5)
    await peer.expect(b"UNSUB 3 5")
    peer.close()
    await made.event(jetspark.Disconnected)
    gone.unsubscribe()
    client.publish_nowait("p", b"1")
    new = client.subscribe("new")
    client.publish_nowait("p", b"2", headers={"k": "v"})
    assert client.status is jetspark.ConnectionStatus.RECONNECTING
    again = await made.server.welcome()
    await again.expect(
        b"SUB all 1", b"SUB few q 2", b"UNSUB 2 2", b"SUB later 3", b"UNSUB 3 4", b"SUB new 5"
    )
    await again.expect(b"PUB p 1", b"1", b"HPUB p 18 19", b"NATS/1.0", b"k: v", b"", b"2")
    again.send(b"MSG few 2 1\r\n2\r\nMSG few 2 1\r\n3\r\nMSG few 2 1\r\n4\r\nMSG new 5 0\r\n\r\n")
    assert [message.data async for message in limited] == [b"2", b"3"]
    await new.next(30)


async def test_a_limit_set_after_a_reconnect_counts_for_the_server_from_there(link: Link) -> None:
    made = await link()
    sub = made.client.subscribe("a")
    made.peer.send(b"MSG a 1 0\r\n\r\n" * 3)
    for _ in range(3):
        await sub.next(30)
    made.peer.close()
    again = await made.server.welcome()
    await again.expect(b"SUB a 1")
    sub.unsubscribe(5)
    await again.expect(b"UNSUB 1 2")


async def test_the_publish_beyond_the_buffer_raises_and_others_arrive_once(link: Link) -> None:
    made = await link(pending_size=60)
    made.peer.close()
    await made.event(jetspark.Disconnected)
    taken = []
    with pytest.raises(jetspark.OutboundBufferError):
        for i in range(100):
            made.client.publish_nowait("p", b"%02d" % i)
            taken.append(b"%02d" % i)
    assert 0 < len(taken) < 10
    again = await made.server.welcome()
    for payload in taken:
        await again.expect(b"PUB p 2", payload)
    made.client.publish_nowait("p", b"end")
    await again.expect(b"PUB p 3", b"end")


async def test_a_frame_cut_by_the_loss_of_the_link_is_not_sent_again(link: Link) -> None:
    made = await link()
    big = bytes(900_000)
    # More than the kernel and the transport take; the peer reads nothing.
    with pytest.raises(jetspark.OutboundBufferError):
        for _ in range(100):
            made.client.publish_nowait("big", big)
    made.client.publish_nowait("small", b"kept")
    made.peer.reset()
    again = await made.server.welcome()
    count = 0
    while (line := await again.line()) != b"PUB small 4":
        assert line == b"PUB big 900000"
        assert await again.reader.readexactly(900_002) == big + b"\r\n"
        count += 1
    await again.expect(b"kept")
    assert 0 < count <= 9  # those of the outbox (8 MiB), none of the transport's


async def test_publish_waits_for_slow_server_and_loses_nothing(link: Link) -> None:
    made = await link(pending_size=1000)
    sent = 300

    async def publish() -> None:
        for _ in range(sent):
            await made.client.publish("p", bytes(50_000))

    publishing = [asyncio.create_task(publish()) for _ in range(2)]
    await asyncio.sleep(0.05)  # nothing to wait for: the point is that they are not done
    assert not any(task.done() for task in publishing)
    for _ in range(2 * sent):
        await made.peer.expect(b"PUB p 50000")
        await made.peer.reader.readexactly(50_002)
    await soon(asyncio.gather(*publishing))


async def test_close_sends_what_a_slow_peer_has_not_taken_yet(link: Link) -> None:
    made = await link()
    payload = bytes(1_000_000)
    for _ in range(8):
        made.client.publish_nowait("p", payload)
    closing = asyncio.create_task(made.client.close())
    for _ in range(8):
        await made.peer.expect(b"PUB p 1000000")
        await made.peer.reader.readexactly(1_000_002)
    assert await made.peer.line() == b""
    await soon(closing)


async def test_lame_duck_moves_before_the_first_link_ends(link: Link) -> None:
    async with ScriptedServer() as other:
        made = await link(info={"connect_urls": [f"127.0.0.1:{other.port}"]})
        assert (await made.event(jetspark.ServersDiscovered)).servers == (other.url,)
        made.client.subscribe("a")
        await made.peer.expect(b"SUB a 1")
        made.peer.send_info(ldm=True)
        second = await other.accept()
        assert (await made.event(jetspark.LameDuck)).server == made.server.url
        assert made.client.is_connected  # still by the first
        made.client.publish_nowait("p", b"1")
        await made.peer.expect(b"PUB p 1", b"1")
        await second.shake_hands()
        await second.expect(b"SUB a 1")
        assert await made.peer.line() == b""
        assert made.client.current_server == other.url
        assert made.errors.empty()


async def test_lame_duck_without_another_server_is_kept_until_it_ends(link: Link) -> None:
    made = await link()
    made.peer.send_info(ldm=True)
    await made.event(jetspark.LameDuck)
    made.peer.send_info(ldm=True)  # as when another server leaves meanwhile
    await flushing_of(made)
    assert made.events.empty()
    made.peer.close()
    await made.server.welcome()


async def flushing_of(made: Connected) -> None:
    flushing = asyncio.create_task(made.client.flush())
    await made.peer.expect(b"PING")
    made.peer.send(b"PONG\r\n")
    await soon(flushing)


async def test_force_reconnect_is_no_error(link: Link) -> None:
    made = await link(reconnect_wait=60)
    made.client.publish_nowait("p", b"x")
    forcing = asyncio.create_task(made.client.force_reconnect())
    await made.peer.expect(b"PUB p 1", b"x", b"")
    await made.server.welcome()
    await soon(forcing)
    assert made.client.is_connected
    assert made.errors.empty()
    assert (await made.event(jetspark.Disconnected)).error is None


async def test_when_all_servers_are_given_up_the_connection_closes(link: Link) -> None:
    async with ScriptedServer() as only:
        client = jetspark.Client(
            make_options(
                only.url, reconnect_wait=0.01, reconnect_jitter=0, max_reconnect_attempts=2
            )
        )
        connecting = asyncio.create_task(client.connect())
        peer = await only.welcome()
        await soon(connecting)
        events = client.events()
        sub = client.subscribe("a")
        request = asyncio.create_task(client.request("b", timeout=60))
        await peer.expect(b"SUB a 1")
    seen = [event async for event in events]
    assert isinstance(seen[-1].error, errors.ServerRefusedError)  # type: ignore[union-attr]
    assert client.status is jetspark.ConnectionStatus.CLOSED
    with pytest.raises(jetspark.ConnectionClosedError) as caught:
        await soon(request)
    assert isinstance(caught.value.__cause__, errors.ServerRefusedError)
    with pytest.raises(jetspark.ConnectionClosedError):
        await soon(sub.__anext__())


async def test_closing_while_reconnecting_is_at_once(link: Link) -> None:
    made = await link(reconnect_wait=60)
    made.peer.close()
    await made.event(jetspark.Disconnected)
    await asyncio.wait_for(made.client.close(), 30)
    assert made.client.status is jetspark.ConnectionStatus.CLOSED


async def test_what_fails_again_in_one_outage_is_a_warning_once(
    link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jetspark")
    made = await link()
    for _ in range(2):
        caplog.clear()
        made.peer.close()
        for _ in range(3):
            (await made.server.accept()).close()
        made.peer = await made.server.welcome()
        await made.event(Reconnected)
        again = [r.levelname for r in caplog.records if "closed the connection" in r.getMessage()]
        # The link's own end, and the first of the failures.
        assert again == ["WARNING", "WARNING", "INFO", "INFO"]
    assert made.errors.qsize() >= 6


async def test_a_raising_callback_stops_neither_reading_nor_reconnecting(
    server: ScriptedServer, link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    client = jetspark.Client(
        make_options(server.url, reconnect_wait=0.01, reconnect_delay=lambda _: 1 / 0),
        event_callback=lambda _: 1 / 0,  # type: ignore[arg-type,return-value]
        error_callback=lambda _: 1 / 0,  # type: ignore[arg-type,return-value]
    )
    connecting = asyncio.create_task(client.connect())
    peer = await server.welcome()
    await soon(connecting)
    frames: list[bytes] = []

    def handler(frame: MessageFrame) -> None:
        frames.append(frame.payload)
        raise RuntimeError("handler")

    def hook() -> None:
        raise RuntimeError("hook")

    client.listen("a", handler, on_disconnect=hook, on_reconnect=hook)
    peer.send(b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\nPING\r\n")
    await peer.expect(b"SUB a 1", b"PONG")
    peer.close()
    (await server.accept()).close()
    again = await server.welcome()
    again.send(b"MSG a 1 1\r\n3\r\nPING\r\n")
    await again.expect(b"SUB a 1", b"PONG")
    assert frames == [b"1", b"2", b"3"]
    logged = [record for record in caplog.records if record.name == "jetspark"]
    assert any(record.exc_info for record in logged)
    assert not [record for record in caplog.records if record.name == "asyncio"]
    await client.close()


async def test_on_run_that_raises_is_reported_and_messages_are_not_repeated(
    link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    made = await link()
    taken: list[bytes] = []
    single: list[MessageFrame] = []

    def on_run(frames: list[MessageFrame], _size: int) -> bool:
        taken.extend(frame.payload for frame in frames)
        raise RuntimeError("on_run")

    listener = made.client.listen("a", single.append, on_run=on_run)
    made.peer.send(b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\nPING\r\nMSG a 1 1\r\n3\r\nPING\r\n")
    await made.peer.expect(b"SUB a 1", b"PONG", b"PONG")
    assert (taken, single, listener.received) == ([b"1", b"2", b"3"], [], 3)
    assert "The handler of 'a' raised RuntimeError('on_run')" in caplog.text
    assert made.client.is_connected
    await made.client.close()


async def test_listener_hooks_are_called_with_each_link_and_may_publish(link: Link) -> None:
    made = await link()
    told: list[object] = []

    def again() -> None:
        told.append("again")
        made.client.publish_nowait("p", b"again")

    listener = made.client.listen(
        "a",
        lambda _: None,
        on_disconnect=lambda: told.append("lost"),
        on_reconnect=again,
        on_end=told.append,
    )
    made.peer.close()
    await made.event(jetspark.Disconnected)
    made.client.publish_nowait("p", b"1")
    peer = await made.server.welcome()
    await peer.expect(b"SUB a 1", b"PUB p 1", b"1", b"PUB p 5", b"again")
    await made.client.close()
    assert told[:2] == ["lost", "again"]
    assert isinstance(told[2], jetspark.ConnectionClosedError)
    assert len(told) == 3
    assert not listener.active


async def test_a_link_lost_while_draining_is_the_end(link: Link) -> None:
    made = await link()
    sub = made.client.subscribe("a")
    draining = asyncio.create_task(made.client.drain())
    await made.peer.expect(b"SUB a 1", b"UNSUB 1", b"PING")
    assert sub.active
    assert made.client.status is jetspark.ConnectionStatus.DRAINING
    made.peer.close()
    with pytest.raises(jetspark.ConnectionClosedError):
        await soon(draining)
    assert isinstance(made.client.last_error, errors.BrokenSocketError)


async def test_a_first_request_while_draining_opens_the_inbox(link: Link) -> None:
    made = await link()
    answers: list[bytes] = []

    async def ask(message: jetspark.Message) -> None:
        answers.append((await made.client.request("svc", timeout=5)).data)

    made.client.subscribe("a", callback=ask)
    await made.peer.expect(b"SUB a 1")
    draining = asyncio.create_task(made.client.drain())
    await made.peer.expect(b"UNSUB 1", b"PING")
    made.peer.send(b"MSG a 1 0\r\n\r\nPONG\r\n")
    inbox = (await made.peer.line()).split()
    assert (inbox[0], inbox[2]) == (b"SUB", b"2")
    reply = (await made.peer.line()).split()[2]
    await made.peer.expect(b"")
    with pytest.raises(jetspark.ConnectionClosedError):
        made.client.subscribe("b")
    made.peer.send(b"MSG %b 2 2\r\nok\r\n" % reply)
    await made.peer.expect(b"PING")
    made.peer.send(b"PONG\r\n")
    await soon(draining)
    assert answers == [b"ok"]


async def test_messages_on_their_way_when_a_subscription_ends_are_dropped(link: Link) -> None:
    made = await link()
    sub = made.client.subscribe("a")
    await made.peer.expect(b"SUB a 1")
    sub.unsubscribe()
    made.peer.send(b"MSG a 1 1\r\nx\r\n")
    await made.peer.expect(b"UNSUB 1")
    await flushing_of(made)
    assert sub.pending_msgs == 0
    assert made.errors.empty()


async def test_headers_are_refused_by_a_server_without_them(link: Link) -> None:
    made = await link(info={"headers": False})
    with pytest.raises(errors.HeadersNotSupportedError):
        made.client.publish_nowait("a", headers={"a": "b"})


async def test_kept_publish_that_next_server_refuses_is_dropped_and_reported(link: Link) -> None:
    made = await link()
    publish = made.client.publish_nowait
    made.peer.close()
    await made.event(jetspark.Disconnected)
    assert isinstance(await soon(made.errors.get()), errors.BrokenSocketError)
    publish("a", b"1")
    publish("a", b"x" * 101)
    publish("a", b"x" * 80, headers={"k": "v" * 10})
    publish("a", b"x" * 100)
    publish("a", b"2", headers={"k": "v"})
    peer = await made.server.welcome(max_payload=100, headers=False)
    await peer.expect(b"PUB a 1", b"1", b"PUB a 100", b"x" * 100)
    told = [await soon(made.errors.get()) for _ in range(3)]
    assert [type(error) for error in told] == [
        errors.MaxPayloadError,
        errors.MaxPayloadError,
        errors.HeadersNotSupportedError,
    ]
    assert isinstance(told[0], errors.MaxPayloadError)
    assert (told[0].size, told[0].limit) == (101, 100)
    made.peer = peer
    await flushing_of(made)
    assert made.client.stats.reconnects == 1
    with pytest.raises(errors.MaxPayloadError):
        publish("a", b"x" * 101)


async def test_ok_of_verbose_mode_is_no_event(server: ScriptedServer) -> None:
    client, connecting, peer = await server.client(verbose=True, pedantic=True)
    peer.send_info()
    assert b'"verbose":true,"pedantic":true' in await peer.line()
    await peer.expect(b"PING")
    peer.send(b"+OK\r\nPONG\r\n")
    await soon(connecting)
    sub = client.subscribe("a")
    await peer.expect(b"SUB a 1")
    peer.send(b"+OK\r\nMSG a 1 1\r\nx\r\n+OK\r\n")
    assert (await sub.next(30)).data == b"x"
    assert client.last_error is None
    await client.close()


async def test_check_subjects_off_still_refuses_white_space(link: Link) -> None:
    made = await link(check_subjects=False)
    made.client.publish_nowait("a..*", b"")
    made.client.subscribe("b.>.c")
    await made.peer.expect(b"PUB a..* 0", b"", b"SUB b.>.c 1")
    for bad in ("a b", "", "a\r\nPING"):
        with pytest.raises(errors.BadSubjectError):
            made.client.publish_nowait(bad)
        with pytest.raises(errors.BadSubjectError):
            made.client.subscribe(bad)


async def test_trace_has_lines_no_secret(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "jetspark.trace")
    client, connecting, peer = await server.client(user="me", password="s3cret", trace=True)
    await peer.shake_hands()
    await soon(connecting)
    sub = client.subscribe("a")
    client.publish_nowait("a", b"payload")
    await peer.expect(b"SUB a 1", b"PUB a 7", b"payload")
    peer.send(b"MSG a 1 7\r\npayload\r\n")
    await sub.next(30)
    await client.close()
    lines = [r.getMessage() for r in caplog.records if r.name == "jetspark.trace"]
    assert [line.split(" {")[0] for line in lines] == [
        *("<<- INFO", "->> CONNECT", "->> PING", "<<- PONG", "->> SUB a 1", "->> PUB a 7"),
        "<<- MSG a 1 7",
    ]
    assert "payload" not in "".join(lines).replace("max_payload", "")
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("block", [b"NATS/1.0\r\nk: \xff\r\n\r\n", b"garbage!\r\n\r\n"])
async def test_malformed_headers_are_told_and_the_body_given(link: Link, block: bytes) -> None:
    made = await link()
    sub = made.client.subscribe("a")
    made.peer.send(b"HMSG a 1 %d %d\r\n%bbody\r\n" % (len(block), len(block) + 4, block))
    message = await sub.next(30)
    assert message.data == b"body"
    assert message.headers is None
    assert message.headers is None
    assert isinstance(made.client.last_error, errors.BadHeaderError)
    assert isinstance(await soon(made.errors.get()), errors.BadHeaderError)
    await asyncio.sleep(0)
    assert made.errors.empty()


def test_state_diagram_of_architecture_page_equals_transitions() -> None:
    pictures = Path(__file__).parents[2] / "docs" / "pictures"
    source = (pictures / "states.dot").read_text("utf-8")
    drawn = re.findall(r"^ *(\w+) -> (\w+)", source, re.MULTILINE)
    picture = (pictures / "states.svg").read_text("utf-8")
    assert sorted(re.findall(r"<title>(\w+)&#45;&gt;(\w+)<", picture)) == sorted(drawn)
    table = [(str(a), str(b)) for a, following in TRANSITIONS.items() for b in following]
    assert sorted(drawn) == sorted(table)


def test_every_state_can_be_left_and_closed_is_the_only_start() -> None:
    assert set(TRANSITIONS) == set(jetspark.ConnectionStatus)
    for state, following in TRANSITIONS.items():
        if state is not jetspark.ConnectionStatus.CLOSED:
            assert jetspark.ConnectionStatus.CLOSED in following


# -- floods --------------------------------------------------------------------------------------


@pytest.mark.full
async def test_server_that_reads_nothing_gets_one_pong(server: ScriptedServer, link: Link) -> None:
    """Its PINGs cost no memory."""
    made = await link(pending_size=2_000_000)
    with pytest.raises(jetspark.OutboundBufferError):
        while True:  # until the client's socket is full
            made.client.publish_nowait("a", b"x" * 1_000_000)
            await asyncio.sleep(0)
    for _ in range(3):
        made.peer.send(b"PING\r\n" * 20_000)
        await made.peer.writer.drain()
    made.peer.send(b"-ERR 'the last'\r\n")
    await soon(made.errors.get())
    received = b""
    for last in (b"PONG\r\n", b"PUB end 0\r\n\r\n"):
        while not received.endswith(last):
            received += (await soon(made.peer.reader.read(1 << 20))).replace(b"x", b"")
        made.client.publish_nowait("end")
    assert received.count(b"PONG\r\n") == 1


async def test_not_all_errors_are_logged(link: Link, caplog: pytest.LogCaptureFixture) -> None:
    made = await link()
    with caplog.at_level(logging.WARNING, "jetspark"):
        made.peer.send(b"-ERR 'foo bar'\r\n" * 500)
        for _ in range(500):
            await soon(made.errors.get())
    assert len(caplog.records) == MAX_LOGGED + 1
    assert "the next ones are only counted" in caplog.text


def test_errors_that_were_not_logged_are_counted_later(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    budget = LogBudget(lambda: now)
    assert sum(budget.spend() for _ in range(MAX_LOGGED + 7)) == MAX_LOGGED
    now = LOG_INTERVAL
    assert budget.spend()
    assert "7 more errors were not logged" in caplog.text
