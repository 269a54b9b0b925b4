"""What the page for people shows of running queries (`metrics.live_page`).

The figures are those of the metrics. Beside them it shows the last hour, the last batches, the
tables and the quarantine, which are read only when somebody looks, and every few seconds at most.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from jetspark.errors import JetsparkError
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.tables.formats import find_table

if TYPE_CHECKING:
    from jetspark.spark.queries.progress import QueryProgress
    from jetspark.spark.table_sink.ledger import TableLedger
    from jetspark.tables.table import Table

HISTORY_SECONDS: Final = 3600.0
_POINT_SECONDS: Final = 9.0
"""Least distance of two points of the history, which are added about every ten seconds."""
_TABLES_SECONDS: Final = 5.0
"""For how long what was read of tables is shown."""
_MAX_TABLES: Final = 20
_MAX_RECORDS: Final = 20_000
"""Records of a quarantine that are counted by reason."""
_LAST_RECORDS: Final = 5
_RECORD_COLUMNS: Final = ("stream", "seq", "subject", "timestamp", "column", "reason")
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d.,:TZ+-]*")


class Point(NamedTuple):
    """Figures of a query at one time."""

    at: float
    rows: int
    lag_seconds: float | None


@dataclass
class History:
    """A query's figures in the last hour."""

    points: deque[Point] = field(default_factory=deque)

    def add(self, rows: int, lag_seconds: float | None) -> None:
        """Add the present figures, unless there are some of a moment ago."""
        now = time.time()
        if self.points and 0 <= now - self.points[-1].at < _POINT_SECONDS:
            return
        self.points.append(Point(now, rows, lag_seconds))
        while self.points[0].at < now - HISTORY_SECONDS:
            self.points.popleft()

    def document(self) -> list[dict[str, Any]]:
        """The points for the page."""
        return [
            {"at": point.at, "rows": point.rows, "lag_seconds": point.lag_seconds}
            for point in list(self.points)
        ]


def batches_document(progress: QueryProgress, ledger: TableLedger | None) -> list[dict[str, Any]]:
    """The last batches, newest first: from Spark's reports, with the files of the ledger."""
    committed = {} if ledger is None else {batch.batch: batch for batch in ledger.recent}
    found = []
    for batch in list(progress.recent):
        counted = committed.get(batch.batch)
        found.append(
            {
                "batch": batch.batch,
                "at": batch.at,
                "rows": batch.rows if counted is None else counted.rows,
                "quarantined": batch.quarantined if counted is None else counted.quarantined,
                "seconds": batch.seconds,
                "files": None if counted is None else counted.files,
            }
        )
    return found[::-1]


class LiveTables:
    """The tables of one query and its quarantine, as they are in the storage."""

    def __init__(self, sink: LakehouseOptions | None = None) -> None:
        """`sink`: where the query writes; None: nothing is known of it."""
        self._sink = sink
        self._lock = threading.Lock()
        self._shown: dict[str, Any] = {"tables": [], "more_tables": 0, "quarantine": None}
        self._fresh_until = 0.0
        self._quarantine_version: object = None

    def document(self, ledger: TableLedger | None) -> dict[str, Any]:
        """`tables`, `more_tables` and `quarantine` for the page.

        Another request gets what was read last while this one reads.
        """
        if self._sink is None or not self._lock.acquire(blocking=False):
            return self._shown
        try:
            if time.monotonic() >= self._fresh_until:
                self._shown = self._read(self._sink, ledger)
                self._fresh_until = time.monotonic() + _TABLES_SECONDS
            return self._shown
        finally:
            self._lock.release()

    def _read(self, sink: LakehouseOptions, ledger: TableLedger | None) -> dict[str, Any]:
        quarantine = None if sink.dead_letter_sink is not None else sink.quarantine
        names = (
            [""] if sink.has_one_table else _names(sink, {} if ledger is None else ledger.tables)
        )
        shown = [_describe(sink.of_table(name)) for name in names[:_MAX_TABLES]]
        return {
            "tables": shown,
            "more_tables": len(names[_MAX_TABLES:]),
            "quarantine": None if quarantine is None else self._read_quarantine(sink, quarantine),
        }

    def _read_quarantine(self, sink: LakehouseOptions, name: str) -> dict[str, Any]:
        """The reasons and the last records; read again when the table has another version."""
        before = self._shown["quarantine"]
        options = sink.of_table(name)
        found: dict[str, Any] = {"name": str(options.name), "note": "", "reasons": [], "last": []}
        try:
            table = find_table(options.format, options.name)
            if table is None:
                return found | {"note": "Nothing was quarantined yet."}
            if before is not None and table.version == self._quarantine_version:
                return dict(before)
            records = [*islice(_records(table), _MAX_RECORDS)]
        except (JetsparkError, OSError, pa.ArrowException) as error:
            return found | {"note": str(error)}
        self._quarantine_version = table.version
        if len(records) == _MAX_RECORDS:
            found["note"] = f"Of {_MAX_RECORDS:,} of its records."
        reasons = Counter(_kind_of(record) for record in records)
        records.sort(key=lambda record: (record["timestamp"] or 0, record["seq"] or 0))
        found["reasons"] = reasons.most_common(10)
        found["last"] = [
            record | {"timestamp": None} for record in records[: -_LAST_RECORDS - 1 : -1]
        ]
        return found


def _names(sink: LakehouseOptions, batches: Mapping[str, int]) -> list[str]:
    """The names for `LakehouseOptions.of_table` of the tables of a list or a template, those with
    the latest batches first. `batches`: the last batch of each table, by the ledger's names."""
    prefix = f"{sink.name.catalog}:" if sink.name.catalog is not None else ""
    names = sorted(batches, key=lambda name: (-batches[name], name))
    routed = {str(table.options.name) for table in sink.tables}
    return [
        name if name in routed else name.removeprefix(prefix)
        for name in names
        if sink.quarantine is None or name.removeprefix(prefix) != sink.quarantine
    ]


def _records(table: Table) -> Iterator[dict[str, Any]]:
    """The records of a quarantine, without their payloads; times as microseconds."""
    columns = [name for name in _RECORD_COLUMNS if name in table.schema.names]
    for task in table.scan_tasks(columns, None, 1):
        for batch in task.batches():
            rows = batch.select(columns)
            if "timestamp" in columns:
                times = rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
                rows = rows.set_column(columns.index("timestamp"), "timestamp", times)
            for row in rows.to_pylist():
                yield dict.fromkeys(_RECORD_COLUMNS) | row


def _kind_of(record: dict[str, Any]) -> str:
    """A reason without the values in it, so that equal ones are counted together."""
    reason = _VALUES.sub("…", record["reason"] or "unknown")
    column = record["column"]
    return reason if column is None or reason.startswith(column) else f"{column}: {reason}"


def _describe(options: LakehouseOptions) -> dict[str, Any]:
    """One table's newest version; `problem` if it cannot be read."""
    described: dict[str, Any] = {"name": str(options.name), "problem": ""}
    try:
        table = find_table(options.format, options.name)
        if table is None:
            return described | {"problem": "not created yet"}
        facts = table.facts()
    except (JetsparkError, OSError) as error:
        return described | {"problem": str(error)}
    return described | {
        "committed": None if facts.committed is None else facts.committed.timestamp(),
        "version": facts.version,
        "rows": facts.rows,
        "files": facts.files,
        "bytes": facts.bytes,
    }
