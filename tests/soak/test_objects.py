"""The short version; `python -m tests.soak.objects --gigabytes 2` is the long one."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

from tests.soak.objects import with_asyncio, without_asyncio
from tests.soak.quiet import resident

if TYPE_CHECKING:
    from jetspark.server import NatsServer

SIZE = 150_000_000


async def test_large_objects_need_little_memory(nats_server: NatsServer) -> None:
    gc.collect()
    before = resident()
    figures = await asyncio.wait_for(with_asyncio(nats_server, SIZE), 60)
    assert figures.peak - before < 60_000_000


def test_large_objects_need_little_memory_without_asyncio(nats_server: NatsServer) -> None:
    gc.collect()
    before = resident()
    assert without_asyncio(nats_server, SIZE).peak - before < 60_000_000


async def test_killed_servers_change_no_byte(nats_server: NatsServer) -> None:
    figures = await asyncio.wait_for(with_asyncio(nats_server, 30_000_000, kills=2, seed=5), 60)
    assert figures.kills == 4
