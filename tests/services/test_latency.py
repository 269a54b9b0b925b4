"""Service latency, as a server with an exported service measures it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import MakeServer

from jetspark import blocking
from jetspark.documents.document import Duration
from jetspark.errors import BadSubjectError, JetStreamError
from jetspark.full_client import connect
from jetspark.server import NatsServer
from jetspark.services import Request, ServiceLatency
from jetspark.services.discovery import parse_latency

OF_ADR_3 = b"""{
  "type": "io.nats.server.metric.v1.service_latency", "id": "YBxAhpUFfs1rPGo323WcmQ",
  "timestamp": "2020-05-21T08:06:29.4981587Z", "status": 200,
  "requestor": {"acc": "WEB", "rtt": 1107500, "start": "2020-05-21T08:06:20.2391509Z",
    "user": "backend", "lang": "go", "ver": "1.10.0", "ip": "172.22.0.7", "cid": 6},
  "responder": {"acc": "WEATHER", "rtt": 1389100, "server": "nats1"},
  "start": "2020-05-21T08:06:29.4917253Z", "service": 3363500, "system": 551200, "total": 6411300
}"""


@pytest.fixture
def server(make_server: MakeServer) -> NatsServer:
    """A exports a service with latency, B imports it and shares who asks."""
    return make_server(
        "accounts: {"
        "A: {users: [{user: a, password: p}], exports: ["
        '{service: "add", accounts: [B], latency: {sampling: headers, subject: "add.latency"}}]},'
        "B: {users: [{user: b, password: p}], imports: ["
        '{service: {account: A, subject: "add"}, share: true}]}}'
    )


async def slowly(request: Request) -> None:
    await asyncio.sleep(0.05)
    await request.respond(request.data)


async def test_latency_of_a_request_is_a_typed_event(server: NatsServer) -> None:
    async with (
        connect(server.url, user="a", password="p", name="answering") as a,
        connect(server.url, user="b", password="p", name="asking") as b,
        await a.add_service("adder", "1.0.0") as service,
    ):
        await service.add_endpoint("add", slowly)
        events = a.services().latencies("add.latency")
        await a.flush()
        await b.request("add", b"not sampled")
        await b.request("add", b"sampled", headers={"Uber-Trace-Id": "479fefe9525eddb:5adb:1:1"})
        event = await events.next(20)
        assert isinstance(event, ServiceLatency)
        assert (event.status, event.description) == (200, None)
        assert event.header == {"Uber-Trace-Id": ["479fefe9525eddb:5adb:1:1"]}
        assert event.service is not None
        assert event.total is not None
        assert timedelta(0) <= event.service <= event.total
        assert event.total > timedelta(0)
        assert event.responder is not None
        assert event.requestor is not None
        assert (event.responder.name, event.responder.acc) == ("answering", "A")
        assert event.requestor.name == "asking"
        assert event.start is not None
        assert abs(datetime.now(UTC) - event.start) < timedelta(minutes=5)
        await a.publish("add.latency", b"no event")
        await a.flush()
        with pytest.raises(TimeoutError):
            await events.next(0.05)
        assert "Unreadable event" in str(a.last_error)
        events.close()
        with pytest.raises(BadSubjectError):
            a.services().latencies("a b")


def test_blocking_service_latency_is_read(server: NatsServer) -> None:
    with (
        blocking.connect(server.url, user="a", password="p") as a,
        blocking.connect(server.url, user="b", password="p") as b,
        a.add_service("adder", "1.0.0") as service,
        a.services().latencies("add.latency") as events,
    ):
        service.add_endpoint("add", lambda request: request.respond(b"1"))
        b.request("add", headers={"traceparent": "00-4bf92f35-00f067aa0ba902b7-01"})
        event = events.next(20)
        assert isinstance(event, ServiceLatency)
        assert event.status == 200


def test_document_of_adr_3_is_read() -> None:
    event = parse_latency(OF_ADR_3)
    assert event.kind == "service_latency"
    assert event.service == Duration.from_ns(3363500)
    assert event.requestor is not None
    assert event.requestor.user == "backend"
    assert event.requestor.extra == {"ip": "172.22.0.7", "cid": 6}
    for wrong in (b"", b"[]", b"{}", b'{"type": "io.nats.jetstream.advisory.v1.nak"}', b"\xff"):
        with pytest.raises(JetStreamError):
            parse_latency(wrong)
