"""Publishing and subscribing through a real server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.conftest import Connect
from tests.conftest import MakeServer

import jetspark
from jetspark import Message, SlowConsumerError
from jetspark.errors import (
    BadHeaderError,
    BadQueueError,
    BadSubjectError,
    BadSubscriptionError,
    BadTimeoutError,
    ConfigError,
    ConnectionClosedError,
    MaxPayloadError,
    NotJetStreamMessageError,
    RequestTimeoutError,
)
from jetspark.server import NatsServer
from jetspark.wire.kernel import MessageFrame


async def take(sub: jetspark.Subscription, count: int) -> list[bytes]:
    return [(await sub.next(30)).data for _ in range(count)]


async def test_what_is_published_arrives_in_order_and_whole(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc, other = await connect(shared_server.url), await connect(shared_server.url)
    subject = unique("order")
    async with nc.subscribe(subject + ".*") as sub:
        await nc.flush()
        payloads = [b"", b"\r\n", b"PING\r\n", bytes(range(256)) * 1000, "é".encode()]
        for payload in payloads:
            await other.publish(subject + ".x", payload, reply="answers.here")
        messages = [await sub.next(30) for _ in payloads]
    assert [message.data for message in messages] == payloads
    first = messages[0]
    assert (first.subject, first.reply, first.headers, first.status) == (
        subject + ".x",
        "answers.here",
        None,
        None,
    )
    with pytest.raises(NotJetStreamMessageError):
        first.metadata  # noqa: B018


async def test_headers_keep_case_order_and_values(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    sub = nc.subscribe(unique("headers"))
    headers = jetspark.Headers({"b": ["1", "zwei", "três"], "B": "x", "a": ""})
    await nc.publish(sub.subject, b"body", headers=headers)
    await nc.publish(sub.subject, headers={"Status": "503"})
    message, looks_like_status = await sub.next(30), await sub.next(30)
    assert message.headers == headers
    assert list(message.headers or ()) == ["b", "B", "a"]
    assert looks_like_status.status is None
    assert not looks_like_status.no_responders


@pytest.mark.parametrize("bad", [{"a\n": "x"}, {"a": "x\r\nPUB evil 0"}, {"": "x"}])
async def test_a_header_that_would_break_the_protocol_is_refused_before_sending(
    shared_server: NatsServer, connect: Connect, bad: dict[str, str]
) -> None:
    nc = await connect(shared_server.url)
    with pytest.raises(BadHeaderError):
        await nc.publish("a", headers=bad)
    assert nc.stats.out_msgs == 0
    await nc.flush()


async def test_bad_arguments_are_refused_before_sending(
    shared_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(shared_server.url)
    for subject in ("", "a b", "a.*", "a..b", "a\r\nPING"):
        with pytest.raises(BadSubjectError):
            nc.publish_nowait(subject)
    with pytest.raises(BadSubjectError):
        nc.publish_nowait("a", reply="r r")
    for subject in ("", "a b", "a.>.b"):
        with pytest.raises(BadSubjectError):
            nc.subscribe(subject)
    with pytest.raises(BadQueueError):
        nc.subscribe("a", queue="two words")
    for timeout in (0, -1, float("nan")):
        for call in (nc.request("a", timeout=timeout), nc.flush(timeout), nc.drain(timeout)):
            with pytest.raises(BadTimeoutError):
                await call
    with pytest.raises(ConfigError):
        nc.subscribe("a", max_msgs=-1)
    with pytest.raises(ConfigError):
        nc.subscribe("a", pending_msgs_limit=0)
    await nc.flush()
    assert nc.last_error is None


async def test_max_payload_counts_headers_and_is_checked_first(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server("max_payload: 1000")
    nc = await connect(server.url)
    assert nc.max_payload == 1000
    sub = nc.subscribe("a")
    await nc.publish("a", bytes(1000))
    with pytest.raises(MaxPayloadError) as caught:
        await nc.publish("a", bytes(1001))
    assert (caught.value.size, caught.value.limit) == (1001, 1000)
    with pytest.raises(MaxPayloadError):
        await nc.publish("a", bytes(990), headers={"k": "v"})
    await nc.publish("a", bytes(982), headers={"k": "v"})
    assert [len(data) for data in await take(sub, 2)] == [1000, 982]
    assert nc.last_error is None


async def test_a_queue_group_shares_and_plain_subscribers_get_all(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    subject = unique("work")
    seen: Counter[str] = Counter()
    done = asyncio.Event()

    def count(name: str) -> Callable[[Message], None]:
        def callback(message: Message) -> None:
            seen[name] += 1
            if sum(seen.values()) == 400:
                done.set()

        return callback

    for name in ("a", "b"):
        nc.subscribe(subject, queue="workers", callback=count(name))
    nc.subscribe(subject, callback=count("all"))
    for _ in range(200):
        await nc.publish(subject)
    await asyncio.wait_for(done.wait(), 30)
    assert seen["all"] == 200
    assert seen["a"] + seen["b"] == 200
    assert min(seen["a"], seen["b"]) > 0


async def test_auto_unsubscribe_ends_the_iterator_after_so_many(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    sub = nc.subscribe(unique("few"), max_msgs=3)
    for number in range(5):
        await nc.publish(sub.subject, b"%d" % number)
    await nc.flush()
    assert [message.data async for message in sub] == [b"0", b"1", b"2"]
    assert not sub.active
    assert sub.delivered == 3
    with pytest.raises(BadSubscriptionError):
        await sub.next()
    with pytest.raises(BadSubscriptionError):
        sub.unsubscribe()


async def test_unsubscribe_after_n_counts_what_came_before(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    subs = [nc.subscribe(unique("n")) for _ in range(2)]
    for sub in subs:
        for number in range(2):
            await nc.publish(sub.subject, b"%d" % number)
    await nc.flush()
    subs[0].unsubscribe(3)
    subs[1].unsubscribe(1)  # more than that are here already: it ends now
    for sub in subs:
        for number in range(2, 6):
            await nc.publish(sub.subject, b"%d" % number)
    assert [message.data async for message in subs[0]] == [b"0", b"1", b"2"]
    assert [message.data async for message in subs[1]] == [b"0", b"1"]


async def test_unsubscribe_now_discards_and_leaving_the_block_does_it(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    async with nc.subscribe(unique("u")) as sub:
        await nc.publish(sub.subject, b"1")
        await nc.publish(sub.subject, b"2")
        await nc.flush()
        assert (await sub.next()).data == b"1"
        assert sub.pending_msgs == 1
    assert sub.pending_msgs == sub.pending_bytes == 0
    assert sub.delivered == 1
    assert [message async for message in sub] == []


async def test_next_times_out_and_loses_nothing(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    sub = nc.subscribe(unique("t"))
    with pytest.raises(RequestTimeoutError):
        await sub.next(0.01)
    await nc.publish(sub.subject, b"x")
    assert (await sub.next(30)).data == b"x"


async def test_several_tasks_may_take_from_one_subscription(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    sub = nc.subscribe(unique("m"))
    takers = [asyncio.create_task(sub.next(30)) for _ in range(3)]
    cancelled = asyncio.create_task(sub.next(30))
    await nc.flush()
    cancelled.cancel()
    for number in range(3):
        await nc.publish(sub.subject, b"%d" % number)
    assert sorted([(await taker).data for taker in takers]) == [b"0", b"1", b"2"]


async def test_a_raising_callback_is_reported_and_the_next_message_comes(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    errors: asyncio.Queue[jetspark.JetsparkError] = asyncio.Queue()
    nc = await connect(shared_server.url, error_callback=errors.put_nowait)
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def callback(message: Message) -> None:
        seen.put_nowait(message.data)
        raise ValueError(message.data)

    sub = nc.subscribe(unique("c"), callback=callback)
    for number in range(2):
        await nc.publish(sub.subject, b"%d" % number)
    assert [await asyncio.wait_for(seen.get(), 30) for _ in range(2)] == [b"0", b"1"]
    error = await asyncio.wait_for(errors.get(), 30)
    assert isinstance(error.__cause__, ValueError)
    with pytest.raises(ConfigError):
        await sub.next()
    with pytest.raises(ConfigError):
        sub.__aiter__()


@pytest.mark.parametrize("limits", [{"pending_msgs_limit": 3}, {"pending_bytes_limit": 30}])
async def test_a_slow_consumer_is_reported_once_an_episode_and_drops_are_counted(
    shared_server: NatsServer,
    connect: Connect,
    unique: Callable[[str], str],
    limits: dict[str, Any],
) -> None:
    errors: list[jetspark.JetsparkError] = []
    nc = await connect(shared_server.url, error_callback=errors.append)
    sub = nc.subscribe(unique("slow"), **limits)
    for episode in (1, 2):
        for number in range(10):
            await nc.publish(sub.subject, b"%010d" % number)
        await nc.flush()
        await asyncio.sleep(0)
        assert len(errors) == episode
        error = errors[-1]
        assert isinstance(error, SlowConsumerError)
        assert error.subject == sub.subject
        assert nc.last_error is error
        assert sub.dropped == 7 * episode
        assert await take(sub, 3) == [b"%010d" % number for number in range(3)]
        # Taking all of them ends the episode.
        with pytest.raises(RequestTimeoutError):
            await sub.next(0.01)
    assert sub.delivered == 6


async def test_draining_a_subscription_keeps_what_has_arrived(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    sub = nc.subscribe(unique("d"))
    for number in range(50):
        await nc.publish(sub.subject, b"%d" % number)
    await sub.drain()
    await nc.publish(sub.subject, b"late")
    await nc.flush()
    assert [int(message.data) async for message in sub] == list(range(50))


async def test_draining_waits_for_the_callback(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    seen: list[bytes] = []

    async def callback(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append(message.data)

    sub = nc.subscribe(unique("d"), callback=callback)
    for number in range(50):
        await nc.publish(sub.subject, b"%d" % number)
    await sub.drain()
    assert len(seen) == 50


async def test_a_listener_gets_raw_frames_until_it_is_closed(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    frames: list[MessageFrame] = []
    ended: list[object] = []
    listener = nc.listen(unique("l"), frames.append, on_end=ended.append)
    limited = nc.listen(listener.subject, lambda _: None, max_msgs=1, on_end=ended.append)
    await nc.publish(listener.subject, b"x", reply="r", headers={"k": "v"})
    await nc.flush()
    (frame,) = frames
    assert (frame.subject, frame.reply) == (listener.subject.encode(), b"r")
    assert (frame.headers, frame.payload) == (b"NATS/1.0\r\nk: v\r\n\r\n", b"x")
    assert ended == [None]
    assert not limited.active
    listener.close()
    listener.close()
    await nc.publish(listener.subject)
    await nc.flush()
    assert listener.received == 1
    assert ended == [None]


async def test_echo_can_be_switched_off(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url, echo=False)
    sub = nc.subscribe(unique("e"))
    await nc.publish(sub.subject)
    await nc.flush()
    assert sub.pending_msgs == 0


async def test_verbose_and_pedantic_work(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url, verbose=True, pedantic=True)
    sub = nc.subscribe(unique("v"))
    await nc.publish(sub.subject, b"x")
    assert (await sub.next(30)).data == b"x"


async def test_a_payload_of_text_is_refused_with_advice(
    shared_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(shared_server.url)
    with pytest.raises(TypeError, match="A payload is bytes, not str: encode it first"):
        await nc.publish("a", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="A payload is bytes, not dict"):
        await nc.publish("a", {}, headers={"a": "b"})
    await nc.flush()


async def test_everything_is_refused_after_close(
    shared_server: NatsServer, connect: Connect
) -> None:
    nc = await connect(shared_server.url)
    sub = nc.subscribe("a")
    await nc.close()
    for call in (
        lambda: nc.publish_nowait("a"),
        lambda: nc.subscribe("a"),
        lambda: nc.listen("a", lambda _: None),
        sub.unsubscribe,
    ):
        with pytest.raises(ConnectionClosedError):
            call()
    for coroutine in (
        nc.publish("a"),
        nc.request("a"),
        nc.flush(),
        nc.rtt(),
        nc.force_reconnect(),
    ):
        with pytest.raises(ConnectionClosedError):
            await coroutine
    with pytest.raises(ConnectionClosedError, match="create a new client"):
        await nc.connect()
    assert [message async for message in sub] == []
    await nc.close()
