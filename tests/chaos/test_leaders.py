"""The campaign "leaders" in small."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.chaos.campaign import Shared, run_one
from tests.chaos.leaders import KINDS


@pytest.mark.server
def test_the_answer_of_a_former_leader_is_not_accepted(
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.12")  # it writes exactly once, too
    kind = "leader cut off"
    with Shared() as shared:
        outcome = run_one(kind, KINDS[kind], 1, 0, shared)
        assert outcome.good, outcome
        assert outcome.expected
        assert outcome.note != "0 old answers"
