"""A program ends although DuckDB still reads the rows in threads of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import duckdb, pyarrow as pa
from jetspark.rows import Rows

class Plan:
    schema = pa.schema([("a", pa.int64())])
    def batches(self):
        while True:
            yield pa.record_batch({"a": list(range(30_000))})

rows = Rows(None)
rows._plan = Plan()
print(duckdb.sql("SELECT a FROM rows LIMIT 3").fetchall())
"""


@pytest.mark.full
def test_a_program_ends_after_a_limit_over_rows() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[(0,), (1,), (2,)]\n"), done.stderr
