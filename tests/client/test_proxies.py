"""Proxies, own dialers, and host names with several addresses: asyncio, blocking and bulk."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Connect, next_of
from tests.conftest import MakeServer
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.proxies import HttpProxy, Proxy, SocksProxy

import jetspark
import jetspark.blocking
from jetspark import Reconnected
from jetspark.connection.options import make_options
from jetspark.errors import ConfigError, ConnectTimeoutError, JetsparkError, ServerRefusedError
from jetspark.links.link import connect as connect_bulk
from jetspark.server import NatsServer

WITHIN = 60
HIDDEN = "behind.the.proxy.invalid"

MakeProxy = Callable[..., Proxy]
Refused = Callable[..., JetsparkError]


@pytest.fixture(params=[HttpProxy, SocksProxy])
def make_proxy(request: pytest.FixtureRequest) -> Iterator[MakeProxy]:
    """`make_proxy(**options)`: of both kinds in turn."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(request.param(**options))


async def refusals(url: str, **options: Any) -> list[JetsparkError]:
    """The errors of the asyncio client, the blocking one and a bulk link."""
    options = {"connect_timeout": WITHIN} | options
    reported: list[JetsparkError] = []
    with pytest.raises(JetsparkError) as raised:
        await jetspark.connect(url, **options)
    reported.append(raised.value)
    for each in (
        lambda: jetspark.blocking.connect(url, **options),
        lambda: connect_bulk(make_options(url, **options)),
    ):
        with pytest.raises(JetsparkError) as raised:
            await asyncio.to_thread(each)
        reported.append(raised.value)
    return reported


def used(url: str, **options: Any) -> None:
    """Use it with the blocking client and a bulk link."""
    with jetspark.blocking.connect(url, **options) as nc:
        sub = nc.subscribe("a")
        nc.publish("a", b"x" * 100_000)
        assert sub.next(WITHIN).data == b"x" * 100_000
    link = connect_bulk(make_options(url, **options))
    assert link.check()
    link.close()


@pytest.mark.parametrize("scheme", ["nats", "tls", "ws", "wss"])
async def test_a_proxy_carries_every_kind_of_url_and_looks_up_the_name(
    make_server: MakeServer,
    make_proxy: MakeProxy,
    connect: Connect,
    certificates: Certificates,
    scheme: str,
) -> None:
    port = free_port()
    block = certificates.server_config()
    conf = block if scheme == "tls" else ""
    if scheme in ("ws", "wss"):
        tls = block if scheme == "wss" else "no_tls: true"
        conf = f'websocket {{\n port: {port}, host: "127.0.0.1"\n {tls}\n}}'
    server = make_server(conf)
    if scheme in ("nats", "tls"):
        port = server.port
    proxy = make_proxy(names={HIDDEN: port})
    url = f"{scheme}://{HIDDEN}:7"
    options = {"proxy": proxy.url, "tls_hostname": "localhost"}
    if scheme in ("tls", "wss"):
        options["tls_ca_file"] = str(certificates.ca)
    nc = await connect(url, **options)
    assert nc.current_server == url
    sub = nc.subscribe("a")
    await nc.publish("a", b"x" * 100_000)
    assert (await sub.next(WITHIN)).data == b"x" * 100_000
    await asyncio.to_thread(used, url, **options)
    assert proxy.asked == [f"{HIDDEN}:7"] * 3


async def test_a_proxy_is_used_again_after_its_connection_was_lost(
    make_proxy: MakeProxy, connect: Connect, shared_server: NatsServer
) -> None:
    proxy = make_proxy()
    nc = await connect(shared_server.url, proxy=proxy.url)
    events = nc.events()
    proxy.cut()
    await next_of(events, Reconnected)
    await nc.flush()
    assert len(proxy.asked) == 2


