"""The campaign "hostile_tables" in small."""

from __future__ import annotations

import pytest
from tests.fuzz.hostile_tables import run

pytestmark = pytest.mark.tables


def test_nothing_is_executed_read_or_deleted_outside_of_a_hostile_table() -> None:
    figures = run(25, seed=2)
    assert figures.wrong == []
    assert figures.done.total() > 40
    assert figures.refused.total() > 20
