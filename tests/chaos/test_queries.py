"""The campaigns "reading" and "writing" in small, which share a Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import astuple
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.chaos import reading, writing
from tests.chaos.campaign import Shared, run_one
from tests.chaos.spark import SPARK
from tests.chaos.writing_scene import compare


@pytest.fixture
def shared(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shared]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Shared() as shared:
        shared.once(SPARK, lambda: nullcontext(spark))
        yield shared


@pytest.mark.server
@pytest.mark.parametrize("kind", ["server killed", "messages purged"])
def test_table_has_every_row_once_under_each_fault(shared: Shared, kind: str) -> None:
    outcome = run_one(kind, reading.KINDS[kind], 1, 0, shared)
    assert outcome.good, outcome
    assert outcome.expected


@pytest.mark.server
@pytest.mark.parametrize(
    "kind",
    ["exactly-once: server killed", "exactly-once: worker killed", "effectively-once: network cut"],
)
def test_a_run_with_a_fault_writes_every_row_once(
    kind: str, shared: Shared, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.12")
    outcome = run_one(kind, writing.KINDS[kind], 1, 1, shared)
    assert outcome.good, outcome
    assert outcome.expected > 10_000


def test_a_row_has_the_subject_of_its_file() -> None:
    rows = [("S.f00", "f00-00000"), ("S.f00", "f00-00001"), ("S.f01", "f01-00000")]
    ids = [one for _, one in rows]
    assert astuple(compare(rows, "S", ids))[:4] == (0, 0, 0, 0)
    found = compare([*rows, ("S.f01", "f00-00000"), ("S.f02", "")], "S", ids)
    assert astuple(found)[:4] == (0, 0, 2, 1)
    assert astuple(compare(rows[::-1], "S", ids))[:4] == (0, 0, 0, 1)
