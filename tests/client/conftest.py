from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

import jetspark

Connect = Callable[..., Awaitable[jetspark.Client]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`await connect(url, **options)`: clients that are closed after the test."""
    async with AsyncExitStack() as stack:

        async def make(*args: Any, **options: Any) -> jetspark.Client:
            options = {"reconnect_wait": 0.05, "reconnect_jitter": 0.0} | options
            client = await jetspark.connect(*args, **options)
            stack.push_async_callback(client.close)
            return client

        yield make
