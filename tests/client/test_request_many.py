"""One request, many replies (ADR-47), through real servers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.client.conftest import Connect
from tests.conftest import Unique

import jetspark.errors as errors
from jetspark import Client, Message, Subscription
from jetspark.server import NatsServer


def service(nc: Client, subject: str, *replies: bytes) -> Subscription:
    async def answer(message: Message) -> None:
        for reply in replies:
            await message.respond(reply)

    return nc.subscribe(subject, callback=answer)


def open_requests(client: Client) -> int:
    return len(client.requests)


async def test_request_many_ends_at_timeout_with_replies_so_far(nc: Client, unique: Unique) -> None:
    subject = service(nc, unique("many"), b"1").subject
    assert [reply.data for reply in await nc.request_many(subject, timeout=1).all()] == [b"1"]
    assert open_requests(nc) == 0


async def test_request_many_without_any_reply_raises_timeout(nc: Client, unique: Unique) -> None:
    subject = service(nc, unique("silent")).subject
    with pytest.raises(errors.RequestTimeoutError):
        await nc.request_many(subject, timeout=0.02).all()
    assert open_requests(nc) == 0


async def test_request_many_stall_starts_with_first_reply(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("slow"))
    asking = asyncio.ensure_future(_list(nc, sub.subject, stall=0.3, timeout=30))
    asked = await sub.next(30)
    await asyncio.sleep(0.5)
    await asked.respond(b"1")
    await asked.respond(b"2")
    start = time.perf_counter()
    assert await asking == [b"1", b"2"]
    assert 0.25 < time.perf_counter() - start < 20


async def _list(nc: Client, subject: str, *, stall: float, timeout: float) -> list[bytes]:
    return [r.data for r in await nc.request_many(subject, stall=stall, timeout=timeout).all()]


async def test_request_many_stall_counts_arrival_not_reading(nc: Client, unique: Unique) -> None:
    sub = nc.subscribe(unique("slow"))
    seen: list[bytes] = []
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async for reply in nc.request_many(sub.subject, stall=0.02, timeout=30):
            seen.append(reply.data)
            reading.set()
            await go_on.wait()

    task = asyncio.create_task(read())
    asked = await sub.next(30)
    await asked.respond(b"1")
    await asyncio.wait_for(reading.wait(), 30)
    await asyncio.sleep(0.05)
    await asked.respond(b"too late")
    await nc.flush()
    go_on.set()
    await asyncio.wait_for(task, 30)
    assert seen == [b"1"]


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({"max_msgs": 2}, [b"1", b""]),
        ({"max_msgs": 3}, [b"1", b"", b"3"]),
        ({"sentinel": True}, [b"1"]),
        ({"sentinel": lambda reply: reply.data == b"3"}, [b"1", b""]),
        ({"sentinel": lambda reply: True}, []),
    ],
)
async def test_request_many_ends_at_its_limit_or_before_the_sentinel(
    nc: Client, unique: Unique, limits: Any, wanted: list[bytes]
) -> None:
    subject = service(nc, unique("many"), b"1", b"", b"3").subject
    assert [
        one.data for one in await nc.request_many(subject, timeout=30, **limits).all()
    ] == wanted
    assert [one.data async for one in nc.request_many(subject, timeout=30, **limits)] == wanted
    assert open_requests(nc) == 0
    await nc.flush()
    assert nc.last_error is None


async def test_no_responders_is_raised_at_once(nc: Client, unique: Unique) -> None:
    await nc.flush()
    start = time.perf_counter()
    with pytest.raises(errors.NoRespondersError):
        await nc.request_many(unique("nobody"), timeout=30).all()
    assert time.perf_counter() - start < 10
    assert open_requests(nc) == 0


async def test_cancelling_leaving_and_bad_calls_leave_nothing(nc: Client, unique: Unique) -> None:
    subject = service(nc, unique("many"), b"1", b"2").subject
    nc.request_many(subject)  # nothing is sent before the first reply is asked for
    async for _ in nc.request_many(subject):
        assert open_requests(nc) == 1
        break
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert open_requests(nc) == 0
    async with nc.request_many(subject) as replies:
        async for _ in replies:
            break
    assert open_requests(nc) == 0
    asking = asyncio.create_task(nc.request(service(nc, unique("silent")).subject))
    gathering = asyncio.ensure_future(_list(nc, subject, stall=30, timeout=30))
    await nc.flush()
    for task in (asking, gathering):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    with pytest.raises(errors.BadSubjectError):
        await nc.request_many("a b").all()
    for bad in ({"timeout": 0}, {"stall": 0}, {"max_msgs": -1}):
        with pytest.raises(errors.ConfigError):
            nc.request_many(subject, **bad)  # type: ignore[arg-type]
    assert open_requests(nc) == 0
    await nc.flush()
    assert nc.last_error is None


async def test_closing_client_ends_request_many_after_received_replies(
    nc: Client, shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    other = await connect(shared_server.url)
    subject = service(other, unique("many"), b"1").subject
    await other.flush()
    replies = nc.request_many(subject, timeout=30)
    seen = []
    with pytest.raises(errors.ConnectionClosedError):
        async for reply in replies:
            seen.append(reply.data)
            await nc.close()
    assert seen == [b"1"]
    assert open_requests(nc) == 0


async def test_request_many_goes_on_after_reconnect(
    nats_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    nc = await connect(nats_server.url)
    sub = nc.subscribe(unique("svc"))
    asking = asyncio.create_task(_two(nc, sub.subject))
    asked = await sub.next(30)
    await asked.respond(b"1")
    await nc.flush()
    await nc.force_reconnect()
    await asked.respond(b"2")
    assert await asking == [b"1", b"2"]


async def _two(nc: Client, subject: str) -> list[bytes]:
    return [r.data for r in await nc.request_many(subject, max_msgs=2, timeout=30).all()]
