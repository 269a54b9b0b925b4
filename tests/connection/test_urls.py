"""Server URLs: what is read, what is refused, what is shown."""

from __future__ import annotations

import asyncio

import pytest

from jetspark import blocking, connect
from jetspark.connection.handshake import identity_of
from jetspark.connection.options import ConnectOptions, make_options
from jetspark.connection.pool import ServerPool
from jetspark.connection.urls import parse_url, parse_urls
from jetspark.errors import ConfigError, ServerRefusedError, TLSError
from jetspark.links._sockets import dial as open_socket
from jetspark.server import NatsServer


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host", "nats://host:4222"),
        ("tls://host", "tls://host:4222"),
        ("ws://host", "ws://host:80"),
        ("wss://host/", "wss://host:443"),
        ("WSS://[::1]:9222/a/b%20c", "wss://[::1]:9222/a/b%20c"),
        ("ws://u:s3cret@host:1/p", "ws://host:1/p"),
    ],
)
def test_a_url_has_the_port_of_its_scheme(text: str, shown: str) -> None:
    url = parse_url(text)
    assert str(url) == shown
    assert "s3cret" not in repr(url)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("http://host", "one of nats, tls, ws, wss"),
        ("nats://host/path", "nothing may follow the port"),
        ("ws://host/?token=s3cret", "nothing may follow the port but a path"),
        ("ws://host/a b", "percent-encode"),
        ("ws://:80", "no host"),
        ("ws://s3cret@host:99999", "port of 1 to 65535"),
    ],
)
def test_a_bad_url_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_url(text)


@pytest.mark.parametrize("character", "/?#[],")
@pytest.mark.parametrize("scheme", ["nats://", "tls://", "ws://", ""])
def test_a_password_that_is_not_escaped_is_told_and_not_shown(scheme: str, character: str) -> None:
    login = f"us3r:s3c{character}r3t"
    text = f"{scheme}{login}@host:4222"
    with pytest.raises(ConfigError, match="percent-encode what its") as told:
        parse_urls(text)
    assert not any(part in str(told.value) for part in ("us3r", "s3c", "r3t"))
    (url,) = parse_urls(text.replace(login, login.replace(character, f"%{ord(character):02X}")))
    assert url.password == f"s3c{character}r3t"


@pytest.mark.parametrize("character", "@:%;&=+$!*'()")
def test_other_passwords_may_stay_as_they_are(character: str) -> None:
    (url,) = parse_urls(f"nats://user:s3c{character}r3t@host:4222")
    assert (url.user, url.password, url.host) == ("user", f"s3c{character}r3t", "host")


def test_websocket_and_other_servers_do_not_mix() -> None:
    with pytest.raises(ConfigError, match="cannot be mixed"):
        parse_urls("nats://a,ws://b")
    assert len(parse_urls("ws://a,wss://b")) == 2


def test_tls_over_websocket_is_said_by_the_url() -> None:
    with pytest.raises(ConfigError, match="wss://"):
        make_options("ws://a", tls=True)
    with pytest.raises(ConfigError, match="wss://"):
        make_options("ws://a", tls_first=True)
    make_options("wss://a", tls=True, tls_first=True)


def test_gossiped_servers_keep_the_scheme() -> None:
    for url, learnt, secure in (
        ("ws://a", "ws://10.0.0.1:80", False),
        ("wss://a/path", "wss://10.0.0.1:80", True),
        ("nats://a", "tls://10.0.0.1:80", True),
        ("tls://a", "tls://10.0.0.1:80", True),
    ):
        pool = ServerPool(parse_urls(url), wait=1.0)
        assert pool.learn(["10.0.0.1:80"], pool.servers[0], secure=secure) == [learnt]
        assert pool.servers[1].url.tls_name == "a"


def test_headers_are_kept_as_pairs_and_shown_nowhere() -> None:
    options = make_options("ws://a", ws_headers={"Cookie": "s3cret", "X-A": "b"})
    assert options.header_pairs == (("Cookie", "s3cret"), ("X-A", "b"))
    assert "s3cret" not in repr(options)
    assert hash(options) == hash(make_options("ws://a", ws_headers=options.ws_headers))
    for name, value in (("A B", "x"), ("", "x"), ("A", "x\r\nB: y"), ("A", "é")):
        with pytest.raises(ConfigError, match="ws_headers") as caught:
            ConnectOptions(ws_headers={name: value})
        assert "\n" not in str(caught.value)


NO_HOST = ["host..example.org", ".example.org", f"{'a' * 64}.org", "münchen..de"]


@pytest.mark.server
@pytest.mark.parametrize("host", NO_HOST)
async def test_a_name_that_no_host_can_have_is_one_sentence_and_others_are_tried(
    shared_server: NatsServer, host: str
) -> None:
    wrong = f"nats://{host}:4222"
    with pytest.raises(ServerRefusedError, match=r"^No server .*: no host"):
        await connect(wrong, max_reconnect_attempts=0)
    for servers in ([wrong, shared_server.url], [shared_server.url, wrong]):
        async with connect(servers, randomize=False) as nc:
            await nc.flush()

    def block() -> None:
        with pytest.raises(ServerRefusedError, match="no host can have"):
            blocking.connect(wrong, max_reconnect_attempts=0)
        with pytest.raises(ServerRefusedError, match="no host can have"):
            open_socket(make_options(wrong), parse_url(wrong))
        with blocking.connect([wrong, shared_server.url], randomize=False) as nc:
            nc.flush()

    await asyncio.to_thread(block)


@pytest.mark.server
async def test_a_certificate_name_of_no_host_is_a_tls_error(shared_server: NatsServer) -> None:
    ended = asyncio.Event()

    async def encrypted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(encrypted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(TLSError, match="TLS with"):
            await connect(
                f"tls://127.0.0.1:{port}", tls_hostname=".a..b", tls_first=True, reconnect=False
            )
        await asyncio.wait_for(ended.wait(), 30)


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("servers", "nats://127.0.0.1:0", "with a port of 1 to 65535"),
        ("servers", "nats://a\0b", "it is not valid text"),
        ("servers", "nats://user\ud800:pw@a", "it is not valid text"),
    ],
)
def test_options_that_no_server_has_are_refused(option: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        ConnectOptions(**{option: value})  # type: ignore[arg-type]
    assert "pw" not in str(refused.value)


def test_a_seed_with_letters_beyond_ascii_is_no_seed() -> None:
    with pytest.raises(ConfigError, match="no valid NKey") as refused:
        identity_of(make_options(nkey_seed="SUÄ" + "A" * 55))
    assert "Ä" not in str(refused.value)
