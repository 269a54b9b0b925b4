"""Rows of tasks that are still running, reported to the program that waits for them.

Spark does not count the rows that a task writes itself. So the program names a folder to the tasks
of the queries that it starts (`task_writes`), and in it a file for each query has a number for each
record batch. The program stops collecting after the first batch, since then Spark's reports have
the figures. Executors on other machines find no folder, and report nothing.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_COUNT = struct.Struct("<q")
_folder: Path | None = None
"""The folder of this program, while it collects."""


@contextmanager
def collecting_in(folder: Path) -> Iterator[None]:
    """Collect the reports of queries in a new folder, in the block or until `stop_collecting`."""
    global _folder
    folder.mkdir()
    _folder = folder
    try:
        yield
    finally:
        stop_collecting()


def stop_collecting() -> None:
    """Remove the folder, so that tasks stop to report."""
    global _folder
    if _folder is not None:
        shutil.rmtree(_folder, ignore_errors=True)
    _folder = None


def report_folder() -> str | None:
    """The folder to name to tasks; None if nobody waits for their rows."""
    return None if _folder is None else str(_folder)


def rows_in_progress(query: str) -> int:
    """The rows of a query so far, also those of attempts that failed."""
    if _folder is None:
        return 0
    try:
        content = Path(_folder, query).read_bytes()
    except OSError:
        return 0
    complete = len(content) - len(content) % _COUNT.size
    return sum(count for (count,) in _COUNT.iter_unpack(content[:complete]))


@contextmanager
def reporting(folder: str | None, query: str | None) -> Iterator[Callable[[int], None]]:
    """A function by which a task reports so many more rows, if there is a folder."""
    file = None
    if folder is not None and query is not None:
        with suppress(OSError):
            file = os.open(Path(folder, query), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def report(rows: int) -> None:
        if file is not None:
            with suppress(OSError):
                os.write(file, _COUNT.pack(rows))  # one write, so that counts do not mix

    try:
        yield report
    finally:
        if file is not None:
            os.close(file)
