"""Connections of the asyncio clients: `async with nats_py(url) as client`.

Imported late: a missing package means that a contestant is skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetspark import Client


@asynccontextmanager
async def jetspark(url: str) -> AsyncIterator[Client]:
    from jetspark import connect

    async with connect(url) as client:
        yield client


@asynccontextmanager
async def nats_py(url: str) -> AsyncIterator[Any]:
    client = await import_module("nats").connect(url)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def nats_core(url: str) -> AsyncIterator[Any]:
    client = await import_module("nats.client").connect(url)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def natsio(url: str) -> AsyncIterator[Any]:
    import_module("natsio.jetstream")  # versions before 1.0 have none, and another interface
    async with await import_module("natsio").connect(url) as client:
        yield client


@asynccontextmanager
async def natsrpy(url: str) -> AsyncIterator[Any]:
    client = import_module("natsrpy").Nats(addrs=[url])
    await client.startup()
    try:
        yield client
    finally:
        await client.shutdown()
