"""A table of numbers: n, and whether it is odd."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from jetspark.tables.file_writer import write_files
from jetspark.tables.new_files import NewFile
from jetspark.tables.table import Table
from jetspark.tables.upserts import staging_layout

SCHEMA = pa.schema([("n", pa.int64()), ("kind", pa.string())])


def write(table: Table, rows: pa.Table, *, apart: bool = False) -> list[NewFile]:
    """Files with these rows, which nobody has committed; `apart`: for an upsert."""
    layout = table.layout(10**8, "zstd")
    layout = staging_layout(layout) if apart else layout
    return write_files(layout, table.storage, "part-00000", rows.to_batches())


def written(table: Table, start: int, end: int) -> list[NewFile]:
    """Files with these numbers, which nobody has committed."""
    kinds = [str(n % 2) for n in range(start, end)]
    return write(table, pa.table([list(range(start, end)), kinds], schema=SCHEMA))


def rows(table: Table) -> Counter[int]:
    """The numbers, as our own reader finds them."""
    pieces = table.scan_tasks(["n"], None, at_least=1)
    return Counter(
        row["n"] for piece in pieces for batch in piece.batches() for row in batch.to_pylist()
    )
