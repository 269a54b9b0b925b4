"""How a service ends: stop, drain, close, a lost connection, and what becomes of its requests."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.conftest import Reported, Unique
from tests.jetstream.eventually import eventually
from tests.services.conftest import Held, Start, ask, echo
from tests.support.frame_proxy import FrameProxy

from jetspark.errors import (
    BadSubjectError,
    ClosedError,
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    RequestTimeoutError,
)
from jetspark.full_client import Client, connect
from jetspark.server import NatsServer
from jetspark.services import Request, Services


async def test_stop_answers_every_request_that_has_come(start: Start, other: Client) -> None:
    service = await start()
    begun = asyncio.Event()

    async def handle(request: Request) -> None:
        begun.set()
        await asyncio.sleep(0)
        await request.respond()

    await service.add_endpoint("e", handle, subject=service.name, concurrency=10)
    asked = ask(other, service.name, 1000)
    await asyncio.wait_for(begun.wait(), 20)
    await asyncio.gather(*(service.stop() for _ in range(3)))
    results = await asyncio.gather(*asked, return_exceptions=True)
    refused = [type(result) for result in results if isinstance(result, BaseException)]
    assert set(refused) <= {NoRespondersError}
    assert service.stats().endpoints[0].num_requests == 1000 - len(refused) > 0
    await service.stop()
    await service.wait_stopped()
    assert not service.active


async def test_stopped_service_takes_no_endpoints(start: Start, services: Services) -> None:
    service = await start()

    async def handle(request: Request) -> None:
        await service.stop()  # it goes on in the background
        await request.respond(b"stopping")

    await service.add_endpoint("e", handle, subject=service.name)
    assert (await services.request(service.name)).data == b"stopping"
    await asyncio.wait_for(service.wait_stopped(), 20)
    assert await services.ping(service.name).all() == []
    with pytest.raises(ClosedError, match="has stopped"):
        await service.add_endpoint("e", echo)
    with pytest.raises(ClosedError, match="has stopped"):
        service.endpoint("e")(echo)


async def test_request_that_is_not_finished_in_time_gets_error_503(
    start: Start, services: Services
) -> None:
    service, held = await start(), Held()
    await service.add_endpoint("e", held, subject=service.name)
    asked = await held.asked(services, service.name, 2)
    for stop in [asyncio.create_task(service.stop(0.2)) for _ in range(2)]:
        with pytest.raises(RequestTimeoutError, match=r"2 requests of service .* errors 503"):
            await stop
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sorted(map(str, answers)) == [
        "Service error 500: The service was stopped while the request was handled: it may have "
        "been done, or a part of it",
        "Service error 503: The service was stopped before the request was handled",
    ]
    assert held.cancelled.is_set()
    await service.stop()


async def test_a_stubborn_handler_does_not_hold_stop(start: Start, services: Services) -> None:
    service = await start()
    begun, end = asyncio.Event(), asyncio.Event()

    async def stubborn(request: Request) -> None:
        begun.set()
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                pass

    await service.add_endpoint("e", stubborn, subject=service.name)
    asked = asyncio.create_task(services.request(service.name, timeout=1))
    await asyncio.wait_for(begun.wait(), 20)
    with pytest.raises(RequestTimeoutError):
        await asyncio.wait_for(service.stop(0.1), 20)
    with pytest.raises(RequestTimeoutError):
        await asked
    end.set()


async def test_cancelled_stop_goes_on(start: Start, other: Client) -> None:
    service, held = await start(), Held()
    await service.add_endpoint("e", held, subject=service.name)
    (asked,) = await held.asked(other, service.name)
    stopping = asyncio.create_task(service.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    held.gate.set()
    await asyncio.wait_for(service.wait_stopped(), 20)
    await asked


async def test_drain_stops_services(nc: Client, other: Client, start: Start) -> None:
    service = await start()
    await service.add_endpoint("e", echo, subject=service.name)
    asked = ask(other, service.name, 100)
    await asked[0]
    await nc.drain()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(one) for one in results if isinstance(one, Exception)} <= {NoRespondersError}
    await service.wait_stopped()


async def test_drain_in_a_handler(nc: Client, other: Client, start: Start) -> None:
    service = await start()

    async def handle(request: Request) -> None:
        await nc.drain()
        await request.respond(b"draining")

    await service.add_endpoint("e", handle, subject=service.name)
    assert (await other.request(service.name)).data == b"draining"
    await asyncio.wait_for(service.wait_stopped(), 20)


async def test_close_of_the_client_cancels_handlers_and_ends_the_service(
    nc: Client, other: Client, unique: Unique, reported: Reported
) -> None:
    subject, held = unique("s"), Held()
    service = await nc.add_service(subject, "1.0.0")
    await service.add_endpoint("e", held, subject=subject)
    asked = await held.asked(other, subject, 3, timeout=0.5)
    await nc.close()
    assert held.cancelled.is_set()
    assert not service.active
    await service.wait_stopped()
    await service.stop()
    with pytest.raises(ConnectionClosedError):
        await service.add_endpoint("f", held)
    for request in asked:
        with pytest.raises(RequestTimeoutError):
            await request
    assert reported == []


async def test_a_link_lost_for_good_ends_a_service_with_its_error(nats_server: NatsServer) -> None:
    nc = await connect(nats_server.url, max_reconnect_attempts=0, reconnect_wait=0.01)
    service = await nc.add_service("s", "1.0.0")
    await service.add_endpoint("e", echo)
    nats_server.close()
    with pytest.raises(ConnectionClosedError) as raised:
        await asyncio.wait_for(service.wait_stopped(), 30)
    assert isinstance(raised.value, ConnectionLostError) or raised.value.__cause__ is not None
    await service.stop()
    await nc.close()


async def test_service_goes_on_after_a_reconnect(
    shared_server: NatsServer, other: Client, services: Services, unique: Unique
) -> None:
    subject = unique("s")
    async with (
        FrameProxy(shared_server.port) as proxy,
        connect(proxy.url, reconnect_wait=0.01) as nc,
        await nc.add_service(subject, "1.0.0") as service,
    ):
        held = Held()
        await service.add_endpoint("e", held, subject=subject)
        (asked,) = await held.asked(other, subject)
        await nc.force_reconnect()
        held.gate.set()
        assert (await asked).data == b"held"
        assert len(await services.ping(subject).all()) == 1
        assert (await other.request(subject)).data == b"held"


async def test_endpoint_added_without_a_link_works_with_the_next(nats_server: NatsServer) -> None:
    reconnects: dict[str, Any] = {"reconnect_wait": 0.05, "max_reconnect_attempts": -1}
    async with (
        connect(nats_server.url, **reconnects) as nc,
        connect(nats_server.url, **reconnects) as other,
    ):
        service = await nc.add_service("s", "1.0.0")
        stopped = await nc.add_service("stopped", "1.0.0")
        await stopped.add_endpoint("f", echo)
        nats_server.stop()
        await eventually(lambda: not nc.is_connected)
        await asyncio.wait_for(stopped.stop(), 30)
        assert not stopped.active
        await service.add_endpoint("e", echo)
        nats_server.start()
        async with asyncio.timeout(30):
            while True:
                with suppress(NoRespondersError):
                    assert (await other.request("e", b"1", timeout=20)).data == b"1"
                    break
                await asyncio.sleep(0.05)


async def test_service_that_cannot_begin_leaves_nothing(nc: Client) -> None:
    routes = len(nc.publishing.link.routes)
    with pytest.raises(BadSubjectError):
        await nc.add_service("a" * 5000, "1.0.0")
    beginning = asyncio.create_task(nc.add_service("never", "1.0.0"))
    await asyncio.sleep(0)
    assert len(nc.publishing.link.routes) > routes
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    assert len(nc.publishing.link.routes) == routes
    await nc.close()
    with pytest.raises(ConnectionClosedError):
        await nc.add_service("late", "1.0.0")


async def test_service_of_a_client_that_is_closed_meanwhile_has_ended(nc: Client) -> None:
    beginning = asyncio.create_task(nc.add_service("closed", "1.0.0"))
    await asyncio.sleep(0)
    await nc.close()
    try:
        service = await beginning  # the server has confirmed it before the end
    except ConnectionClosedError:
        return
    assert not service.active
    await asyncio.wait_for(service.wait_stopped(), 20)


async def test_stop_answers_requests_behind_a_cancelled_one(start: Start, other: Client) -> None:
    service = await start()
    begun, gate = asyncio.Event(), asyncio.Event()

    async def handle(request: Request) -> None:
        if not begun.is_set():
            begun.set()
            await gate.wait()
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        await request.respond(b"fine")

    await service.add_endpoint("e", handle, subject=service.name)
    asked = ask(other, service.name, 5)
    await asyncio.wait_for(begun.wait(), 20)
    stopping = asyncio.create_task(service.stop())
    gate.set()
    await stopping
    replies = [reply.data for reply in await asyncio.gather(*asked)]
    assert replies == [b"", *[b"fine"] * 4]


async def test_info_that_is_too_large_is_an_error_for_who_asks(
    nc: Client, start: Start, other: Client, services: Services
) -> None:
    service = await start(metadata={"a": "x" * 2**20})
    assert await services.info(service.name).all() == []
    assert "MaxPayloadError" in str(nc.last_error)
    assert "Service error 500: MaxPayloadError" in str(other.last_error)
