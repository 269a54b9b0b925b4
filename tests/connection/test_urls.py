"""Server URLs: what is read, what is refused, what is shown."""

from __future__ import annotations

import pytest

from jetspark.connection.options import ConnectOptions, make_options
from jetspark.connection.pool import ServerPool
from jetspark.connection.urls import parse_url, parse_urls
from jetspark.errors import ConfigError


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