async def test_a_proxy_gets_the_login_of_its_url(
    make_proxy: MakeProxy, connect: Connect, shared_server: NatsServer
) -> None:
    proxy = make_proxy(login=("me", "p@ss:wörd"))
    right = proxy.url_with("me", "p%40ss:w%C3%B6rd")
    nc = await connect(shared_server.url, proxy=right)
    await nc.flush()
    assert "wörd" not in repr(nc.options)
    assert "w%C3" not in repr(nc.options)
    await asyncio.to_thread(used, shared_server.url, proxy=right)
    for url in (proxy.url_with("me", "secret"), proxy.url):
        for error in await refusals(shared_server.url, proxy=url):
            assert type(error) is ServerRefusedError
            assert f"The proxy {proxy.url} did not connect to {shared_server.url}: " in str(error)
            assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("kind", "refusal", "says"),
    [
        (HttpProxy, b"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden"),
        (HttpProxy, b"SSH-2.0-OpenSSH\r\n", "it is not an HTTP proxy"),
        (HttpProxy, b"HTTP/1.1 " + b"x" * 20_000, "it is not an HTTP proxy"),
        (HttpProxy, b"HTTP/1.1 200", "it closed the connection"),
        (SocksProxy, b"\x05\x02\x00\x01" + bytes(6), "the proxy's rules do not allow it"),
        (SocksProxy, b"\x05\x63\x00\x01" + bytes(6), "SOCKS error 99"),
        (SocksProxy, b"", "it closed the connection"),
    ],
)
async def test_a_refusal_of_a_proxy_is_one_sentence(
    shared_server: NatsServer, kind: type[Proxy], refusal: bytes, says: str
) -> None:
    with kind(refusal=refusal) as proxy:
        for error in await refusals(shared_server.url, proxy=proxy.url):
            assert type(error) is ServerRefusedError
            assert str(error).endswith(f"did not connect to {shared_server.url}: {says}.")


async def test_a_missing_proxy_is_named(shared_server: NatsServer) -> None:
    url = f"socks5://127.0.0.1:{free_port()}"
    for error in await refusals(shared_server.url, proxy=url):
        assert type(error) is ServerRefusedError
        assert str(error) == f"No proxy at {url}: Connection refused."


