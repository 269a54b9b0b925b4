"""A connection to the shared server, and a stream of one's own on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.raw_client import RawClient

from jetspark.full_client import JetStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from jetspark.server import NatsServer


@pytest.fixture
async def stream(
    js: JetStream, shared_server: NatsServer, unique: Callable[[str], str]
) -> AsyncIterator[str]:
    """A stream in memory that listens to "<its name>.>"."""
    name = unique("S")
    await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    yield name
    with RawClient(shared_server.url) as raw:  # the test may have closed its own connection
        raw.api(f"STREAM.DELETE.{name}")
