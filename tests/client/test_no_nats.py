"""Connecting to what is no NATS server says so, in all clients."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.support.scripted_server import ScriptedServer

import jetspark
from jetspark import blocking
from jetspark.connection.handshake import may_be_silent
from jetspark.connection.options import make_options
from jetspark.errors import ConnectionFailure, JetsparkError, ProtocolError
from jetspark.links import link as links


@contextmanager
def http_server() -> Iterator[str]:
    """It waits for the client to speak, as NATS clients do."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"nats://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def speaking(greeting: bytes) -> Iterator[str]:
    """It says this to whoever comes, and waits for the end of the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(greeting)
                        connection.recv(1)
            except OSError:
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"nats://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def refusals(url: str, timeout: float) -> list[JetsparkError]:
    errors = []
    for connect in (
        lambda: asyncio.run(_connected(url, timeout)),
        lambda: blocking.connect(url, connect_timeout=timeout),
        lambda: links.connect(make_options(url, connect_timeout=timeout)),
    ):
        with pytest.raises(JetsparkError) as raised:
            connect()
        errors.append(raised.value)
    return errors


async def _connected(url: str, timeout: float) -> None:
    await jetspark.connect(url, connect_timeout=timeout)


def test_connecting_to_a_web_server_suggests_a_wrong_port() -> None:
    with http_server() as url:
        for error in refusals(url, 0.3):
            assert isinstance(error, ConnectionFailure)
            assert str(error) == (
                f"{url} accepted the connection and sent nothing within 0.3 s: a NATS server "
                "speaks first, so is this its client port? If it has handshake_first, set "
                "tls_first."
            )


def test_bytes_without_the_end_of_a_line_are_not_taken_for_silence() -> None:
    with speaking(bytes(100_000)) as url:
        for error in refusals(url, 0.5):
            assert isinstance(error, ConnectionFailure)
            assert str(error) == (
                f"{url} accepted the connection and sent 100,000 bytes but no whole line within "
                "0.5 s: a NATS server begins with one, so is this its client port?"
            )


@pytest.mark.parametrize("greeting", [b"220 mail.example ESMTP\r\n", b"SSH-2.0-OpenSSH_9.0\r\n"])
def test_another_protocol_is_shown(greeting: bytes) -> None:
    with speaking(greeting) as url:
        for error in refusals(url, 30):
            assert isinstance(error, ProtocolError)
            assert str(error) == (
                f"{url} is not a NATS server's client port: unknown operation "
                f"{greeting.decode().strip()!r}."
            )


def test_server_that_does_not_begin_with_info_is_refused() -> None:
    with speaking(b"PING\r\n") as url:
        for error in refusals(url, 30):
            assert str(error).endswith("client port: it did not begin with INFO.")


async def test_a_server_that_spoke_before_is_not_taken_for_a_silent_one() -> None:
    async with ScriptedServer() as server:
        errors: list[str] = []
        options: Any = {"reconnect_wait": 0.01, "connect_timeout": 0.2}
        connecting = asyncio.create_task(
            jetspark.connect(
                server.url, error_callback=lambda error: errors.append(str(error)), **options
            )
        )
        (await server.welcome()).close()
        nc = await connecting
        (await server.accept()).close()
        for _ in range(2):  # the next one stays silent
            await server.accept()
        await nc.close()
    assert errors[-2:] == [
        f"{server.url} closed the connection.",
        f"{server.url} did not answer within 0.2 s.",
    ]


def test_only_a_plain_link_may_need_tls_first() -> None:
    cases: list[tuple[str, dict[str, Any], bool]] = [
        ("nats://a", {}, True),
        ("nats://a", {"tls_first": True}, False),
        ("ws://a", {}, False),
    ]
    for url, given, silent in cases:
        options = make_options(url, **given)
        assert may_be_silent(options.urls()[0], options) is silent
