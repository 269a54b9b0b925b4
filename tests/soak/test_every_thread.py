"""The campaign "every_thread" in small."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.soak.every_thread import CALLS, run

pytestmark = pytest.mark.server


def test_eight_threads_share_one_client(needs_server: Callable[[str], None]) -> None:
    needs_server("2.14")
    figures = run(600, seed=1)
    assert figures.wrong == []
    assert figures.calls.keys() == {call.__name__ for call in CALLS}


@pytest.mark.parametrize("what", ["shared_publisher", "shared_ingest"])
def test_threads_through_one_publisher_lose_and_log_nothing(
    needs_server: Callable[[str], None], what: str
) -> None:
    needs_server("2.14")
    figures = run(30, only=what)
    assert figures.wrong == []
    assert figures.calls[what] == 30
