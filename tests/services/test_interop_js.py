"""With the official JavaScript client as the other side: discovery, errors, statistics.

Needs node and npm, and the network the first time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import Unique
from tests.services.conftest import Start, echo
from tests.support.js_peer import JsPeer

from jetspark.errors import ServiceError
from jetspark.services import Request, Services
from jetspark.timestamps import parse_isotime


async def test_they_find_and_call_our_service(start: Start, js_peer: JsPeer) -> None:
    async def call(name: str, *args: Any) -> Any:
        return (await js_peer.run("services", call=name, args=args))["result"]

    service = await start(metadata={"a": "b"}, description="ours", stats_handler=lambda _: [1])
    group = service.add_group(service.name, queue_group="")

    async def handle(request: Request) -> None:
        if request.data == b"refuse":
            await request.respond_error(409, "refused by us", b"body")
        elif request.data == b"break":
            raise KeyError("k")
        await request.respond(request.data)

    await group.add_endpoint("echo", handle, metadata={"c": "d"})
    subject = f"{service.name}.echo"

    async def ask(data: str) -> dict[str, Any]:
        return await js_peer.run("service_request", subject=subject, data=data)

    assert (await ask("hi"))["data"] == "hi"
    refused = await ask("refuse")
    assert refused["data"] == "body"
    assert refused["failed"] == {"code": 409, "message": "refused by us"}
    assert (await ask("break"))["failed"] == {"code": 500, "message": "KeyError: 'k'"}

    identity: dict[str, Any] = {"name": service.name, "id": service.id, "version": "1.0.0"}
    identity["metadata"] = {"a": "b"}
    assert service.id in {one["id"] for one in await call("ping")}
    identity["type"] = "io.nats.micro.v1.ping_response"
    assert await call("ping", service.name) == [identity]
    shown = {"name": "echo", "subject": subject, "queue_group": "", "metadata": {"c": "d"}}
    identity |= {"type": "io.nats.micro.v1.info_response", "description": "ours"}
    identity["endpoints"] = [shown]
    assert await call("info", service.name, service.id) == [identity]
    (stats,) = await call("stats", service.name)
    (endpoint,) = stats["endpoints"]
    assert (endpoint["num_requests"], endpoint["num_errors"]) == (3, 2)
    assert endpoint["last_error"] == "500:KeyError: 'k'"
    assert endpoint["processing_time"] // 3 == endpoint["average_processing_time"] > 0
    assert endpoint["data"] == [1]
    assert parse_isotime(stats["started"]) > 0
    await service.stop()
    with pytest.raises(AssertionError, match="no responders"):  # to them that is an error
        await call("ping", service.name)


async def test_we_find_and_call_their_service(
    js_peer: JsPeer, services: Services, unique: Unique
) -> None:
    name = unique("js")
    config = {"name": name, "version": "2.0.0-rc.1", "description": "theirs"}
    theirs = (await js_peer.run("service_add", config=config, group=name))["info"]

    assert (await services.request(f"{name}.echo", b"hi")).data == b"hi"
    assert (await services.request(f"{name}.iterated", b"hi")).data == b"hi"
    with pytest.raises(ServiceError) as raised:
        await services.request(f"{name}.refuses")
    error = raised.value
    assert (error.code, error.description, error.data) == (409, "refused by js", b"body")
    with pytest.raises(ServiceError, match="418: thrown by js"):
        await services.request(f"{name}.throws")

    (ping,) = await services.ping(name).all()
    assert (ping.id, ping.version) == (theirs["id"], "2.0.0-rc.1")
    (info,) = await services.info(name, ping.id).all()
    assert info.description == "theirs"
    assert [one.subject for one in info.endpoints] == [
        f"{name}.{one}" for one in ("echo", "refuses", "throws", "iterated")
    ]
    assert (info.endpoints[0].queue_group, info.endpoints[0].metadata) == ("q", {"a": "b"})
    (stats,) = await services.stats(name).all()
    by_name = {one.name: one for one in stats.endpoints}
    assert by_name["echo"].num_requests == 1
    assert by_name["echo"].data == {"of": "echo"}
    assert by_name["throws"].num_errors == 1
    assert by_name["throws"].last_error == "thrown by js"
    assert by_name["echo"].processing_time is not None
    assert by_name["echo"].processing_time >= timedelta(0)
    assert stats.started is not None
    await js_peer.run("service_stop", id=ping.id)
    assert await services.ping(name).all() == []


async def test_instances_of_both_share_the_requests(
    start: Start, js_peer: JsPeer, services: Services, unique: Unique
) -> None:
    name = unique("both")
    config = {"name": name, "version": "1.0.0"}
    await js_peer.run("service_add", config=config, group=name)
    ours = await start(name=name)

    await ours.add_group(name).add_endpoint("echo", echo)
    for number in range(50):
        assert (await services.request(f"{name}.echo", b"%d" % number)).data == b"%d" % number
    found = await services.stats(name).all()
    counts = [one.num_requests for stats in found for one in stats.endpoints if one.name == "echo"]
    assert len(counts) == 2
    assert sum(counts) == 50
    assert min(counts) > 0
