"""The campaign "payloads" in small."""

from __future__ import annotations

from tests.fuzz.payloads import run


def test_no_row_is_lost_and_no_good_one_changed_beside_damaged_payloads() -> None:
    figures = run(12_000, seed=1)
    assert figures.wrong == []
    assert 8000 < figures.rows < 12_000
