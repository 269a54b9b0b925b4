"""A place for a table, in each format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.table_readers import by_duckdb, by_polars, column

from jetspark.lakehouse.formats import Format, make_table, open_table
from jetspark.lakehouse.partitions import PartitionBy
from jetspark.lakehouse.table import Table, TableName

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    import polars
    import pyarrow as pa


class Place:
    """A folder in which a table of this format may be, and its readers."""

    def __init__(self, format_: Format, folder: Path) -> None:
        self.format, self.folder = format_, folder
        self.name = TableName(path=str(folder))

    def make(self, schema: pa.Schema, *partition_by: str) -> Table:
        return make_table(
            self.format, self.name, schema, [PartitionBy(one) for one in partition_by]
        )

    def open(self) -> Table:
        return open_table(self.format, self.name)

    def column(self, name: str) -> Counter[Any]:
        """Its values, which all readers agree on."""
        return column(self.format, self.folder, name)

    def duckdb(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query, in which `t` is the table."""
        return by_duckdb(self.format, self.folder, sql)

    def polars(self) -> polars.LazyFrame:
        return by_polars(self.format, self.folder)


@pytest.fixture(params=list(Format))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path / "table")  # Polars reads no Delta files below a space
