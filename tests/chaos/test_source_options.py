"""The campaign "source_options" in small."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.chaos.source_options import run

from jetspark.spark.source import claims, interest_consumer, stream_reader

pytestmark = pytest.mark.server


def test_nothing_is_removed_unread_read_twice_or_missing_whatever_the_options(
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.14")
    figures = run(20, seed=7)
    assert figures.wrong == []
    assert figures.removed > 0
    assert figures.deaths > 0


@pytest.mark.parametrize("without", ["claims", "check of starts"])
def test_the_oracle_notices_what_is_removed_unread_or_missing(
    monkeypatch: pytest.MonkeyPatch, needs_server: Callable[[str], None], without: str
) -> None:
    needs_server("2.14")
    monkeypatch.setattr(claims, "check_nothing_skipped", lambda *_: None)
    if without == "claims":
        monkeypatch.setattr(claims.QueryClaims, "create", lambda *_: None)
        monkeypatch.setattr(claims.QueryClaims, "has_claim", lambda *_: True)
        monkeypatch.setattr(claims, "report_lost_claim", lambda *_: None)
    assert run(20, seed=7).wrong


def test_the_oracle_notices_what_a_renamed_consumer_releases_unread(
    monkeypatch: pytest.MonkeyPatch, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.14")
    monkeypatch.setattr(stream_reader, "query_consumer", lambda *_: None)
    monkeypatch.setattr(interest_consumer, "check_nothing_skipped", lambda *_: None)
    wrong = run(4, seed=8, first=20).wrong
    assert any("released unread" in sentence for sentence in wrong)
