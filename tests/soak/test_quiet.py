"""The short version; `python -m tests.soak.quiet` is the long one."""

from __future__ import annotations

from tests.soak.quiet import idle, receive

from jetspark.server import NatsServer


async def test_an_idle_connection_does_nothing(shared_server: NatsServer) -> None:
    assert await idle(shared_server.url, 0.5) < 0.02


async def test_memory_does_not_grow_with_the_messages_received(shared_server: NatsServer) -> None:
    early, late = await receive(shared_server.url, 100_000)
    assert late - early < 4_000_000
