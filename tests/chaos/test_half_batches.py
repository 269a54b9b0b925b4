"""The campaign "half_batches" in small."""

from __future__ import annotations

import pytest
from tests.chaos.half_batches import run

from jetspark.spark.table_sink.batch_commits import BatchCommits

pytestmark = pytest.mark.tables


def test_a_half_committed_batch_has_each_message_once_whatever_has_changed() -> None:
    figures = run(10, seed=7)
    assert figures.wrong == []
    assert figures.completed > 5


def test_the_oracle_notices_what_is_lost_or_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchCommits, "complete", lambda _: False)
    assert run(8, seed=7).wrong
