"""A blocking connection to the shared server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import Unique

from jetspark.blocking import Client, JetStream, connect
from jetspark.server import NatsServer


@pytest.fixture
def nc(shared_server: NatsServer) -> Iterator[Client]:
    with connect(shared_server.url) as client:
        yield client


@pytest.fixture
def js(nc: Client) -> JetStream:
    return nc.jetstream()


@pytest.fixture
def stream(js: JetStream, unique: Unique) -> Iterator[str]:
    """A stream in memory that listens to "<its name>.>"."""
    name = unique("S")
    js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    yield name
    js.delete_stream(name)
