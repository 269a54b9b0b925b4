"""Requests: replies, their absence, when they are written, and what they leave behind (nothing)."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.client.conftest import Connect, next_of
from tests.conftest import MakeServer, Unique

import jetspark.errors as errors
from jetspark import Client, Disconnected, Message
from jetspark.server import NatsServer


def open_requests(client: Client) -> int:
    return len(client.requests)


async def echo(message: Message) -> None:
    await message.respond(message.data[::-1], headers={"for": message.subject})


async def test_a_thousand_requests_at_once_get_their_own_replies(
    shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    service, nc = await connect(shared_server.url), await connect(shared_server.url)
    subject = unique("svc")
    service.subscribe(subject, callback=echo)
    await service.flush()
    asked = [b"%d" % number for number in range(1000)]
    replies = await asyncio.gather(*(nc.request(subject, data, timeout=5) for data in asked))
    assert [reply.data for reply in replies] == [data[::-1] for data in asked]
    assert replies[0].headers is not None
    assert replies[0].headers["for"] == subject
    assert open_requests(nc) == 0


async def test_empty_and_status_header_replies_are_replies(nc: Client, unique: Unique) -> None:
    async def answer(message: Message) -> None:
        await message.respond(headers={"Status": "503"} if message.data else None)

    sub = nc.subscribe(unique("svc"), callback=answer)
    assert (await nc.request(sub.subject, timeout=5)).data == b""
    assert (await nc.request(sub.subject, b"x", timeout=5)).status is None


async def test_timeout_and_cancellation_leave_nothing_and_late_replies_are_dropped(
    nc: Client, unique: Unique
) -> None:
    silent = nc.subscribe(unique("silent"))
    with pytest.raises(TimeoutError) as caught:
        await nc.request(silent.subject, timeout=0.01)
    assert isinstance(caught.value, errors.RequestTimeoutError)
    asking = asyncio.create_task(nc.request(silent.subject))
    late, later = await silent.next(30), await silent.next(30)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(errors.BadSubjectError):
        await nc.request("a b")
    assert open_requests(nc) == 0
    for message in (late, later):
        await message.respond(b"late")
    await nc.flush()
    nc.subscribe(answering := unique("svc"), callback=echo)
    assert (await nc.request(answering, b"ab", timeout=5)).data == b"ba"
    assert nc.last_error is None


async def test_only_the_first_reply_counts(nc: Client, unique: Unique) -> None:
    async def twice(message: Message) -> None:
        await message.respond(b"1")
        await message.respond(b"2")

    sub = nc.subscribe(unique("svc"), callback=twice)
    assert (await nc.request(sub.subject, timeout=5)).data == b"1"
    await nc.flush()
    assert nc.last_error is None


async def test_default_timeout(shared_server: NatsServer, connect: Connect, unique: Unique) -> None:
    nc = await connect(shared_server.url, request_timeout=0.01)
    silent = nc.subscribe(unique("silent"))
    with pytest.raises(errors.RequestTimeoutError):
        await nc.request(silent.subject)


async def test_inbox_prefix(shared_server: NatsServer, connect: Connect, unique: Unique) -> None:
    prefix = unique("_MY.INBOX")
    nc = await connect(shared_server.url, inbox_prefix=prefix)
    assert nc.new_inbox().startswith(prefix + ".")
    assert nc.new_inbox() != nc.new_inbox()
    sub = nc.subscribe(unique("svc"))
    asking = asyncio.create_task(nc.request(sub.subject, timeout=5))
    message = await sub.next(30)
    assert (message.reply or "").startswith(prefix + ".")
    await message.respond()
    await asking


async def test_what_ended_is_not_sent_later(own: Client, nats_server: NatsServer) -> None:
    """An error must not be followed by the effect, minutes later."""
    events = own.events()
    await asyncio.to_thread(nats_server.kill)
    await next_of(events, Disconnected)
    with pytest.raises(errors.RequestTimeoutError) as caught:
        await own.request("late", b"timed out", timeout=0.1)
    assert not caught.value.sent
    cancelled = asyncio.create_task(own.request("late", b"cancelled", timeout=60))

    async def gather() -> list[Message]:
        return await own.request_many("late", b"many", timeout=60).all()

    gathered = asyncio.create_task(gather())
    kept = asyncio.create_task(own.request("late", b"kept", timeout=60))
    await asyncio.sleep(0)
    cancelled.cancel()
    gathered.cancel()
    await asyncio.wait({cancelled, gathered})
    seen = []

    async def answer(message: Message) -> None:
        seen.append(message.data)
        await message.respond()

    own.subscribe("late", callback=answer)  # on the next link before what was kept
    await asyncio.to_thread(nats_server.start)
    await asyncio.wait_for(kept, 20)
    assert seen == [b"kept"]


async def test_questions_are_sent_again_after_a_loss(own: Client, nats_server: NatsServer) -> None:
    asked: list[bytes] = []
    cut = asyncio.Event()

    async def answer(message: Message) -> None:
        asked.append(message.data)
        if len(asked) < 3:  # both before the link is lost
            cut.set() if len(asked) == 2 else None
        else:
            await message.respond(b"heard")

    own.subscribe("hard.of.hearing", callback=answer)
    question = asyncio.create_task(own.ask("hard.of.hearing", b"question", timeout=20))
    order = asyncio.create_task(own.request("hard.of.hearing", b"order", timeout=0.5))
    await asyncio.wait_for(cut.wait(), 10)
    await asyncio.to_thread(nats_server.kill)
    await asyncio.to_thread(nats_server.start)
    assert (await asyncio.wait_for(question, 20)).data == b"heard"
    with pytest.raises(errors.RequestTimeoutError):
        await order
    assert asked == [b"question", b"order", b"question"]


async def test_closing_fails_what_waits_at_once(nc: Client, unique: Unique) -> None:
    silent = nc.subscribe(unique("silent"))
    asking = [asyncio.create_task(nc.request(silent.subject, timeout=60)) for _ in range(3)]
    taking = asyncio.create_task(silent.next())
    await taking
    waiting = asyncio.create_task(nc.subscribe(unique("x")).next())
    await asyncio.sleep(0)
    start = time.perf_counter()
    await nc.close()
    results = await asyncio.gather(*asking, waiting, return_exceptions=True)
    assert time.perf_counter() - start < 10
    assert [type(result) for result in results] == [errors.ConnectionClosedError] * 4
    assert len({id(result) for result in results}) == 4
    assert open_requests(nc) == 0


async def test_responding_to_what_asks_for_no_reply_is_refused(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("s"))
    await nc.publish(sub.subject)
    with pytest.raises(errors.ConfigError):
        await (await sub.next(30)).respond()


async def test_an_inbox_that_may_not_be_subscribed_fails_the_request_with_the_reason(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server(
        "authorization { users = [{user: u, password: p, "
        'permissions: {subscribe: {deny: "_INBOX.>"}}}] }'
    )
    nc = await connect(server.url, user="u", password="p")
    nc.subscribe("svc")
    with pytest.raises(errors.PermissionsError, match="No replies") as caught:
        await nc.request("svc", timeout=30)
    assert caught.value.operation == "subscription"
    assert caught.value.sentence() == str(caught.value)  # what commands show
    assert nc.is_connected


# -- writes and times ---------------------------------------------------------------------------


async def noted(nc: Client) -> list[bytes]:
    """What is written from now on, write by write; the requests' inbox is known already."""
    nc.subscribe("ready", callback=lambda message: message.respond())
    await nc.request("ready", timeout=5)
    await nc.flush()
    writes: list[bytes] = []
    outbox = nc.publishing.link.outbox
    write = outbox._write
    assert write is not None

    def note(data: bytes) -> None:
        writes.append(data)
        write(data)

    outbox._write = note
    return writes


