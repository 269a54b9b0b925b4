"""The campaign "objects" in small."""

from __future__ import annotations

import pytest
from tests.soak.objects import run

pytestmark = pytest.mark.server


@pytest.mark.parametrize("client", ["asyncio", "blocking"])
def test_large_objects_need_little_memory(client: str) -> None:
    assert run(client=client, gigabytes=0.1).wrong == []


def test_killed_servers_change_no_byte() -> None:
    assert run(seed=5, gigabytes=0.03, kills=2).wrong == []