async def test_a_silent_proxy_takes_no_longer_than_the_connect_timeout(
    shared_server: NatsServer,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for error in await refusals(shared_server.url, proxy=url, connect_timeout=0.2):
            assert type(error) is ConnectTimeoutError


@pytest.mark.parametrize(
    "proxy",
    [
        *("", "socks4://h:1", "http://h", "http://:1", "h:1", "http://h:1/path", "http://h:x"),
        f"http://{'u' * 256}:p@h:1",
    ],
)
def test_a_proxy_that_is_no_url_of_one_is_refused_without_its_secrets(proxy: str) -> None:
    with pytest.raises(ConfigError, match=r"^proxy: ") as raised:
        make_options("nats://h", proxy=proxy)
    assert "uuu" not in str(raised.value)


@pytest.mark.parametrize("by", ["context", "environment"])
async def test_a_context_with_a_socks_proxy_works(
    shared_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    with SocksProxy() as proxy:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        if by == "context":
            folder = tmp_path / "nats" / "context"
            folder.mkdir(parents=True)
            document = {"url": shared_server.url, "socks_proxy": proxy.url}
            (folder / "far.json").write_text(json.dumps(document))
            connecting = jetspark.connect(context="far")
        else:
            monkeypatch.setenv("NATS_URL", shared_server.url)
            monkeypatch.setenv("NATS_SOCKS_PROXY", f"127.0.0.1:{proxy.port}")
            connecting = jetspark.connect()
        async with connecting as nc:
            await nc.flush()
        assert len(proxy.asked) == 1


# -- own dialers ---------------------------------------------------------------------------------


async def test_a_dialer_opens_the_connection_to_the_server(
    connect: Connect, shared_server: NatsServer
) -> None:
    asked: list[tuple[str, int]] = []
    threads: set[int] = set()

    def dial(host: str, port: int) -> socket.socket:
        asked.append((host, port))
        threads.add(threading.get_ident())
        return socket.create_connection(("127.0.0.1", shared_server.port))

    url = f"nats://{HIDDEN}:7"
    nc = await connect(url, dialer=dial)
    await nc.flush()
    assert threading.get_ident() not in threads
    await asyncio.to_thread(used, url, dialer=dial)
    assert asked == [(HIDDEN, 7)] * 3


async def test_a_dialer_opens_the_connection_to_the_proxy(
    make_proxy: MakeProxy, connect: Connect, shared_server: NatsServer
) -> None:
    proxy = make_proxy()
    asked: list[str] = []

    def dial(host: str, port: int) -> socket.socket:
        asked.append(host)
        return socket.create_connection(("127.0.0.1", proxy.port))

    url = proxy.url.replace("127.0.0.1", "proxy.invalid")
    nc = await connect(shared_server.url, dialer=dial, proxy=url)
    await nc.flush()
    await asyncio.to_thread(used, shared_server.url, dialer=dial, proxy=url)
    assert asked == ["proxy.invalid"] * 3
    assert len(proxy.asked) == 3


async def test_a_dialer_that_fails_is_an_error_of_the_attempt(shared_server: NatsServer) -> None:
    def unreachable(host: str, port: int) -> socket.socket:
        raise OSError(113, "No route to host")

    def slow(host: str, port: int) -> socket.socket:
        raise TimeoutError

    with pytest.raises(ServerRefusedError, match=r": TimeoutError\.$"):
        await jetspark.connect(shared_server.url, dialer=slow)

    def broken(host: str, port: int) -> socket.socket:
        raise ZeroDivisionError("mine")

    for dialer, kind, says in (
        (unreachable, ServerRefusedError, "No route to host"),
        (broken, JetsparkError, "dialer raised ZeroDivisionError('mine')"),
        (lambda host, port: "a socket", ConfigError, "dialer must return a connected socket"),
    ):
        for error in await refusals(shared_server.url, dialer=dialer):
            assert type(error) is kind
            assert says in str(error)


async def test_a_socket_that_a_dialer_returns_too_late_is_closed(shared_server: NatsServer) -> None:
    go = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(WITHIN)

        def slow(host: str, port: int) -> socket.socket:
            go.wait(WITHIN)
            return socket.create_connection(elsewhere.getsockname())

        with pytest.raises(ConnectTimeoutError):
            await jetspark.connect(shared_server.url, dialer=slow, connect_timeout=0.1)
        go.set()
        peer, _ = await asyncio.to_thread(elsewhere.accept)
        with peer:
            peer.settimeout(WITHIN)
            assert await asyncio.to_thread(peer.recv, 1) == b""


# -- several addresses ---------------------------------------------------------------------------


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`addresses("127.0.0.2", "127.0.0.1")`: a name that has these, in this order."""
    real = socket.getaddrinfo

    def make(*found: str) -> str:
        def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
            if host != "many.invalid":
                return real(host, port, *args, **options)
            if options.get("flags") == socket.AI_NUMERICHOST:
                raise socket.gaierror(socket.EAI_NONAME, "not an address")
            kind = socket.SOCK_STREAM
            return [(socket.AF_INET, kind, 0, "", (address, port)) for address in found]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        return "many.invalid"

    return make


async def test_every_address_of_a_name_is_tried(
    addresses: Callable[..., str], connect: Connect, make_server: MakeServer
) -> None:
    port = make_server(host="127.0.0.4").port
    host = addresses("127.0.0.2", "127.0.0.3", "127.0.0.4")
    nc = await connect(f"nats://{host}:{port}", randomize=False)
    await nc.flush()
    await asyncio.to_thread(used, f"nats://{host}:{port}")
    host = addresses("127.0.0.2", "127.0.0.3")
    for error in await refusals(f"nats://{host}:{port}"):
        assert type(error) is ServerRefusedError
        assert "Connection refused" in str(error)


async def test_addresses_of_a_name_are_shuffled_unless_randomize_is_off(
    addresses: Callable[..., str], make_server: MakeServer
) -> None:
    port, hosts = free_port(), ("127.0.0.2", "127.0.0.3", "127.0.0.4")
    for host in hosts:
        make_server(host=host, port=port, name=host)
    url = f"nats://{addresses(*hosts)}:{port}"

    async def reached(*, randomize: bool) -> set[str]:
        found = set()
        for _ in range(40):
            async with jetspark.connect(url, randomize=randomize) as nc:
                assert nc.server_info is not None
                found.add(nc.server_info.server_name)
        return found

    assert await reached(randomize=True) == set(hosts)
    assert await reached(randomize=False) == {hosts[0]}
    for randomize, expected in ((True, set(hosts)), (False, {hosts[0]})):
        links = [connect_bulk(make_options(url, randomize=randomize)) for _ in range(40)]
        assert {link.info.server_name for link in links} == expected
        for link in links:
            link.close()


async def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    addresses: Callable[..., str], connect: Connect, make_server: MakeServer
) -> None:
    port = make_server().port
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(4):  # its queue: from then on it drops what would connect
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = f"nats://{addresses('127.0.0.2', '127.0.0.1')}:{port}"
        nc = await connect(url, randomize=False, connect_timeout=2)
        await nc.flush()
        options = {"randomize": False, "connect_timeout": 2}
        await asyncio.to_thread(used, url, **options)
