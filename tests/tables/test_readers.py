"""Every kind of table that is written, as DuckDB, Polars, deltalake and PyIceberg read it, and in
the pieces that Spark's tasks read."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyspark.sql.types import ArrayType, StructType
from tests.support.table_readers import by_duckdb, by_polars, newest_metadata
from tests.support.tasks import batch_writer

from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.tables.formats import Format, open_table
from jetspark.tables.table import TableName

if TYPE_CHECKING:
    from pathlib import Path

_HEADER = StructType().add("key", "string").add("value", "string")
ROWS = StructType()
for _name, _kind in (
    *(("stream", "string"), ("subject", "string"), ("seq", "long"), ("timestamp", "timestamp")),
    *(("data", "binary"), ("headers", ArrayType(_HEADER)), ("region", "string"), ("n", "integer")),
    *(("day", "date"), ("_corrupt_record", "string")),
):
    ROWS.add(_name, _kind)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
REGIONS = ("eu", "us", "a/b", "Größe", "50%")
READ = ("seq", "subject", "timestamp", "region", "n", "day")
READ_ASIDE = ("seq", "subject", "timestamp", "data", "column", "reason")


def messages(start: int, end: int) -> list[dict[str, Any]]:
    """Every seventh payload is no row."""
    return [
        {
            "stream": "S",
            "subject": f"s.{seq}",
            "seq": seq,
            "timestamp": START + timedelta(hours=seq, microseconds=1),
            "data": b"{" if seq % 7 == 0 else b"{}",
            "headers": [{"key": "a", "value": str(seq)}],
            "region": None if seq % 7 == 0 else REGIONS[seq % 5],
            "n": None if seq % 7 == 0 else seq % 10,
            "day": (START + timedelta(hours=seq)).date(),
            "_corrupt_record": "{" if seq % 7 == 0 else None,
        }
        for seq in range(start, end)
    ]


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    kinds = {
        "seq": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "data": pa.binary(),
        "headers": HEADERS,
        "n": pa.int32(),
        "day": pa.date32(),
    }
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in ROWS.names])
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def write(format_: Format, path: Path, *batches: list[dict[str, Any]], **options: str) -> None:
    """As the tasks and the driver of a query do it."""
    given = {"path": str(path), "quarantine": str(path.parent.parent / "aside")}
    given |= options | ({"sequenceBy": "seq"} if "keys" in options else {})
    parsed = parse_lakehouse_options(format_, given).for_batch()
    for rows in batches:
        writer = batch_writer(parsed, ROWS)
        writer.commit([writer.write(iter([batch(rows[:20]), batch(rows[20:])]))])


def read(format_: Format, table: Path, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The rows, which all readers agree on."""
    listed = ", ".join(f'"{name}"' for name in names)
    rows = by_duckdb(format_, table, f"SELECT {listed} FROM t ORDER BY seq")
    polars = by_polars(format_, table).select(names).sort("seq").collect()
    assert polars.rows() == rows
    if format_ is Format.DELTA:
        library = DeltaTable(table).to_pyarrow_table(columns=list(names))
    else:
        library = StaticTable.from_metadata(newest_metadata(table)).scan().to_arrow()
    assert _sorted(library, names) == rows
    pieces = open_table(format_, TableName(path=str(table))).scan_tasks(list(names), None, 3)
    ours = pa.Table.from_batches([one for piece in pieces for one in piece.batches()])
    assert _sorted(ours, names) == rows
    return rows


