"""Publishing and subscribing through a real server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.conftest import Connect
from tests.conftest import MakeServer, Unique

import jetspark
import jetspark.errors as errors
from jetspark import Client, Message, SlowConsumerError
from jetspark.server import NatsServer
from jetspark.wire.kernel import MessageFrame


async def take(sub: jetspark.Subscription, count: int) -> list[bytes]:
    return [(await sub.next(30)).data for _ in range(count)]


async def test_what_is_published_arrives_in_order_and_whole(
    shared_server: NatsServer, connect: Connect, unique: Unique
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
    assert (first.subject, first.reply) == (subject + ".x", "answers.here")
    assert (first.headers, first.status) == (None, None)
    with pytest.raises(errors.NotJetStreamMessageError):
        first.metadata  # noqa: B018


async def test_headers_keep_case_order_and_values(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("headers"))
    headers = jetspark.Headers({"b": ["1", "zwei", "três"], "B": "x", "a": ""})
    await nc.publish(sub.subject, b"body", headers=headers)
    await nc.publish(sub.subject, headers={"Status": "503"})
    message, looks_like_status = await sub.next(30), await sub.next(30)
    assert message.headers == headers
    assert list(message.headers or ()) == ["b", "B", "a"]
    assert looks_like_status.status is None
    assert not looks_like_status.no_responders


async def test_bad_arguments_are_refused_before_sending(nc: Client) -> None:
    for subject in ("", "a b", "a.*", "a..b", "a\r\nPING"):
        with pytest.raises(errors.BadSubjectError):
            nc.publish_nowait(subject)
    with pytest.raises(errors.BadSubjectError):
        nc.publish_nowait("a", reply="r r")
    for headers in ({"a\n": "x"}, {"a": "x\r\nPUB evil 0"}, {"": "x"}):
        with pytest.raises(errors.BadHeaderError):
            nc.publish_nowait("a", headers=headers)
    assert nc.stats.out_msgs == 0
    for subject in ("", "a b", "a.>.b"):
        with pytest.raises(errors.BadSubjectError):
            nc.subscribe(subject)
    with pytest.raises(errors.BadQueueError):
        nc.subscribe("a", queue="two words")
    for timeout in (0, -1, float("nan")):
        for call in (nc.request("a", timeout=timeout), nc.flush(timeout), nc.drain(timeout)):
            with pytest.raises(errors.BadTimeoutError):
                await call
    with pytest.raises(errors.ConfigError):
        nc.subscribe("a", max_msgs=-1)
    with pytest.raises(errors.ConfigError):
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
    with pytest.raises(errors.MaxPayloadError) as caught:
        await nc.publish("a", bytes(1001))
    assert (caught.value.size, caught.value.limit) == (1001, 1000)
    with pytest.raises(errors.MaxPayloadError):
        await nc.publish("a", bytes(990), headers={"k": "v"})
    await nc.publish("a", bytes(982), headers={"k": "v"})
    assert [len(data) for data in await take(sub, 2)] == [1000, 982]
    assert nc.last_error is None


async def test_a_queue_group_shares_and_plain_subscribers_get_all(
    nc: Client, unique: Unique
) -> None:
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


async def test_auto_unsubscribe_ends_the_iterator_after_so_many(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("few"), max_msgs=3)
    for number in range(5):
        await nc.publish(sub.subject, b"%d" % number)
    await nc.flush()
    assert [message.data async for message in sub] == [b"0", b"1", b"2"]
    assert not sub.active
    assert sub.delivered == 3
    with pytest.raises(errors.ClosedError):
        await sub.next()
    with pytest.raises(errors.ClosedError):
        sub.unsubscribe()


async def test_unsubscribe_after_n_counts_what_came_before(nc: Client, unique: Unique) -> None:
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


async def test_unsubscribe_now_discards_and_so_does_leaving(nc: Client, unique: Unique) -> None:
    async with nc.subscribe(unique("u")) as sub:
        await nc.publish(sub.subject, b"1")
        await nc.publish(sub.subject, b"2")
        await nc.flush()
        assert (await sub.next()).data == b"1"
        assert sub.pending_msgs == 1
    assert sub.pending_msgs == sub.pending_bytes == 0
    assert sub.delivered == 1
    assert [message async for message in sub] == []


@pytest.mark.parametrize("limits", [{"pending_msgs_limit": 3}, {"pending_bytes_limit": 30}])
async def test_a_slow_consumer_is_reported_once_an_episode_and_drops_are_counted(
    shared_server: NatsServer, connect: Connect, unique: Unique, limits: dict[str, Any]
) -> None:
    reported: list[jetspark.JetsparkError] = []
    nc = await connect(shared_server.url, error_callback=reported.append)
    sub = nc.subscribe(unique("slow"), **limits)
    for episode in (1, 2):
        for number in range(10):
            await nc.publish(sub.subject, b"%010d" % number)
        await nc.flush()
        await asyncio.sleep(0)
        assert len(reported) == episode
        error = reported[-1]
        assert isinstance(error, SlowConsumerError)
        assert error.subject == sub.subject
        assert nc.last_error is error
        assert sub.dropped == 7 * episode
        assert await take(sub, 3) == [b"%010d" % number for number in range(3)]
        # Taking all of them ends the episode.
        with pytest.raises(errors.RequestTimeoutError):
            await sub.next(0.01)
    assert sub.delivered == 6


async def test_draining_a_subscription_keeps_what_has_arrived(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("d"))
    for number in range(50):
        await nc.publish(sub.subject, b"%d" % number)
    await sub.drain()
    await nc.publish(sub.subject, b"late")
    await nc.flush()
    assert [int(message.data) async for message in sub] == list(range(50))


async def test_a_listener_gets_raw_frames_until_it_is_closed(nc: Client, unique: Unique) -> None:
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
    shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    nc = await connect(shared_server.url, echo=False)
    sub = nc.subscribe(unique("e"))
    await nc.publish(sub.subject)
    await nc.flush()
    assert sub.pending_msgs == 0


async def test_verbose_and_pedantic_work(
    shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    nc = await connect(shared_server.url, verbose=True, pedantic=True)
    sub = nc.subscribe(unique("v"))
    await nc.publish(sub.subject, b"x")
    assert (await sub.next(30)).data == b"x"


async def test_everything_is_refused_after_close(nc: Client, connect: Connect) -> None:
    sub = nc.subscribe("a")
    await nc.close()
    for call in (
        lambda: nc.publish_nowait("a"),
        lambda: nc.subscribe("a"),
        lambda: nc.listen("a", lambda _: None),
        sub.unsubscribe,
    ):
        with pytest.raises(errors.ConnectionClosedError):
            call()
    for coroutine in (nc.publish("a"), nc.request("a"), nc.flush(), nc.rtt(), nc.force_reconnect()):
        with pytest.raises(errors.ConnectionClosedError):
            await coroutine
    with pytest.raises(errors.ConnectionClosedError, match="create a new client"):
        await nc.connect()
    assert [message async for message in sub] == []
    await nc.close()
