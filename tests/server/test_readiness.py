"""Reading logs, ports files and INFO lines without a server."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from tests.support.ports import free_port as held_port

from jetspark.errors import DocumentError, EmbeddedServerError
from jetspark.server import free_port
from jetspark.server.nats_server import client_url, failure_reason, read_info

STAMP = "[42] 2026/01/02 03:04:05.678901"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            f"{STAMP} [INF] Starting nats-server\n"
            f'{STAMP} [FTL] Error listening on port: 127.0.0.1:4222, "listen tcp 127.0.0.1:4222: '
            'bind: address already in use"\n',
            "127.0.0.1:4222: address already in use",
        ),
        (
            f"{STAMP} [FTL] Can't start JetStream: storage directory is not a directory\n",
            "Can't start JetStream: storage directory is not a directory",
        ),
        ('nats-server: my.conf:1:0: unknown field "prot"\n\n', 'my.conf:1:0: unknown field "prot"'),
        (
            "flag provided but not defined: -nope\n\nUsage: nats-server [options]\n",
            "flag provided but not defined: -nope",
        ),
        (f"{STAMP} [INF] Server is ready\n", "Server is ready"),
        ("goroutine 1 [running]:\nexit status 2\n", "exit status 2"),
        ("", "it said nothing"),
    ],
)
def test_reason_of_a_failure_comes_from_the_log(tmp_path: Path, log: str, reason: str) -> None:
    file = tmp_path / "server.log"
    file.write_text(log)
    assert failure_reason(file) == reason


def test_reason_without_a_log(tmp_path: Path) -> None:
    assert failure_reason(tmp_path / "none") == "it said nothing"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ('{"nats":["nats://192.0.2.7:4222"]}', "nats://192.0.2.7:4222"),
        ('{"nats":["nats://192.0.2.7:4222","nats://[::1]:4222"]}', "nats://[::1]:4222"),
        ('{"nats":["nats://127.', None),
        ("", None),
        ("{}", None),
    ],
)
def test_ports_file_counts_when_it_is_complete(tmp_path: Path, text: str, url: str | None) -> None:
    assert client_url(tmp_path) is None
    (tmp_path / "nats-server_42.ports").write_text(text)
    assert client_url(tmp_path) == url


def test_free_port_is_not_one_of_outgoing_connections() -> None:
    assert all(port < 32768 for port in (free_port() for _ in range(5)))


def test_free_port_skips_those_in_use_or_bound_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = free_port()
        choices = iter([listener.getsockname()[1], held_port(), free])
        monkeypatch.setattr("secrets.choice", lambda _: next(choices))
        assert free_port() == free


def test_free_port_on_a_foreign_address_is_an_error() -> None:
    with pytest.raises(EmbeddedServerError, match=r"Cannot listen on '192\.0\.2\.1'"):
        free_port("192.0.2.1")


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"", b"INFO {nonsense\r\n"])
def test_something_else_on_the_port_is_no_server(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            link, _ = listener.accept()
            with link:
                link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(DocumentError):
            read_info("127.0.0.1", listener.getsockname()[1])
        thread.join()
