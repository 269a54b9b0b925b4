"""The port for Prometheus and probes."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack, suppress
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from jetspark.errors import ConfigError
from jetspark.metrics import endpoint
from jetspark.metrics.endpoint import Health, serving


def answered(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def answer(port: int, path: str) -> tuple[int, object]:
    code, text = answered(port, path)
    return code, json.loads(text)


def test_probes_tell_the_reasons() -> None:
    reasons: list[str] = []
    with serving("127.0.0.1:0", Health(ready=lambda: reasons)) as port:
        assert answer(port, "/readyz") == (200, {"ok": True, "reasons": []})
        reasons.append("orders: no progress")
        assert answer(port, "/readyz") == (503, {"ok": False, "reasons": ["orders: no progress"]})
        assert answer(port, "/healthz")[0] == 200
        assert "process_cpu_seconds_total" in answered(port, "/metrics")[1]
    with pytest.raises(OSError, match="refused"):
        answer(port, "/readyz")


@pytest.mark.parametrize("address", ["9464", "host", "host:", ":99999", "http://a:1", ""])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"), serving(address):
        pass


@pytest.mark.full
def test_connections_that_say_nothing_are_few_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a thread and a descriptor; probes are answered beside them."""
    monkeypatch.setattr(endpoint, "REQUEST_TIMEOUT", 1.5)
    before = threading.active_count()
    with serving("127.0.0.1:0") as port, ExitStack() as opened:
        silent = []
        for number in range(200):
            link = opened.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            if number % 2:
                link.sendall(b"GET /metrics HTTP/1.1\r\nX-A: ")
            silent.append(link)
            if number % 50 == 0:
                assert answer(port, "/healthz")[0] == 200
        assert threading.active_count() - before <= 2 * endpoint.MAX_CONNECTIONS + 5
        assert answer(port, "/healthz")[0] == 200
        for link in silent:  # each is closed, though some of them go on
            with suppress(OSError):
                link.settimeout(10)
                assert link.recv(4096) == b""
        assert answer(port, "/readyz")[0] == 200
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_a_slow_client_is_not_served_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "REQUEST_TIMEOUT", 1.0)
    with serving("127.0.0.1:0") as port, socket.create_connection(("127.0.0.1", port), 10) as link:
        begun = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - begun < 20:
                link.sendall(b"G")
                time.sleep(0.2)
        assert time.monotonic() - begun < 15


def test_a_port_in_use_is_one_sentence() -> None:
    with (
        serving("127.0.0.1:0") as port,
        pytest.raises(ConfigError, match="already in use"),
        serving(f"127.0.0.1:{port}"),
    ):
        pass
