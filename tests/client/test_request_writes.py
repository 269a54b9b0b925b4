"""When requests are written, and how the one timer of all requests ends each in its time."""

from __future__ import annotations

import asyncio

import pytest
from tests.conftest import Unique

from jetspark import Client
from jetspark.errors import RequestTimeoutError


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
        with pytest.raises(RequestTimeoutError, match=f"within {timeout:g} s"):
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