def _sorted(table: pa.Table, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    columns = table.select(names).sort_by("seq").to_pydict().values()
    return list(zip(*columns, strict=True))


def expected(rows: list[dict[str, Any]], options: dict[str, str]) -> list[tuple[Any, ...]]:
    if "keys" in options:
        rows = sorted({row["n"]: row for row in rows}.values(), key=lambda row: row["seq"])
    return [tuple(row[name] for name in READ) for row in rows]


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [{}, {"partitionBy": "region"}, {"partitionBy": "day,region"}, {"keys": "n"}],
    ids=["plain", "by column", "by day", "upserts"],
)
@pytest.mark.parametrize("format_", list(Format))
def test_readers_agree_on_a_table_and_on_what_was_put_aside(
    tmp_path: Path, format_: Format, options: dict[str, str]
) -> None:
    first, second = messages(1, 60), messages(60, 100)
    write(format_, tmp_path / "lake" / "t", first, second, **options)
    good = [row for row in (*first, *second) if row["n"] is not None]
    assert read(format_, tmp_path / "lake" / "t", READ) == expected(good, options)
    assert read(format_, tmp_path / "aside", READ_ASIDE) == [
        (seq, f"s.{seq}", START + timedelta(hours=seq, microseconds=1), b"{", None, reason)
        for seq, reason in (
            (seq, "The payload is not one JSON object: it ends too early.")
            for seq in range(7, 100, 7)
        )
    ]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"partitionBy": "day"}, {"keys": "n"}])
@pytest.mark.parametrize("format_", list(Format))
def test_readers_agree_on_each_of_many_tables(
    tmp_path: Path, format_: Format, options: dict[str, str]
) -> None:
    first, second = messages(1, 60), messages(60, 100)
    write(format_, tmp_path / "lake" / "{region}", first, second, **options)
    tables = {one.name for one in (tmp_path / "lake").iterdir()}
    assert tables == {"eu", "us", "a~2Fb", "Gr~C3~B6~C3~9Fe", "50~25"}
    for region, name in zip(
        REGIONS, ("eu", "us", "a~2Fb", "Gr~C3~B6~C3~9Fe", "50~25"), strict=True
    ):
        rows = [row for row in (*first, *second) if row["region"] == region]
        assert read(format_, tmp_path / "lake" / name, READ) == expected(rows, options)
    assert len(read(format_, tmp_path / "aside", READ_ASIDE)) == 14


@pytest.mark.parametrize("path", ["lake/t", "lake/{stream}"])
@pytest.mark.parametrize("format_", list(Format))
def test_readers_leave_out_the_files_of_other_days(
    tmp_path: Path, format_: Format, path: str
) -> None:
    write(format_, tmp_path / path, messages(1, 100), partitionBy="day")
    table = tmp_path / path.format(stream="S")
    days = 5
    assert len(list(table.glob("**/*.parquet"))) == days
    wanted = date(2026, 1, 3)
    seqs = [row["seq"] for row in messages(1, 100) if row["day"] == wanted and row["n"] is not None]
    condition = f"day = '{wanted}'"
    pieces = open_table(format_, TableName(path=str(table))).scan_tasks(["seq"], condition, days)
    assert len(pieces) == 1
    if format_ is Format.DELTA:
        dataset = DeltaTable(table).to_pyarrow_dataset(file_pruning_predicate=condition)
        assert len(dataset.files) == 1
        rows = dataset.to_table(columns=["seq"])
    else:
        scan = StaticTable.from_metadata(newest_metadata(table)).scan(condition)
        assert len(list(scan.plan_files())) == 1
        rows = scan.to_arrow()
    assert sorted(rows["seq"].to_pylist()) == seqs
    asked = f"SELECT seq FROM t WHERE {condition} ORDER BY seq"
    assert by_duckdb(format_, table, asked) == [(seq,) for seq in seqs]
    (plan,) = by_duckdb(format_, table, f"EXPLAIN ANALYZE {asked}")
    assert "Total Files Read: 1 " in plan[1]
    for file in table.glob("**/*.parquet"):
        if str(wanted) not in str(file):
            file.unlink()
    polars = by_polars(format_, table).select("seq", "day")
    of_day = polars.filter(pl.col("day") == wanted).sort("seq").collect()
    assert of_day["seq"].to_list() == seqs
    with pytest.raises(Exception, match=r"No such file|NotFound|not found"):
        polars.collect()
