"""The short version; `python -m tests.soak.backup --gigabytes 2` is the long one."""

from __future__ import annotations

import pytest
from tests.soak.backup import run


@pytest.mark.server
def test_thirty_megabytes_come_back_message_by_message() -> None:
    figures = run(0.03, seed=1)
    assert figures.messages > 3000
