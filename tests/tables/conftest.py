"""A place for a table, in each format."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.table_readers import by_duckdb, by_polars, column

from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.new_files import NewFile
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.table import Table, TableName
from jetspark.tables.upserts import staging_layout

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence
    from pathlib import Path

    import polars


def written(
    table: Table, *tasks: pa.RecordBatch | Sequence[dict[str, Any]], keyed: bool = False
) -> list[NewFile]:
    """The files of some tasks, of which each has these rows."""
    layout = table.layout(10**8, "zstd")
    batches = [
        rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(rows, table.schema)
        for rows in tasks
    ]
    sent = pickle.dumps((staging_layout(layout) if keyed else layout, table.storage))
    layout, storage = pickle.loads(sent)
    return [file for one in batches for file in write_files(layout, storage, "part-0", [one])]


class Place:
    """A folder in which a table of this format may be, and its readers."""

    def __init__(self, format_: Format, folder: Path) -> None:
        self.format, self.folder = format_, folder
        self.name = TableName(path=str(folder))

    def make(self, schema: pa.Schema, *partition_by: str) -> Table:
        return open_or_create_table(
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
