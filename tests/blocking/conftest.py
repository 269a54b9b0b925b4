"""A blocking connection to the shared server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetspark.blocking import Client, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jetspark.server import NatsServer


@pytest.fixture
def nc(shared_server: NatsServer) -> Iterator[Client]:
    with connect(shared_server.url) as client:
        yield client
