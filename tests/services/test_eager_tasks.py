"""Under `asyncio.eager_task_factory` requests are handled as under the ordinary one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.conftest import Unique

from jetspark import Client, connect
from jetspark.server import NatsServer
from jetspark.services import Request

pytestmark = pytest.mark.skipif(
    not hasattr(asyncio, "eager_task_factory"), reason="Python 3.12 has eager tasks"
)


@pytest.fixture
async def nc(shared_server: NatsServer) -> AsyncIterator[Client]:
    loop: Any = asyncio.get_running_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory", None))
    async with connect(shared_server.url) as client:
        yield client
    loop.set_task_factory(None)


async def plain(request: Request) -> None:
    await request.respond(request.data)


async def suspending(request: Request) -> None:
    await asyncio.sleep(0)
    await request.respond(request.data)


def without_async(request: Request) -> None:
    request.respond_nowait(request.data)


@pytest.mark.parametrize("handler", [plain, suspending, without_async])
async def test_a_burst_is_answered_in_order(nc: Client, unique: Unique, handler: Any) -> None:
    subject, inbox = unique("svc"), nc.new_inbox()
    answers = nc.subscribe(inbox)
    async with await nc.add_service("burst", "1.0.0") as service:
        await service.add_endpoint("e", handler, subject=subject)
        for number in range(3000):
            await nc.publish(subject, b"%d" % number, inbox)
        assert [int((await answers.next(10)).data) for _ in range(3000)] == [*range(3000)]


@pytest.mark.parametrize("what", ["drain", "stop"])
async def test_a_handler_may_end_its_service(
    shared_server: NatsServer, nc: Client, unique: Unique, what: str
) -> None:
    subject, ended = unique("svc"), asyncio.Event()
    async with connect(shared_server.url) as other:
        service = await other.add_service("ends", "1.0.0")

        async def handler(request: Request) -> None:
            await (other.drain() if what == "drain" else service.stop())
            await request.respond(b"done")
            ended.set()

        await service.add_endpoint("e", handler, subject=subject)
        assert (await nc.request(subject, timeout=10)).data == b"done"
        async with asyncio.timeout(10):
            await ended.wait()
            await service.wait_stopped()
