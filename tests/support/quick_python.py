"""Python's processes of any Spark on this machine, forked from one that has imported everything."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jetspark.spark.fast_start.workers import start_fork_server


@contextmanager
def quick_python() -> Iterator[str]:
    """The value of PYSPARK_PYTHON for the block. `local_session` does the same for its own Spark;
    others start a Python for each step of a query, a second of processor time each."""
    with tempfile.TemporaryDirectory() as folder:
        server = start_fork_server(Path(folder, "p"), "local", {})
        if server is None:
            yield sys.executable
            return
        try:
            yield str(server.folder / "python")
        finally:
            server.stop()
