"""What a network, a burst and strange handlers do to a service."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.conftest import Unique
from tests.services.conftest import Held, Start, echo
from tests.support.frame_proxy import FrameProxy, Kind

from jetspark.errors import NoRespondersError, RequestTimeoutError, ServiceError
from jetspark.full_client import Client, connect
from jetspark.server import NatsServer
from jetspark.services import Request, Services


@pytest.mark.parametrize("kind", ["drop", "twice", "cut", "torn"])
async def test_spoiled_frame_costs_its_request_at_most(
    shared_server: NatsServer, services: Services, unique: Unique, kind: Kind
) -> None:
    subject = unique("s")
    async with (
        FrameProxy(shared_server.port) as proxy,
        connect(proxy.url, reconnect_wait=0.01) as nc,
        await nc.add_service(subject, "1.0.0") as service,
    ):
        await service.add_endpoint("e", echo, subject=subject)
        fault = proxy.arm(3, kind)
        ended: Counter[str] = Counter()
        for number in range(8):
            try:
                reply = await services.request(subject, b"%d" % number, timeout=1)
                assert reply.data == b"%d" % number
                ended["answered"] += 1
            except (RequestTimeoutError, NoRespondersError) as error:
                ended[type(error).__name__] += 1
        assert fault.hit is not None
        assert ended["answered"] >= (8 if kind == "twice" else 5)
        assert ended.total() == 8
        await nc.flush()
        assert len(await services.ping(subject).all()) == 1
        assert (await services.request(subject, b"after", timeout=20)).data == b"after"


async def test_two_services_of_one_name_on_one_connection_are_two_instances(
    start: Start, services: Services, unique: Unique
) -> None:
    name = unique("svc")
    first, second = await start(name=name), await start(name=name, version="2.0.0")
    for service in (first, second):
        await service.add_endpoint("e", echo, subject=name)
    for number in range(40):
        assert (await services.request(name, b"%d" % number)).data == b"%d" % number
    counts = [service.stats().endpoints[0].num_requests for service in (first, second)]
    assert sum(counts) == 40
    assert min(counts) > 0
    await first.stop()
    assert (await services.request(name, b"x")).data == b"x"
    assert [one.version for one in await services.ping(name).all()] == ["2.0.0"]


async def test_every_kind_of_handler_answers_a_burst(start: Start, services: Services) -> None:
    service = await start()
    group = service.add_group(service.name)

    async def waits(request: Request) -> None:
        await asyncio.sleep(0)
        await request.respond(request.data)

    async def breaks(request: Request) -> None:
        if request.data.endswith(b"7"):
            raise ServiceError(400, "seven")
        await request.respond(request.data)

    await group.add_endpoint("plain", lambda request: request.respond_nowait(request.data))
    await group.add_endpoint("quick", echo, concurrency=16)
    await group.add_endpoint("waits", waits, concurrency=16)
    await group.add_endpoint("breaks", breaks)
    for name in ("plain", "quick", "waits", "breaks"):
        asked = [services.request(f"{service.name}.{name}", b"%d" % n) for n in range(2000)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        for number, result in enumerate(results):
            if isinstance(result, BaseException):
                assert name == "breaks"
                assert number % 10 == 7
            else:
                assert result.data == b"%d" % number
    stats = {one.name: (one.num_requests, one.num_errors) for one in service.stats().endpoints}
    assert stats == {**dict.fromkeys(("plain", "quick", "waits"), (2000, 0)), "breaks": (2000, 200)}


async def test_handler_that_hangs_leaves_the_rest_alive(start: Start, services: Services) -> None:
    service, held = await start(), Held()
    group = service.add_group(service.name)
    await group.add_endpoint("hang", held)
    await group.add_endpoint("echo", echo)
    (asked,) = await held.asked(services, f"{service.name}.hang")
    assert (await services.request(f"{service.name}.echo", b"1")).data == b"1"
    (stats,) = await services.stats(service.name).all()
    assert [one.num_requests for one in stats.endpoints] == [1, 1]
    held.gate.set()
    await asked


async def test_reset_while_requests_are_handled(start: Start, services: Services) -> None:
    service = await start()

    async def handle(request: Request) -> None:
        service.reset()
        await request.respond(request.data)

    await service.add_endpoint("e", handle, subject=service.name)
    for _ in range(3):
        await services.request(service.name)
    (endpoint,) = service.stats().endpoints
    assert endpoint.num_requests == 0
    assert endpoint.average_processing_time is not None


async def test_services_leave_nothing_on_the_connection(nc: Client, start: Start) -> None:
    before, tasks = len(nc.publishing.link.routes), len(asyncio.all_tasks())
    adopted = len(nc._subscriptions)
    for _ in range(5):
        service = await start()
        await service.add_endpoint("e", echo, subject=service.name, concurrency=5)
        await nc.request(service.name, b"x")
        await service.stop()
    await asyncio.sleep(0)
    assert len(nc.publishing.link.routes) <= before + 1  # that of requests
    assert len(asyncio.all_tasks()) == tasks
    assert len(nc._subscriptions) == adopted
