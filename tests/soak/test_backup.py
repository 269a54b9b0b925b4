"""The campaign "backup" in small."""

from __future__ import annotations

import pytest
from tests.soak.backup import run


@pytest.mark.server
def test_thirty_megabytes_come_back_message_by_message() -> None:
    figures = run(seed=1, gigabytes=0.03)
    assert figures.messages > 3000
