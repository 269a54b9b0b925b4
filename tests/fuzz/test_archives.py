"""The campaign "archives" in small."""

from __future__ import annotations

from tests.fuzz.archives import run


def test_spoiled_archives_are_rows_or_a_typed_error() -> None:
    figures = run(700, seed=1)
    assert figures.ended["refused"] > 150
    assert figures.ended["read"] > 100
