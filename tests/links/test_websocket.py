"""Ranges read over WebSocket, and what a blocking link says when it cannot be opened."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from tests.conftest import MakeServer
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.streams import Admin

import jetspark.errors as errors
from jetspark.connection.options import make_options
from jetspark.links.link import connect
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.server import NatsServer


@pytest.mark.full
@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("tls", [False, True])
def test_a_range_is_read_whole(
    make_server: MakeServer, certificates: Certificates, tls: bool, compression: bool
) -> None:
    port = free_port()
    block = certificates.server_config() if tls else "no_tls: true"
    server = make_server(
        f'websocket {{\n port: {port}, host: "127.0.0.1"\n {block}\n'
        f" compression: {str(compression).lower()}\n}}"
    )
    rows = [("s.a", b"%d" % n * (n % 50)) for n in range(30_000)] + [("s.b", b"x" * 900_000)]
    with Admin(server.url) as admin:
        admin.create("S", "s.*", storage="memory")
        admin.fill(rows)
        facts = admin.facts("S")
    url = f"{'wss' if tls else 'ws'}://localhost:{port}"
    options = make_options(url, tls_ca_file=str(certificates.ca))
    wanted = SequenceRange("S", 1, len(rows) + 1, facts.created)
    batches = list(read_range(options, wanted))
    assert [data for batch in batches for data in batch.column("data").to_pylist()] == [
        payload for _, payload in rows
    ]
    if tls:
        with pytest.raises(errors.TLSError):
            connect(make_options(url))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        (b"", errors.BrokenSocketError, "before opening the WebSocket"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", errors.ServerRefusedError, "HTTP 403"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\nsorry", errors.ServerRefusedError, "HTTP 502"),
        (None, errors.ConnectTimeoutError, "within 0.1 s"),
    ],
)
def test_what_speaks_no_websocket_is_refused(
    listener: socket.socket, answer: bytes | None, error: type[errors.JetsparkError], sentence: str
) -> None:
    done = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            if answer is None:
                done.wait(30)
            else:
                peer.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(error, match=sentence):
            connect(make_options(url, connect_timeout=0.1 if answer is None else 5.0))
    finally:
        done.set()
        thread.join()


def test_websocket_url_of_a_plain_tcp_port_is_refused(shared_server: NatsServer) -> None:
    with pytest.raises(errors.ServerRefusedError, match="did not open a WebSocket"):
        connect(make_options(shared_server.url.replace("nats:", "ws:")))
