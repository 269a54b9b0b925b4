"""A table of numbers: n, and whether it is odd."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from jetspark.lakehouse.new_files import FileWriter, NewFile
from jetspark.lakehouse.table import Table

SCHEMA = pa.schema([("n", pa.int64()), ("kind", pa.string())])


def written(table: Table, start: int, end: int) -> list[NewFile]:
    """Files with these numbers, which nobody has committed."""
    writer = FileWriter(table.layout(10**8, "zstd"), table.storage, "part-0")
    numbers = range(start, end)
    writer.write(pa.record_batch([list(numbers), [str(n % 2) for n in numbers]], schema=SCHEMA))
    return writer.close()


def rows(table: Table) -> Counter[int]:
    """The numbers, as our own reader finds them."""
    pieces = table.pieces(["n"], None, at_least=1)
    return Counter(
        row["n"] for piece in pieces for batch in piece.batches() for row in batch.to_pylist()
    )
