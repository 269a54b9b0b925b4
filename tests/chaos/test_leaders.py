"""The short version; `python -m tests.chaos leaders --runs 200` is the long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.chaos.campaign import Shared, run_one
from tests.chaos.leaders import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.server
def test_what_a_frozen_leader_says_when_it_goes_on_is_not_believed(
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.12")  # it writes exactly once, too
    with Shared() as shared:
        outcome = run_one("leader frozen", KINDS["leader frozen"], 1, 0, shared)
    assert outcome.good, outcome
    assert outcome.faults
    assert outcome.expected
