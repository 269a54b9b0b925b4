"""The short version; `python -m tests.soak.every_thread --seconds 60` is the long one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.soak.every_thread import CALLS, run

pytestmark = pytest.mark.server


def test_eight_threads_share_one_client(needs_server: Callable[[str], None]) -> None:
    needs_server("2.14")
    figures = run(seconds=4, seed=1)
    assert figures.wrong == []
    assert figures.calls.total() > len(CALLS)


@pytest.mark.parametrize("what", ["shared_publisher", "shared_ingest"])
def test_threads_through_one_publisher_lose_and_log_nothing(
    needs_server: Callable[[str], None], what: str
) -> None:
    needs_server("2.14")
    figures = run(seconds=1.5, only=what)
    assert figures.wrong == []
    assert figures.calls[what] > 10
