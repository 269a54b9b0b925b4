"""Servers of every supported line, from the cache of `scripts/servers.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.js_peer import cache

LINES = ("2.9", "2.10", "2.11", "2.12", "2.14", "2.15")


def server_of(line: str) -> Path:
    """The binary of a line; skips the test when it is not in the cache."""
    binary: Path = cache() / "servers" / line / "nats-server"
    if not os.access(binary, os.X_OK):
        pytest.skip(f"no nats-server {line} in the cache: python scripts/servers.py {line}")
    return binary
