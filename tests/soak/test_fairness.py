"""The campaign "fairness" in small."""

from __future__ import annotations

from random import Random

import pytest
from tests.soak.fairness import Figures, run_on

from jetspark.server import NatsServer

pytestmark = pytest.mark.server


async def test_equal_tasks_get_equal_shares(shared_server: NatsServer) -> None:
    figures = Figures()
    await run_on(shared_server.url, figures, 1.2, Random(1), threads=False)
    assert figures.wrong == []
