"""The short version; `python -m tests.soak.objects asyncio --gigabytes 2` is the long one."""

from __future__ import annotations

import pytest
from tests.soak.objects import run

pytestmark = pytest.mark.server


@pytest.mark.parametrize("client", ["asyncio", "blocking"])
def test_large_objects_need_little_memory(client: str) -> None:
    assert run(client, 0.1).wrong == []


def test_killed_servers_change_no_byte() -> None:
    assert run("asyncio", 0.03, kills=2, seed=5).wrong == []
