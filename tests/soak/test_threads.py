"""The short version; `python -m tests.soak.threads publisher --seconds 60` is the long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.threads import HOW, run

from jetspark.blocking import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.server import NatsServer


@pytest.mark.server
@pytest.mark.parametrize("how", HOW)
def test_four_threads_through_one_publisher_lose_and_log_nothing(
    nats_server: NatsServer,
    needs_server: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    if how == "ingest":
        needs_server("2.14")
    with connect(nats_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s"], storage="memory", allow_batched=how == "ingest")
        assert run(js, "S", "s", how, seconds=2).sent > 1000
    assert [one.getMessage() for one in caplog.records if one.name != "jetspark"] == []
