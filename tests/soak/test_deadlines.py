"""The campaign "deadlines" in small."""

from __future__ import annotations

import pytest
from tests.conftest import MakeServer
from tests.soak.deadlines import CALLS, Figures, run_on

pytestmark = pytest.mark.server


async def test_deadlines_begin_with_the_call(make_server: MakeServer) -> None:
    calls = [name for name in CALLS if name not in ("fetch", "consumer next")]  # half a second more
    figures = Figures()
    await run_on(make_server(jetstream=True), figures, 1.5, calls)
    assert figures.wrong == []
