"""Finding services: all, of a name, one; by stall, by count; and what is no answer."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta

import pytest
from tests.conftest import MakeServer, Unique
from tests.services.conftest import Start, echo

from jetspark import errors
from jetspark.full_client import Client, connect
from jetspark.server import NatsServer
from jetspark.services import Services, error_headers


async def test_services_are_found_on_three_levels(
    start: Start, services: Services, unique: Unique
) -> None:
    name = unique("svc")
    instances = [await start(name=name, version=f"1.0.{number}") for number in range(3)]
    alone = await start()
    found = await services.ping().all()
    ids = {one.id for one in (*instances, alone)}
    assert ids <= {one.id for one in found}
    of_name = await services.ping(name).all()
    assert sorted((one.id, one.version, one.name) for one in of_name) == sorted(
        (one.id, one.version, name) for one in instances
    )
    assert all(one.rtt is not None and one.rtt > timedelta(0) for one in of_name)
    (one,) = await services.info(name, instances[1].id).all()
    assert one == instances[1].info()
    seen = {stats.id async for stats in services.stats(name)}
    assert seen == {one.id for one in instances}
    assert len(await services.ping(name, max_msgs=2).all()) == 2


async def test_no_service_is_an_empty_list_at_once(nats_server: NatsServer) -> None:
    async with connect(nats_server.url) as nc, asyncio.timeout(20):
        services = nc.services()
        assert await services.ping(timeout=3600, stall=3600).all() == []
        assert await services.info("nobody").all() == []
        assert await services.stats("nobody", "x", timeout=3600).all() == []


async def test_services_that_do_not_answer_are_not_waited_for_longer_than_the_timeout(
    nc: Client, services: Services, unique: Unique
) -> None:
    silent = unique("silent")
    with closing(nc.listen(f"$SRV.PING.{silent}", lambda frame: None)):
        await nc.flush()
        assert await services.ping(silent, timeout=0.1).all() == []


async def test_unreadable_answer_is_reported_and_left_out(
    start: Start, nc: Client, other: Client, services: Services, unique: Unique
) -> None:
    service = await start()

    async def answer(message: object) -> None:
        await message.respond(b"{}")  # type: ignore[attr-defined]

    async with nc.subscribe(f"$SRV.PING.{service.name}", callback=answer):
        await nc.flush()
        (found,) = await services.ping(service.name).all()
    assert found.id == service.id
    assert "cannot be read" in str(other.last_error)


async def test_prefix_finds_the_services_of_another_account(make_server: MakeServer) -> None:
    server = make_server(
        "accounts: {"
        "A: {users: [{user: a, password: p}], exports: ["
        '{service: "$SRV.>", response: stream}, {service: "add"}]},'
        "B: {users: [{user: b, password: p}], imports: ["
        '{service: {account: A, subject: "$SRV.>"}, to: "a.SRV.>"},'
        '{service: {account: A, subject: "add"}}]}}'
    )
    async with (
        connect(server.url, user="a", password="p") as a,
        connect(server.url, user="b", password="p") as b,
        await a.add_service("s", "1.0.0") as service,
    ):
        await service.add_endpoint("add", echo)
        assert [one.id for one in await b.services(prefix="a.SRV").ping().all()] == [service.id]
        assert await b.services().ping().all() == []
        assert (await b.services().request("add", b"1")).data == b"1"


async def test_call_raises_typed_errors(
    start: Start, nc: Client, services: Services, unique: Unique
) -> None:
    service = await start()
    await service.add_endpoint("echo", echo, subject=service.name)
    assert (await services.request(service.name, b"x", headers={"a": "b"})).data == b"x"
    with pytest.raises(errors.NoRespondersError):
        await services.request(unique("nobody"))
    with pytest.raises(errors.NoRespondersError):
        await services.request_json(unique("nobody"))
    silent = unique("silent")
    with closing(nc.listen(silent, lambda frame: None)):
        await nc.flush()
        with pytest.raises(errors.RequestTimeoutError):
            await services.request(silent, timeout=0.05)
    plain = unique("plain")

    async def refuse(message: object) -> None:
        headers = error_headers(403, "not you")
        await message.respond(b"why", headers)  # type: ignore[attr-defined]

    async with nc.subscribe(plain, callback=refuse):
        await nc.flush()
        with pytest.raises(errors.ServiceError) as raised:
            await services.request(plain)
    error = raised.value
    assert (error.code, error.description, error.data) == (403, "not you", b"why")


async def test_wrong_limits_are_refused_before_anything_is_sent(services: Services) -> None:
    with pytest.raises(errors.BadTimeoutError):
        services.ping(timeout=0)
    with pytest.raises(errors.BadTimeoutError):
        services.info(stall=-1)
    with pytest.raises(errors.ConfigError, match="max_msgs"):
        services.stats(max_msgs=-1)
    for call in (services.ping, services.info, services.stats):
        with pytest.raises(errors.ConfigError, match="needs the service's name"):
            call(id="x")


async def test_discovery_over_a_closed_connection_raises(shared_server: NatsServer) -> None:
    nc = await connect(shared_server.url)
    services = nc.services()
    await nc.close()
    with pytest.raises(errors.ConnectionClosedError):
        await services.ping().all()
    with pytest.raises(errors.JetsparkError):
        await nc.add_service("s", "1.0.0")
