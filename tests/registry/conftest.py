"""A registry of its own for a test, and schemas that may follow each other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.conftest import Unique

from jetspark.full_client import Client, connect
from jetspark.registry.service import serve_registry
from jetspark.server import NatsServer


def avro(*fields: str, **more: Any) -> str:
    """A record in Avro: "a int", or "b string?" with a default."""
    found = []
    for text in fields:
        name, kind = text.split()
        field: dict[str, Any] = {"name": name, "type": kind.removesuffix("?")}
        found.append(field | ({"default": ""} if kind.endswith("?") else {}))
    return json.dumps({"type": "record", "name": "Order", "fields": found, **more})


@pytest.fixture(scope="module")
def registry_server() -> Iterator[NatsServer]:
    """A server without other registries: they all have the same subjects."""
    with NatsServer(name="registry") as server:
        yield server


@pytest.fixture
async def client(registry_server: NatsServer) -> AsyncIterator[Client]:
    async with connect(registry_server.url) as nc:
        yield nc


@pytest.fixture
async def bucket(client: Client, unique: Unique) -> AsyncIterator[str]:
    """The name of a bucket with a registry that answers the client."""
    name = unique("schemas")
    async with await serve_registry(client, client.jetstream(timeout=20), bucket=name):
        yield name


@pytest.fixture
def served(client: Client, bucket: str) -> Client:
    """A client with a registry that answers it."""
    return client
