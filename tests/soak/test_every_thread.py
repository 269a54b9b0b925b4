"""The short version; `python -m tests.soak.every_thread --seconds 60` is the long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.every_thread import CALLS, campaign

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.server import NatsServer


@pytest.mark.server
def test_eight_threads_share_one_client(
    nats_server: NatsServer, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")
    figures = campaign(nats_server.url, seconds=8, seed=1)
    assert figures.wrong == []
    assert figures.calls.total() > len(CALLS)
