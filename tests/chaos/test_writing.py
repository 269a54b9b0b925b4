"""The campaign "writing" in small."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import astuple
from typing import TYPE_CHECKING

import pytest
from tests.chaos.campaign import Shared, run_one
from tests.chaos.spark import SPARK
from tests.chaos.writing import KINDS
from tests.chaos.writing_scene import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def shared(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shared]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Shared() as shared:
        shared.once(SPARK, lambda: nullcontext(spark))
        yield shared


@pytest.mark.server
@pytest.mark.parametrize(
    "kind",
    [
        "exactly-once: server killed",
        "exactly-once: worker killed",
        "effectively-once: network cut",
    ],
)
def test_a_run_with_a_fault_writes_every_row_once(
    kind: str, shared: Shared, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.12")
    outcome = run_one(kind, KINDS[kind], 1, 1, shared)
    assert outcome.good, outcome
    assert outcome.expected > 10_000


ROWS = [("S.f00", "f00-00000"), ("S.f00", "f00-00001"), ("S.f01", "f01-00000")]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (ROWS, (0, 0, 0, 0)),
        (ROWS[1:], (1, 0, 0, 0)),
        ([*ROWS, ROWS[0]], (0, 1, 0, 0)),
        (ROWS[::-1], (0, 0, 0, 1)),
        ([*ROWS, ("S.f01", "f00-00000"), ("S.f02", "")], (0, 0, 2, 1)),
    ],
)
def test_the_oracle_counts_every_kind_of_wrong(
    found: list[tuple[str, str]], says: tuple[int, ...]
) -> None:
    findings = compare(found, "S", [one for _, one in ROWS])
    assert astuple(findings)[:4] == says
