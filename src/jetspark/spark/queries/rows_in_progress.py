"""Rows that a running batch has read so far.

Spark does not count the rows that a task writes itself. So the program names a folder to the tasks
of its queries, and each task appends its counts to the query's file there. The program stops
collecting after the first batch, since then Spark's reports have the figures. Executors on other
machines find no folder, and report nothing.

Without such reports `RowsInProgress` takes the figures of Spark's user interface, which executors
send with their heartbeats, every ten seconds by default. The bytes beside them are no use: with
several partitions Spark adds up running totals.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_OUTPUT_ROWS_METRIC = "number of output rows"
_SCAN_NODES = "MicroBatchScan", "BatchScan"
_COUNT = struct.Struct("<q")
_folder: Path | None = None
"""The folder to which the tasks of this program report, while it collects."""


@contextmanager
def collecting_in(folder: Path) -> Iterator[None]:
    """Have the tasks of this program's queries count their rows in files of a new folder, during
    the block or until `stop_collecting`."""
    global _folder
    folder.mkdir()
    _folder = folder
    try:
        yield
    finally:
        stop_collecting()


def stop_collecting() -> None:
    """Remove the folder in which tasks count their rows, so that they stop counting."""
    global _folder
    folder, _folder = _folder, None
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def report_folder() -> str | None:
    """The folder in which tasks shall count their rows; None if nobody wants the counts."""
    return None if _folder is None else str(_folder)


def read_reported_rows(query: str) -> int:
    """How many rows the tasks of a query, by its id, have counted so far; 0 if nobody collects.

    Rows of attempts that failed count, too.
    """
    if _folder is None:
        return 0
    try:
        content = Path(_folder, query).read_bytes()
    except OSError:
        return 0
    # A task may be writing its count just now.
    complete = len(content) - len(content) % _COUNT.size
    return sum(count for (count,) in _COUNT.iter_unpack(content[:complete]))


@contextmanager
def reporting(folder: str | None, query: str | None) -> Iterator[Callable[[int], None]]:
    """Yield a function with which a task reports that it has read so many more rows.

    `folder`: from `report_folder`; None, or a folder that cannot be written: the function does
    nothing. `query`: the query's id.
    """
    file = None
    if folder is not None and query is not None:
        with suppress(OSError):
            file = os.open(Path(folder, query), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def report(rows: int) -> None:
        """Append so many rows to the query's file; a count that cannot be written is left out."""
        if file is not None:
            with suppress(OSError):
                os.write(file, _COUNT.pack(rows))  # one write, so that counts do not mix

    try:
        yield report
    finally:
        if file is not None:
            os.close(file)


class RowsInProgress:
    """Counts the rows that a running batch has read so far: for a query, in its first batch;
    without a query, in everything that a session has run, also from files.

    Not for Spark Connect.
    """

    def __init__(self, query: StreamingQuery | None, session: Any = None) -> None:
        """Prepare to count the rows that a query's running batch has read, or without a query all
        that a session has read.

        `session`: the JVM's session; only needed without a query.
        """
        if query is not None:
            session = query._jsq.sparkSession()
        self._store: Any = session.sharedState().statusStore()
        self._query = "" if query is None else str(query.id)
        # Spark names the run in the description of each execution; "" is in every one.
        self._run = "" if query is None else f"runId = {query.runId}"
        self._node_names = (*_SCAN_NODES, "Scan ") if query is None else _SCAN_NODES
        self._scans: dict[int, list[int]] = {}
        """The accumulators of scanned rows, by execution; a batch has several executions."""

    def count(self) -> int:
        """How many rows were read so far, by the tasks' reports or else Spark's user interface."""
        from py4j.protocol import Py4JJavaError  # not for tasks, which only report

        if rows := read_reported_rows(self._query):
            return rows
        with suppress(Py4JJavaError):  # for an execution that Spark has just dropped from its list
            for execution in iterate_scala(self._store.executionsList()):
                if self._run in execution.description():
                    rows += self._count_scanned(execution.executionId())
        return rows

    def _count_scanned(self, execution: int) -> int:
        """The rows that one execution, by its id, has read, as Spark's user interface shows them.

        The nodes of its plan that read are looked up once, and remembered.
        """
        if execution not in self._scans:
            self._scans[execution] = [
                metric.accumulatorId()
                for node in iterate_scala(self._store.planGraph(execution).allNodes())
                if node.name().startswith(self._node_names)
                for metric in iterate_scala(node.metrics())
                if metric.name() == _OUTPUT_ROWS_METRIC
            ]
        metrics = self._store.executionMetrics(execution)
        values = map(metrics.get, self._scans[execution])
        return sum(int(value.get().replace(",", "")) for value in values if value.isDefined())


def iterate_scala(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala Seq in the JVM."""
    return map(sequence.apply, range(sequence.size()))
