"""Damaged payloads: the program's small form."""

from __future__ import annotations

from tests.fuzz.payloads import fuzz


def test_no_row_is_lost_and_no_good_one_changed_beside_damaged_payloads() -> None:
    assert 1000 < fuzz(2000, seed=1) < 2000
