"""Connecting, losing the server, draining, closing: through real servers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.client.conftest import Connect, next_of
from tests.conftest import Unique
from tests.support.ports import free_port

import jetspark
import jetspark.errors as errors
from jetspark.server import NatsServer


async def test_connect_can_be_awaited_or_entered(shared_server: NatsServer) -> None:
    nc = await jetspark.connect(shared_server.url)
    assert nc.is_connected
    assert nc.current_server == shared_server.url
    assert nc.servers == [shared_server.url]
    assert nc.server_info is not None
    assert nc.server_info.server_name == "shared"
    assert 0 < await nc.rtt() < 30
    await nc.connect()  # nothing to do
    await nc.close()
    assert nc.status is jetspark.ConnectionStatus.CLOSED
    assert nc.current_server is None
    async with jetspark.connect(shared_server.url) as other:
        assert other.is_connected
    assert not other.is_connected
    async with jetspark.Client(other.options) as third:
        assert third.is_connected


async def test_refused_connection_names_server(connect: Connect) -> None:
    port = free_port()
    with pytest.raises(errors.ServerRefusedError) as caught:
        await connect(f"nats://user:secret@127.0.0.1:{port}")
    assert str(caught.value) == f"No server at nats://127.0.0.1:{port}: Connection refused."
    with pytest.raises(errors.ServerRefusedError):
        await connect("nats://no-such-host.invalid")
    with pytest.raises(errors.NoServersError):
        await connect([f"nats://127.0.0.1:{port}", f"nats://127.0.0.1:{free_port()}"])


async def test_an_unknown_option_is_refused_before_any_io() -> None:
    with pytest.raises(errors.ConfigError, match="mean 'reconnect_wait'"):
        jetspark.connect(reconect_wait=1)  # type: ignore[call-arg]


async def test_close_leaves_no_task_and_no_route_behind(shared_server: NatsServer) -> None:
    before = asyncio.all_tasks()
    async with jetspark.connect(shared_server.url) as nc:
        nc.subscribe("left.behind", callback=lambda _: None)
        with pytest.raises(jetspark.NoRespondersError):
            await nc.request("nobody.here")
    assert asyncio.all_tasks() == before
    assert len(nc.publishing.link.routes) == 0


async def test_after_a_crash_subscriptions_are_restored_and_what_was_published_arrives_in_order(
    nats_server: NatsServer, connect: Connect
) -> None:
    events: list[Any] = []
    nc = await connect(nats_server.url, event_callback=events.append)
    sub = nc.subscribe("a.*")
    limited = nc.subscribe("a.*", max_msgs=5)
    for number in range(3):
        await nc.publish("a.b", b"%d" % number)
    await nc.flush()
    stream = nc.events()
    await asyncio.to_thread(nats_server.kill)
    assert isinstance(await anext(stream), jetspark.Disconnected)
    assert nc.status is jetspark.ConnectionStatus.RECONNECTING
    assert nc.current_server is None
    for number in range(3, 100):
        await nc.publish("a.b", b"%d" % number)
    with pytest.raises(jetspark.ConnectionClosedError):
        await nc.rtt()
    flushing = asyncio.create_task(nc.flush(30))
    await asyncio.to_thread(nats_server.start)
    await flushing
    assert [int((await sub.next(30)).data) for _ in range(100)] == list(range(100))
    assert [int(message.data) async for message in limited] == list(range(5))
    await nc.flush()
    assert sub.pending_msgs == 0
    assert nc.stats.reconnects == 1
    await nc.close()
    await asyncio.sleep(0)
    first, *others = [type(event) for event in events]
    assert first is jetspark.Connected
    assert others == [jetspark.Disconnected, jetspark.Reconnected, jetspark.Closed]
    assert isinstance(events[1].error, errors.BrokenSocketError)
    assert events[-1] == jetspark.Closed(None)
    assert [type(event) async for event in stream] == [jetspark.Reconnected, jetspark.Closed]


async def test_a_frozen_server_is_noticed(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url, ping_interval=0.05)
    stream = nc.events()
    nats_server.pause()
    event = await asyncio.wait_for(anext(stream), 30)
    nats_server.resume()
    assert isinstance(event, jetspark.Disconnected)
    assert isinstance(event.error, jetspark.errors.StaleConnectionError)
    assert isinstance(await asyncio.wait_for(anext(stream), 30), jetspark.Reconnected)


async def test_other_servers_take_over_from_a_dead_one_and_from_a_lame_duck(
    make_cluster: Callable[..., Any], connect: Connect
) -> None:
    cluster = await asyncio.to_thread(make_cluster, 3)
    first = cluster.servers[0]
    nc = await connect(first.url)
    watcher = await connect(cluster.servers[1].url)
    events = nc.events()
    async with asyncio.timeout(60):  # learnt from INFO, the first one or a later one
        while sorted(nc.servers) != sorted(cluster.urls):
            await anext(events)
    sub = watcher.subscribe("a")
    mine = nc.subscribe("b")
    await watcher.flush()
    await asyncio.to_thread(first.kill)
    # The routes of the cluster know the new place only after a while: ask until it answers.
    async with asyncio.timeout(60):
        for sender, receiver in ((nc, sub), (watcher, mine)):
            while not receiver.delivered:
                await sender.publish(receiver.subject, b"x")
                with suppress(errors.RequestTimeoutError):
                    await receiver.next(0.1)
    assert nc.current_server in cluster.urls[1:]
    (lame,) = [server for server in cluster.servers if server.url == nc.current_server]
    os.kill(lame.pid, signal.SIGUSR2)
    await next_of(events, jetspark.LameDuck)
    await next_of(events, jetspark.Reconnected)
    lame.kill()  # a lame duck takes its time to stop
    assert nc.current_server not in (first.url, lame.url)
    assert nc.last_error is None


async def test_draining_delivers_what_has_arrived_and_sends_what_callbacks_answer(
    shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    nc, other = await connect(shared_server.url), await connect(shared_server.url)
    subject, answers = unique("drain"), other.subscribe(unique("answers"))
    handled: list[bytes] = []

    draining = asyncio.Event()

    async def callback(message: jetspark.Message) -> None:
        await draining.wait()
        handled.append(message.data)
        with pytest.raises(jetspark.ConnectionClosedError):
            nc.subscribe("new")
        await message.respond(message.data)

    nc.subscribe(subject, callback=callback)
    iterated = nc.subscribe(subject)
    taken: list[bytes] = []

    async def iterate() -> None:
        async for message in iterated:
            await asyncio.sleep(0)
            taken.append(message.data)

    iterating = asyncio.create_task(iterate())
    await nc.flush()
    sent = [b"%d" % number for number in range(100)]
    for data in sent:
        await other.publish(subject, data, reply=answers.subject)
    await other.flush()
    stream = nc.events()
    drain = asyncio.create_task(nc.drain())
    events = [await asyncio.wait_for(anext(stream), 30)]
    draining.set()
    await drain
    await iterating
    assert handled == taken == sent
    assert [(await answers.next(30)).data for _ in sent] == sent
    events += [event async for event in stream]
    assert [type(event) for event in events] == [jetspark.Draining, jetspark.Closed]
    assert nc.status is jetspark.ConnectionStatus.CLOSED


async def test_a_callback_may_close_its_own_connection(nc: jetspark.Client, unique: Unique) -> None:
    closed = asyncio.Event()

    async def callback(message: jetspark.Message) -> None:
        await nc.close()
        closed.set()

    sub = nc.subscribe(unique("x"), callback=callback)
    await nc.publish(sub.subject)
    await asyncio.wait_for(closed.wait(), 30)


async def test_statistics_count_messages(nc: jetspark.Client) -> None:
    sub = nc.subscribe("s")
    await nc.publish("s", b"four")
    await sub.next(30)
    stats = nc.stats
    assert (stats.in_msgs, stats.in_bytes, stats.out_msgs) == (1, 4, 1)
    assert stats.out_bytes == len(b"SUB s 1\r\nPUB s 4\r\nfour\r\n")


async def test_what_was_published_before_close_arrives_while_the_server_sends() -> None:
    """Input that comes after the end must not turn it into a reset, which would eat our output."""
    listener = socket.create_server(("127.0.0.1", 0))
    leaving = threading.Event()
    received = bytearray()

    def peer() -> None:
        link, _ = listener.accept()
        with link:
            link.sendall(b'INFO {"max_payload":1048576,"headers":true}\r\n')
            while b"PING\r\n" not in link.recv(65536):
                pass
            link.sendall(b"PONG\r\n")
            chunk = b"MSG in 1 1000\r\n" + b"." * 1000 + b"\r\n"
            # Busy sending, it reads nothing until the client has left.
            while not leaving.is_set():
                link.sendall(chunk)
            for _ in range(2000):
                link.sendall(chunk)
            while data := link.recv(65536):
                received.extend(data)

    thread = asyncio.create_task(asyncio.to_thread(peer))
    nc = await jetspark.connect(f"nats://127.0.0.1:{listener.getsockname()[1]}")
    sub = nc.subscribe("in")
    await sub.next(timeout=5)
    for _ in range(500):
        nc.publish_nowait("out", b"." * 200)
    leaving.set()
    await nc.close()
    await thread
    listener.close()
    assert received.count(b"PUB out 200\r\n") == 500


async def test_events_of_a_client_that_is_closed_end_at_once(nc: jetspark.Client) -> None:
    await nc.close()
    assert [event async for event in nc.events()] == []


async def test_connecting_is_a_coroutine_for_tasks_and_gather(shared_server: NatsServer) -> None:
    url = shared_server.url
    task = asyncio.create_task(jetspark.connect(url))
    several = await asyncio.gather(task, asyncio.wait_for(jetspark.connect(url), 30))
    for nc in several:
        assert nc.is_connected
        await nc.close()
    with pytest.raises(asyncio.CancelledError):
        cancelled = asyncio.create_task(jetspark.connect("nats://127.0.0.1:1"))
        cancelled.cancel()
        await cancelled
    never = jetspark.connect(url)
    never.close()


async def test_a_client_is_refused_in_another_event_loop(
    nc: jetspark.Client, connect: Connect, shared_server: NatsServer
) -> None:
    wanted = "another event loop"
    sub, events = nc.subscribe("own"), nc.events()
    bucket = await nc.jetstream().create_or_update_bucket("ELSEWHERE", storage="memory")

    async def elsewhere() -> None:
        for call in (
            *(nc.close, nc.drain, nc.connect, nc.force_reconnect, nc.barrier, sub.next, sub.drain),
            *(bucket.lock("k").acquire, lambda: nc.publish("a"), lambda: anext(events)),
            *(nc.jetstream().publisher().__aenter__, nc.flush, nc.jetstream().account_info),
            *(lambda: nc.request("a"), lambda: nc.request_many("a").all()),
        ):
            with pytest.raises(errors.ConfigError, match=wanted):
                await call()
        for plain in (
            lambda: nc.publish_nowait("a"),
            lambda: nc.set_servers(shared_server.url),
            lambda: nc.listen("a", print),
            lambda: nc.subscribe("a"),
            sub.unsubscribe,
        ):
            with pytest.raises(errors.ConfigError, match=wanted):
                plain()

    await asyncio.to_thread(asyncio.run, elsewhere())
    with pytest.raises(errors.ConfigError, match=wanted):
        await asyncio.to_thread(nc.subscribe, "a")
    assert sub.active
    assert nc.status is jetspark.ConnectionStatus.CONNECTED
    await nc.close()
    await asyncio.to_thread(asyncio.run, nc.close())  # nothing is left to do


def test_between_two_runs_of_its_loop_a_client_may_be_used(shared_server: NatsServer) -> None:
    with asyncio.Runner() as runner:
        nc = runner.run(jetspark.connect(shared_server.url))
        sub = nc.subscribe("between.runs")
        nc.publish_nowait("between.runs", b"1")
        runner.run(nc.flush())
        assert runner.run(sub.next(timeout=20)).data == b"1"
        runner.run(nc.close())
