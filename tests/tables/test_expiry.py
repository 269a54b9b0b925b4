"""Rows that are too old leave a table, exactly, however its files are divided."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.table_readers import rows_of

from jetspark.errors import ConfigError
from jetspark.tables.batches import commit_files
from jetspark.tables.expiry import expire
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.table import Expiry, Table, TableName

pytestmark = pytest.mark.tables

NOW = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("nested", pa.list_(pa.struct([("a", pa.string())]))),
    ]
)
of_format = pytest.mark.parametrize("format_", list(Format))


def row(n: int, age: timedelta | None) -> dict[str, Any]:
    moment = None if age is None else NOW - age
    return {
        "seq": n,
        "timestamp": moment,
        "day": None if moment is None else moment.date(),
        "nested": [None, [], [{"a": None}], [{"a": "x"}, None]][n % 4],
    }


def make(
    folder: Path, format_: Format, *files: list[dict[str, Any]], by: tuple[str, ...] = ()
) -> Table:
    name = TableName(path=str(folder))
    table = open_or_create_table(format_, name, SCHEMA, tuple(map(PartitionBy.parse, by)))
    for rows in files:
        add(table, rows)
    return table


def add(table: Table, rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    layout = table.layout(1 << 20, "zstd")
    commit_files(table, write_files(layout, table.storage, "part-00000", [batch]))
    table.refresh()


def numbers(folder: Path, format_: Format) -> list[int]:
    return sorted(row["seq"] for row in rows_of(folder, format_))


@of_format
def test_a_row_is_removed_to_the_microsecond_and_its_file_s_others_stay(
    tmp_path: Path, format_: Format
) -> None:
    tick = timedelta(microseconds=1)
    table = make(
        tmp_path,
        format_,
        [row(0, timedelta(days=9)), row(1, timedelta(days=8))],
        [row(2, tick), row(3, timedelta()), row(4, -tick), row(5, None)],
        [row(6, -timedelta(days=1))],
    )
    before = {row["seq"]: row for row in rows_of(tmp_path, format_)}
    assert expire(table, "timestamp", NOW) == Expiry(rows=3, removed=2, rewritten=1)
    assert {row["seq"]: row for row in rows_of(tmp_path, format_)} == {
        n: before[n] for n in (3, 4, 5, 6)
    }
    version = open_table(format_, table.name).version
    assert expire(table, "timestamp", NOW) == Expiry(rows=0, removed=0, rewritten=0)
    assert open_table(format_, table.name).version == version


@of_format
def test_of_a_date_only_whole_days_are_too_old_and_their_partitions_go(
    tmp_path: Path, format_: Format
) -> None:
    files = [[row(n, timedelta(days=n)), row(10 + n, timedelta(days=n))] for n in range(5)]
    table = make(tmp_path, format_, *files, by=("day",))
    result = expire(table, "day", NOW - timedelta(days=2))
    assert (result.removed, result.rewritten) == (2, 0)
    assert result.rows in (4, None)
    assert numbers(tmp_path, format_) == [0, 1, 2, 10, 11, 12]


@of_format
def test_a_query_may_append_meanwhile(tmp_path: Path, format_: Format) -> None:
    table = make(tmp_path, format_, *([row(n, timedelta(days=n))] for n in range(20)))
    writer = open_table(format_, table.name)

    def append() -> None:
        for n in range(10):
            add(writer, [row(100 + n, -timedelta(days=1))])

    thread = threading.Thread(target=append)
    thread.start()
    for age in (15, 10, 5):
        expire(table, "timestamp", NOW - timedelta(days=age))
    thread.join()
    assert numbers(tmp_path, format_) == [*range(6), *range(100, 110)]


@of_format
def test_other_columns_are_refused(tmp_path: Path, format_: Format) -> None:
    table = make(tmp_path, format_, [row(0, timedelta(days=9))])
    with pytest.raises(ConfigError, match="as old as a timestamp or a date says"):
        expire(table, "seq", NOW)
    with pytest.raises(ConfigError, match="no column 'at'"):
        expire(table, "at", NOW)


def test_an_append_only_table_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path, Format.DELTA, [row(0, timedelta(days=9))])
    table.set_property("delta.appendOnly", "true")
    with pytest.raises(ConfigError, match="append-only"):
        expire(table, "timestamp", NOW)
    assert numbers(tmp_path, Format.DELTA) == [0]


@pytest.mark.full
@of_format
@settings(deadline=None, max_examples=15)
@given(
    ages=st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=12),
    cut=st.integers(-5, 5),
    column=st.sampled_from(["timestamp", "day"]),
    partitioned=st.booleans(),
)
def test_exactly_the_rows_that_are_too_old_are_gone(
    tmp_path_factory: pytest.TempPathFactory,
    format_: Format,
    *,
    ages: list[int | None],
    cut: int,
    column: str,
    partitioned: bool,
) -> None:
    folder = tmp_path_factory.mktemp("table")
    hours = [None if age is None else timedelta(hours=7 * age) for age in ages]
    rows = [row(n, age) for n, age in enumerate(hours)]
    table = make(
        folder,
        format_,
        rows[::2],
        *[rows[1::2]] * (len(rows) > 1),
        by=("day",) if partitioned else (),
    )
    before = NOW - timedelta(hours=7 * cut)
    limit: datetime | date = before if column == "timestamp" else before.date()
    expire(table, column, before)
    kept = [row["seq"] for row in rows if row[column] is None or row[column] >= limit]
    assert numbers(folder, format_) == kept
