"""WebSocket against real servers: with and without TLS and compression, through outages."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.conftest import Connect, discovered, next_of
from tests.conftest import MakeServer
from tests.support.accounts import new_key
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.scripted_server import ScriptedServer

import jetspark
import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions, make_options
from jetspark.connection.transports import Receiver, Transport, tcp
from jetspark.connection.urls import ServerURL, parse_url
from jetspark.connection.websocket import WebSocketCodec
from jetspark.server import NatsServer

Start = Callable[..., tuple[NatsServer, str]]


@pytest.fixture
def start(make_server: MakeServer, certificates: Certificates) -> Start:
    """A server with a WebSocket port, and the URL of that."""

    def make(
        *, tls: bool = False, compression: bool = False, more: str = "", **options: Any
    ) -> tuple[NatsServer, str]:
        port = free_port()
        block = certificates.server_config() if tls else "no_tls: true"
        conf = (
            f'websocket {{\n port: {port}, host: "127.0.0.1"\n {block}\n'
            f" compression: {str(compression).lower()}\n}}\n{more}"
        )
        scheme = "wss" if tls else "ws"
        return make_server(conf, **options), f"{scheme}://localhost:{port}"

    return make


@pytest.mark.parametrize("scheme", ["nats", "ws", "wss"])
async def test_own_dial_carries_any_url(
    start: Start, certificates: Certificates, scheme: str
) -> None:
    server, url = start(tls=scheme == "wss")
    port = parse_url(server.url if scheme == "nats" else url).port
    dialed = []

    async def dial(asked: ServerURL, receiver: Receiver) -> Transport:
        dialed.append(str(asked))
        return await tcp(ConnectOptions())(ServerURL("localhost", port), receiver)

    unknown = f"{scheme}://behind.a.proxy.invalid:7"
    options = make_options(unknown, tls_ca_file=str(certificates.ca), tls_hostname="localhost")
    if scheme == "nats":
        options = make_options(unknown)
    async with jetspark.Client(options, dial=dial) as nc:
        sub = nc.subscribe("a")
        await nc.publish("a", b"x")
        assert (await sub.next(10)).data == b"x"
        assert nc.current_server == unknown
    assert dialed == [unknown]


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("tls", [False, True])
async def test_messages_small_and_large_pass(
    start: Start, connect: Connect, certificates: Certificates, tls: bool, compression: bool
) -> None:
    server, url = start(tls=tls, compression=compression, more="max_payload: 8MB")
    nc = await connect(f"{url}/any/path", tls_ca_file=str(certificates.ca))
    assert nc.current_server == f"{url}/any/path"
    other = await connect(server.url)
    payloads = [b"", b"x", b"\r\n" * 4000, bytes(range(256)) * 20_000, b"z" * 3]
    here, there = nc.subscribe("a"), other.subscribe("a")
    await nc.flush()
    await other.flush()
    for number, payload in enumerate(payloads):
        await (nc if number % 2 else other).publish("a", payload, headers={"N": str(number)})
        await (nc if number % 2 else other).flush()
    for sub in (here, there):
        got = [await sub.next(10) for _ in payloads]
        assert [message.data for message in got] == payloads
        assert [message.headers["N"] for message in got if message.headers] == [
            str(n) for n in range(len(got))
        ]
    many = [b"%d" % n for n in range(5000)]
    for payload in many:
        other.publish_nowait("a", payload)
    assert [(await here.next(10)).data for _ in many] == many


async def test_compression_is_used_when_both_sides_are_willing(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    codecs: list[WebSocketCodec] = []
    make = WebSocketCodec.__init__

    def remember(self: WebSocketCodec, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        codecs.append(self)

    monkeypatch.setattr(WebSocketCodec, "__init__", remember)
    _, plain = start()
    _, compressing = start(compression=True)
    await connect(plain)
    await connect(compressing)
    await connect(compressing, ws_compression=False)
    assert [codec.compressed for codec in codecs] == [False, True, False]


async def test_the_certificate_and_its_name_are_verified(
    start: Start, connect: Connect, certificates: Certificates
) -> None:
    _, url = start(tls=True)
    ca = str(certificates.ca)
    with pytest.raises(errors.TLSError, match="certificate"):
        await connect(url)
    with pytest.raises(errors.TLSError, match="match"):
        await connect(url, tls_ca_file=ca, tls_hostname="other.example")
    with pytest.raises(errors.ConfigError, match="TLS files"):
        await connect(url, tls_ca_file="none")


async def test_reconnecting_restores_subscriptions_and_sends_what_waited(
    start: Start, connect: Connect, certificates: Certificates
) -> None:
    server, url = start(tls=True)
    nc = await connect(url, tls_ca_file=str(certificates.ca))
    sub = nc.subscribe("a")
    await nc.flush()
    await nc.force_reconnect()
    for end in (server.kill, server.stop):
        events = nc.events()
        await asyncio.to_thread(end)
        await next_of(events, jetspark.Disconnected)
        await nc.publish("a", b"while away")
        await asyncio.to_thread(server.start)
        assert (await sub.next(10)).data == b"while away"
    assert nc.stats.reconnects == 3
    await nc.drain()


async def test_websocket_carries_credentials(start: Start, connect: Connect) -> None:
    user = new_key()
    _, url = start(
        more=f"authorization {{ users = [{{user: u, password: p}}, {{nkey: {user.public}}}] }}"
    )
    await connect(url, nkey_seed=user.seed)
    await connect(url.replace("://", "://u:p@"))
    with pytest.raises(errors.AuthorizationError):
        await connect(url, user="u", password="wrong")


async def test_a_cluster_names_its_websocket_ports(start: Start, connect: Connect) -> None:
    routes = [free_port(), free_port()]

    def cluster(own: int) -> str:
        urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        return f'cluster {{ name: C, listen: "127.0.0.1:{own}", routes: [{urls}] }}'

    (_, one), (_, two) = (start(more=cluster(own), jetstream=False) for own in routes)
    # By address, as the cluster names them: a name would be one more server.
    one, other = (url.replace("localhost", "127.0.0.1") for url in (one, two))
    nc = await connect(one)
    await discovered(nc, other)
    await nc.force_reconnect()
    assert nc.current_server == other


# -- scripted ------------------------------------------------------------------------------------


async def test_headers_and_the_path_are_in_the_request(scripted: ScriptedServer) -> None:
    url = scripted.url.replace("nats:", "ws:")
    client, connecting, peer = await scripted.client(f"{url}/way%20in", ws_headers={"X-Key": "k1"})
    assert await peer.line() == b"GET /way%20in HTTP/1.1"
    lines = []
    while line := await peer.line():
        lines.append(line)
    assert b"X-Key: k1" in lines
    assert f"Host: 127.0.0.1:{scripted.port}".encode() in lines
    peer.close()
    with pytest.raises(errors.BrokenSocketError):
        await connecting
    await client.close()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "HTTP 403"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", "HTTP 502"),
        (b"HTTP/1.1 101 Hm\r\n\r\n", "did not open a WebSocket"),
        (b'INFO {"server_id":"S"}\r\n', "did not open a WebSocket"),
    ],
)
async def test_no_websocket_is_refused(
    scripted: ScriptedServer, answer: bytes, sentence: str
) -> None:
    url = scripted.url.replace("nats:", "ws:")
    _, connecting, peer = await scripted.client(url)
    peer.send(answer)
    if b"Gateway" in answer:
        peer.close()  # its body ends with the link
    with pytest.raises(errors.ServerRefusedError, match=sentence) as caught:
        await asyncio.wait_for(connecting, 30)
    assert caught.value.server == str(parse_url(url))


async def test_a_silent_server_is_a_timeout(scripted: ScriptedServer) -> None:
    url = scripted.url.replace("nats:", "ws:")
    _, connecting, peer = await scripted.client(url, connect_timeout=0.1)
    with pytest.raises(errors.ConnectTimeoutError):
        await connecting
    while await peer.line():
        pass  # the request; then the client hangs up


async def test_websocket_url_of_a_plain_port(shared_server: NatsServer, connect: Connect) -> None:
    with pytest.raises(errors.ServerRefusedError, match="did not open a WebSocket"):
        await connect(shared_server.url.replace("nats:", "ws:"))
    with pytest.raises(errors.TLSError):
        await connect(shared_server.url.replace("nats:", "wss:"))


async def test_missing_library_is_named(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.client", None)
    with pytest.raises(errors.ConfigError, match=r"pip install 'jetspark\[ws\]'"):
        await connect("ws://127.0.0.1:1")