async def test_lone_request_is_written_at_once(own: Client) -> None:
    own.subscribe("silent")
    writes = await noted(own)
    asking = own.request("silent", b"now")
    asking.send(None)  # its first step, without a turn of the loop
    assert [write.endswith(b" 3\r\nnow\r\n") for write in writes] == [True]
    asking.close()
    assert len(own.requests) == 0


async def test_requests_of_one_turn_are_a_write(own: Client) -> None:
    own.subscribe("svc", callback=lambda message: message.respond(message.data))
    writes = await noted(own)
    asked = [own.request("svc", b"%d" % number, timeout=5) for number in range(100)]
    replies = await asyncio.gather(*asked)
    assert [int(reply.data) for reply in replies] == list(range(100))
    assert sum(write.count(b"PUB svc ") for write in writes) == 100
    # The first one could not know of the others.
    assert [write.count(b"PUB svc ") for write in writes if b"PUB svc " in write] == [1, 99]


async def test_each_request_ends_in_its_own_time(nc: Client, unique: Unique) -> None:
    silent = nc.subscribe(unique("silent"))
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def took(timeout: float) -> float:
        with pytest.raises(errors.RequestTimeoutError, match=f"within {timeout:g} s"):
            await nc.request(silent.subject, timeout=timeout)
        return loop.time() - start

    long = asyncio.create_task(nc.request(silent.subject, timeout=60))
    limits = [0.3, 0.05, 0.2, 0.1, *(0.15 + number / 10_000 for number in range(200))]
    spans = await asyncio.gather(*map(took, limits))
    assert all(span >= limit for span, limit in zip(spans, limits, strict=True))
    assert len(nc.requests) == 1
    await (await silent.next(30)).respond(b"at last")
    assert (await asyncio.wait_for(long, 30)).data == b"at last"
    assert len(nc.requests) == 0
