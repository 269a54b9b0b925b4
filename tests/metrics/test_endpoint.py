"""The port for Prometheus and probes."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from jetspark.errors import ConfigError
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


def test_a_port_in_use_is_one_sentence() -> None:
    with (
        serving("127.0.0.1:0") as port,
        pytest.raises(ConfigError, match="already in use"),
        serving(f"127.0.0.1:{port}"),
    ):
        pass
