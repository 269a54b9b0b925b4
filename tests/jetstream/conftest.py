"""Consumers for the tests of reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.jetstream.scripted import ScriptedConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.full_client import Client, JetStream
    from jetspark.jetstream import PullConsumer
    from jetspark.server import NatsServer


@pytest.fixture
async def consumer(js: JetStream, stream: str) -> PullConsumer:
    return await js.create_consumer(stream, durable_name="c")


@pytest.fixture
def scripted(
    nc: Client, shared_server: NatsServer, unique: Callable[[str], str]
) -> Callable[..., ScriptedConsumer]:
    return lambda *scripts: ScriptedConsumer(nc, shared_server.url, unique("api"), *scripts)
