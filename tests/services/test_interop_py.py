"""With nats-py's micro as the other side: discovery, errors, statistics."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from nats import micro
from nats.micro.request import ServiceError as TheirError
from nats.micro.service import ServiceInfo as TheirInfo
from nats.micro.service import ServicePing as TheirPing
from nats.micro.service import ServiceStats as TheirStats
from tests.conftest import Unique
from tests.services.conftest import Start

from jetspark.errors import ServiceError
from jetspark.services import Request, Services


async def test_they_find_and_call_our_service(start: Start, py_peer: Any) -> None:
    service = await start(metadata={"a": "b"}, description="ours")
    group = service.add_group(service.name)

    async def echo(request: Request) -> None:
        if request.data == b"refuse":
            raise ServiceError(409, "refused by us", b"body")
        await request.respond(request.data, request.headers)

    await group.add_endpoint("echo", echo, metadata={"c": "d"})
    subject = f"{service.name}.echo"
    reply = await py_peer.request(subject, b"hi", headers={"k": "v"})
    assert (reply.data, reply.headers) == (b"hi", {"k": "v"})
    reply = await py_peer.request(subject, b"refuse")
    assert reply.data == b"body"
    assert reply.headers["Nats-Service-Error"] == "refused by us"
    assert reply.headers["Nats-Service-Error-Code"] == "409"

    async def ask(verb: str) -> Any:
        return json.loads((await py_peer.request(f"$SRV.{verb}.{service.name}.{service.id}")).data)

    ping = TheirPing.from_dict(await ask("PING"))
    assert (ping.name, ping.id, ping.version) == (service.name, service.id, "1.0.0")
    assert ping.metadata == {"a": "b"}
    info = TheirInfo.from_dict(await ask("INFO"))
    assert (info.description, info.type) == ("ours", "io.nats.micro.v1.info_response")
    (endpoint,) = info.endpoints
    assert (endpoint.name, endpoint.subject, endpoint.queue_group) == ("echo", subject, "q")
    assert endpoint.metadata == {"c": "d"}
    stats = TheirStats.from_dict(await ask("STATS"))
    (counts,) = stats.endpoints
    assert (counts.num_requests, counts.num_errors) == (2, 1)
    assert counts.last_error == "409:refused by us"
    assert counts.processing_time // 2 == counts.average_processing_time > 0
    assert counts.data is None
    assert stats.started.tzinfo is None  # it was read, without the zone


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")  # nats-py's
async def test_we_find_and_call_their_service(
    py_peer: Any, services: Services, unique: Unique
) -> None:
    name = unique("py")
    service = await micro.add_service(
        py_peer, name=name, version="2.0.0", description="theirs", stats_handler=lambda _: {"x": 1}
    )

    async def echo(request: Any) -> None:
        if request.data == b"refuse":
            raise TheirError(code="409", description="refused by nats-py")
        if request.data == b"break":
            raise ValueError("broken")
        await request.respond(request.data)

    group = service.add_group(name=name, queue_group="theirs")
    await group.add_endpoint(name="echo", handler=echo, metadata={"a": "b"})
    await group.add_endpoint(name="bare", handler=echo)  # its metadata are null
    await py_peer.flush()
    await py_peer.flush()
    subject = f"{name}.echo"
    assert (await services.request(subject, b"hi")).data == b"hi"
    with pytest.raises(ServiceError) as raised:
        await services.request(subject, b"refuse")
    assert (raised.value.code, raised.value.description) == (409, "refused by nats-py")
    with pytest.raises(ServiceError, match="500: ValueError"):
        await services.request(subject, b"break")
    (ping,) = await services.ping(name).all()
    assert (ping.id, ping.version) == (service.id, "2.0.0")
    (info,) = await services.info(name).all()
    assert info.description == "theirs"
    endpoint, bare = info.endpoints
    assert (endpoint.subject, endpoint.queue_group) == (subject, "theirs")
    assert (endpoint.metadata, bare.metadata) == ({"a": "b"}, {})
    (stats,) = await services.stats(name, service.id).all()
    counts = stats.endpoints[0]
    assert (counts.num_requests, counts.num_errors, counts.data) == (3, 2, {"x": 1})
    assert counts.last_error == "ValueError('broken')"
    assert counts.processing_time is not None
    assert counts.processing_time > timedelta(0)
    assert stats.started is not None
    await service.stop()
