"""`Client.trace` on real servers: one, a cluster, a leaf node, and borders of accounts."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.support.scripted_server import ScriptedServer

from jetspark import blocking
from jetspark.errors import (
    ConfigError,
    ConnectionClosedError,
    PermissionsError,
    RequestTimeoutError,
    UnsupportedByServerError,
)
from jetspark.full_client import Client, JetStream, connect
from jetspark.tracing import TraceExport, TraceImport, TraceMapping

if TYPE_CHECKING:
    from tests.conftest import MakeServer, NeedsServer, Unique
    from tests.support.cluster import Cluster
    from tests.support.leaf import HubAndLeaf

    from jetspark.server import NatsServer

WITHIN = 30  # seconds; nothing here waits for it to pass


@pytest.fixture(autouse=True)
def _traces(needs_server: NeedsServer) -> None:
    needs_server("2.11")


async def test_a_trace_names_streams_and_clients_and_delivers_only_if_told(
    nc: Client, js: JetStream, unique: Unique
) -> None:
    name = unique("TRACED")
    await js.create_stream(name=name, subjects=[f"{name}.>"])
    work = nc.subscribe(f"{name}.*", queue="workers")
    trace = await nc.trace(f"{name}.eu", b"42", headers={"k": "v"}, timeout=WITHIN)
    assert trace.complete
    assert not trace.delivered
    assert trace.root is not None
    assert nc.server_info is not None
    assert trace.root.id == nc.server_info.server_id
    assert trace.root.raw["request"]["header"]["k"] == ["v"]
    assert trace.root.ingress is not None
    assert trace.root.ingress.subject == f"{name}.eu"
    assert trace.root.ingress.connection_id == nc.server_info.client_id
    assert [(stream.stream, stream.subject) for stream in trace.streams] == [(name, f"{name}.eu")]
    assert [(one.subscription, one.queue) for one in trace.clients] == [(f"{name}.*", "workers")]
    assert trace.errors == ()
    await nc.flush()
    assert work.pending_msgs == 0
    assert (await js.stream(name).info()).state.messages == 0

    trace = await nc.trace(f"{name}.eu", bytearray(b"42"), deliver=True, timeout=WITHIN)
    assert (trace.complete, trace.delivered) == (True, True)
    assert (await work.next(WITHIN)).data == b"42"
    assert (await js.stream(name).info()).state.messages == 1
    await work.drain()


async def test_a_message_that_nobody_wants_has_a_complete_trace(nc: Client) -> None:
    trace = await nc.trace("nobody.wants.it", timeout=WITHIN)
    assert trace.complete
    assert (trace.clients, trace.streams) == ((), ())
    assert trace.no_interest
    assert str(trace).endswith(
        "1 server; complete: nobody subscribes to it, and no stream stores it"
    )


async def test_a_stream_that_refuses_says_why(nc: Client, js: JetStream, unique: Unique) -> None:
    name = unique("TRACED")
    await js.create_stream(name=name, subjects=[name])
    wrong = {"Nats-Expected-Last-Sequence": "7"}
    trace = await nc.trace(name, headers=wrong, deliver=True, timeout=WITHIN)
    (error,) = trace.errors
    assert error.error.startswith("last sequence mismatch")
    assert "✗ stream" in str(trace)


async def test_a_trace_goes_through_a_cluster(nats_cluster: Cluster, unique: Unique) -> None:
    subject = unique("traced")
    async with (
        connect(nats_cluster.urls[0], name="sending") as one,
        connect(nats_cluster.urls[1], name="second") as two,
        connect(nats_cluster.urls[2], name="third") as three,
    ):
        for client in (two, three):
            client.subscribe(subject)
            await client.flush()
        # Each server learns of the others' interest in its own time.
        while len((trace := await one.trace(subject, timeout=WITHIN)).clients) < 2:
            assert trace.complete
        assert trace.root is not None
        assert trace.root.cluster == "shared"
        assert sorted(server.hop for server in trace.servers) == ["", "1", "2"]
        assert {server.name for server in trace.root.servers} == {"shared-n2", "shared-n3"}
        for egress in trace.root.egresses:
            assert egress.connection == "route"
            after = trace.root.after(egress)
            assert after is not None
            assert egress.name == after.name
        assert {client.name for client in trace.clients} == {"second", "third"}


async def test_a_trace_goes_to_a_leaf_node(
    hub_and_leaf: HubAndLeaf, unique: Unique, on_hub: Client, on_leaf: Client
) -> None:
    subject = unique("traced")
    on_leaf.subscribe(subject)
    await on_leaf.flush()
    while not (trace := await on_hub.trace(subject, timeout=WITHIN)).clients:
        assert trace.complete
    assert trace.root is not None
    (egress,) = trace.root.egresses
    assert egress.connection == "leaf node"
    (leaf,) = trace.root.servers
    assert (leaf.name, leaf.domain, leaf.hop) == ("leaf", "leaf", "1")
    assert leaf.ingress is not None
    assert leaf.ingress.connection == "leaf node"


async def test_mappings_and_borders_of_accounts_are_steps(make_server: MakeServer) -> None:
    server = make_server(
        "accounts: {"
        "A: {users: [{user: a, password: p}], mappings: {old: new},"
        ' exports: [{stream: "news.>"}],'
        ' imports: [{service: {account: B, subject: "add"}}]},'
        "B: {users: [{user: b, password: p}],"
        ' exports: [{service: "add", allow_trace: true}],'
        ' imports: [{stream: {account: A, subject: "news.>"}, prefix: "a", allow_trace: true}]}}'
    )
    async with (
        connect(server.url, user="a", password="p") as a,
        connect(server.url, user="b", password="p", name="b") as b,
    ):
        b.subscribe("a.news.>")
        b.subscribe("add")
        await b.flush()
        mapped = await a.trace("old", timeout=WITHIN)
        assert mapped.root is not None
        assert [e.to for e in mapped.root.events if isinstance(e, TraceMapping)] == ["new"]
        news = await a.trace("news.eu", timeout=WITHIN)
        assert news.root is not None
        exports = [e for e in news.root.events if isinstance(e, TraceExport)]
        assert [(e.account, e.to) for e in exports] == [("B", "a.news.eu")]
        assert [(e.name, e.account) for e in news.clients] == [("b", "B")]
        asked = await a.trace("add", timeout=WITHIN)
        assert asked.root is not None
        imports = [e for e in asked.root.events if isinstance(e, TraceImport)]
        assert [(e.account, e.subject, e.to) for e in imports] == [("B", "add", "add")]
        assert [e.name for e in asked.clients] == ["b"]


async def test_a_refused_subject_or_inbox_is_one_sentence(make_server: MakeServer) -> None:
    server = make_server(
        "authorization: {users: ["
        '{user: a, password: p, permissions: {publish: {deny: ["secret"]}}},'
        '{user: b, password: p, permissions: {publish: {deny: ["_INBOX.>"]}}},'
        '{user: c, password: p, permissions: {subscribe: {deny: ["_INBOX.>"]}}}]}'
    )
    async with (
        connect(server.url, user="a", password="p") as a,
        connect(server.url, user="b", password="p") as b,
        connect(server.url, user="c", password="p") as c,
    ):
        with pytest.raises(PermissionsError, match='Publish to "secret"'):
            await a.trace("secret", timeout=WITHIN)
        says = r"^Tracing .* publish to '_INBOX.>', .* come: The server reports: .*\.1\"\. "
        with pytest.raises(PermissionsError, match=says) as caught:
            await b.trace("open", timeout=WITHIN)
        assert caught.value.sentence() == str(caught.value)  # what commands show
        with pytest.raises(PermissionsError, match="Subscription to"):
            await c.trace("open", timeout=WITHIN)


async def test_a_server_that_would_deliver_the_message_gets_none() -> None:
    async with ScriptedServer() as server:
        nc, connecting, peer = await server.client()
        await peer.shake_hands(version="2.10.29")
        await connecting
        tracing = asyncio.ensure_future(nc.trace("x", timeout=WITHIN))
        await peer.expect(b"PING")
        peer.send(b"PONG\r\n")
        with pytest.raises(UnsupportedByServerError, match=r"trace needs nats-server >= 2.11"):
            await tracing
        await nc.close()
        assert await peer.line() == b""  # nothing more was sent


async def test_reports_that_cannot_be_read_are_told_and_none_at_all_is_a_timeout() -> None:
    async with ScriptedServer() as server:
        nc, connecting, peer = await server.client()
        await peer.shake_hands(version="2.11.0")
        await connecting
        tracing = asyncio.ensure_future(nc.trace("x", timeout=0.5))
        await peer.expect(b"PING")
        peer.send(b"PONG\r\n")
        sub = (await peer.line()).split()
        head = (await peer.line()).split()
        header = await peer.reader.readexactly(int(head[3]) + 2)
        inbox = header.split(b"Nats-Trace-Dest: ")[1].split(b"\r\n")[0]
        peer.send(b"MSG %b %b 2\r\n{}\r\n" % (inbox, sub[2]))
        with pytest.raises(RequestTimeoutError, match=r"No server reported on 'x' within 0.5 s"):
            await tracing
        assert "cannot be read" in str(nc.last_error)
        await nc.close()


async def test_wrong_calls_send_nothing(nc: Client) -> None:
    for name in ("Nats-Trace-Dest", "Nats-Trace-Only", "Nats-Trace-Hop", "Accept-Encoding"):
        with pytest.raises(ConfigError, match=f"{name} cannot be given"):
            await nc.trace("x", headers={name: "1"})
    sent = nc.stats.out_msgs
    await nc.flush()
    assert nc.stats.out_msgs == sent == 0
    await nc.close()
    with pytest.raises(ConnectionClosedError):
        await nc.trace("x")


def test_blocking_trace_is_the_same(shared_server: NatsServer) -> None:
    with blocking.connect(shared_server.url, name="asking") as nc:
        with nc.subscribe("traced.blocking"):
            nc.flush()
            trace = nc.trace("traced.blocking", b"1", timeout=WITHIN)
        assert [client.name for client in trace.clients] == ["asking"]
        assert json.dumps(trace.servers[0].raw)
