"""The campaign "backfill" in small."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.chaos.backfill import KINDS
from tests.chaos.campaign import Shared, run_one


@pytest.mark.server
@pytest.mark.parametrize("kind", ["server killed", "bit flipped", "head purged"])
def test_every_message_is_read_once_or_there_is_a_typed_error(
    kind: str, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.15")
    with Shared() as shared:
        outcome = run_one(kind, KINDS[kind], 1, 0, shared)
    assert outcome.good, outcome
