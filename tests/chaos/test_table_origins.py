"""The campaign "table_origins" in small."""

from __future__ import annotations

import pytest
from tests.chaos.table_origins import ORIGINS, Figures, run_one

pytestmark = pytest.mark.tables


@pytest.mark.parametrize("origin", ORIGINS)
def test_maintenance_of_a_table_of_others_leaves_its_rows_and_what_else_is_there(
    origin: str,
) -> None:
    figures = Figures()
    run_one(f"1-{origin}", figures, origin, ["info", "dry", "compact", "vacuum", "info", "vacuum"])
    assert figures.wrong == []
    assert figures.done.total() + figures.refused.total() == 6
    if origin not in ("with_files_of_another", "with_mapped_columns", "by_duckdb_in_delta"):
        assert figures.removed, (figures.done, figures.refused)
