"""The campaign "reading" in small."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
from tests.chaos.campaign import Shared, run_one
from tests.chaos.reading import KINDS
from tests.chaos.spark import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.server
@pytest.mark.parametrize("kind", ["server killed", "messages purged"])
def test_table_has_every_row_once_under_each_fault(spark: SparkSession, kind: str) -> None:
    with Shared() as shared:
        shared.once(SPARK, lambda: nullcontext(spark))
        outcome = run_one(kind, KINDS[kind], 1, 0, shared)
    assert outcome.good, outcome
    assert outcome.faults
    assert outcome.expected
