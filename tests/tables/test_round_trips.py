"""Rows that are rewritten stay the same rows, and files with edge values hide no row."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.expressions as ex
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable
from tests.chaos.table_origins import with_position_deletes
from tests.support.table_readers import newest_metadata
from tests.tables.conftest import Place, written

from jetspark.errors import ConfigError
from jetspark.tables.batches import commit_files
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format
from jetspark.tables.iceberg.table import OpenIceberg
from jetspark.tables.table import Table, TableName
from jetspark.tables.upserts import Upsert

EQUAL: Any = ex.EqualTo
PAIR = pa.struct([("key", pa.string()), ("value", pa.string())])
NESTED = {
    "headers": pa.list_(PAIR),
    "by_name": pa.map_(pa.string(), PAIR),
    "in_struct": pa.struct([("list", pa.list_(pa.int64())), ("headers", pa.list_(PAIR))]),
    "lists": pa.list_(pa.list_(PAIR)),
}
SCHEMA = pa.schema([("id", pa.int64()), *NESTED.items()])
ROWS: list[dict[str, Any]] = [
    {"id": 1, "headers": None, "by_name": None, "in_struct": None, "lists": None},
    {
        "id": 2,
        "headers": [],
        "by_name": [],
        "in_struct": {"list": None, "headers": None},
        "lists": [],
    },
    {
        "id": 3,
        "headers": [None, {"key": None, "value": "v"}],
        "by_name": [("a", None), ("b", {"key": "k", "value": None})],
        "in_struct": {"list": [], "headers": [None]},
        "lists": [None, [], [None]],
    },
]


def write(table: Table, rows: Sequence[dict[str, Any]], *, keys: tuple[str, ...] = ()) -> None:
    files = written(table, rows, keyed=bool(keys))
    commit_files(table, files, *([Upsert(keys)] if keys else []))


def rows_of(place: Place) -> dict[int, Any]:
    """The rows as Polars has them."""
    return {row["id"]: row for row in place.polars().collect().to_dicts()}


def never_rewritten(place: Place) -> dict[int, Any]:
    """The same rows, in a table beside it."""
    other = Place(place.format, place.folder.parent / "other")
    write(other.make(SCHEMA), ROWS)
    return rows_of(other)


@pytest.mark.parametrize("change", ["compact", "merge"])
def test_null_and_empty_stay_apart_when_rows_are_rewritten(place: Place, change: str) -> None:
    table = place.make(SCHEMA)
    for row in ROWS:
        write(table, [row, row | {"id": row["id"] + 10}])
    if change == "compact":
        place.open().compact(10**8)
    else:  # rewrites the other row of each file
        write(place.open(), [{"id": id_} for id_ in (11, 12, 13)], keys=("id",))
    found = rows_of(place)
    assert {id_: found[id_] for id_ in (1, 2, 3)} == never_rewritten(place)
    assert place.duckdb("SELECT id FROM t WHERE headers IS NULL AND id < 10") == [(1,)]
    (piece,) = place.open().scan_tasks(["id", "headers"], None, 1)
    ours = pa.Table.from_batches(list(piece.batches())).to_pylist()
    assert {row["id"]: row["headers"] for row in ours if row["id"] < 10} == {
        row["id"]: row["headers"] for row in ROWS
    }


LAST = "\U0010ffff"
NINES = f"{'9' * 20}.{'9' * 18}"
END = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
EDGES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "small decimals": (pa.decimal128(20, 8), [Decimal(one) for one in ("0E-8", "1E-8", "-2E-8")]),
    "long decimals": (pa.decimal128(38, 18), [Decimal(NINES), Decimal("-1E-18")]),
    "the last character": (pa.string(), ["x" * 32 + LAST * 3, LAST * 40, "b"]),
    "before the surrogates": (pa.string(), ["x" * 15 + "\ud7ff, more", "\ud7ff" * 40, "a"]),
    "long texts": (pa.string(), ["y" * 5000, "z" * 70_000, "b"]),
    "floats": (pa.float64(), [math.inf, -math.inf, 0.1, -1e308]),
    "floats with NaN": (pa.float64(), [math.nan, 0.1, math.inf]),
    "times": (pa.timestamp("us", "UTC"), [END, datetime(1, 1, 1, tzinfo=UTC)]),
}


def found_by(place: Place, kind: pa.DataType, value: Any) -> dict[str, int]:
    """How many rows each reader's filter finds."""
    is_value = pl.col("c") == pl.lit(pl.from_arrow(pa.array([value], kind))).first()
    found = {"polars": place.polars().filter(is_value).collect().height}
    if isinstance(value, str):
        found["duckdb"] = len(place.duckdb(f"SELECT id FROM t WHERE c = '{value}'"))
    if isinstance(value, Decimal):
        decimal = f"DECIMAL({kind.precision},{kind.scale})"
        sql = f"SELECT id FROM t WHERE c = CAST('{value:f}' AS {decimal})"
        found["duckdb"] = len(place.duckdb(sql))
    if place.format is Format.DELTA:
        dataset = DeltaTable(place.folder).to_pyarrow_dataset()
        found["deltalake"] = dataset.to_table(
            filter=pc.field("c") == pa.scalar(value, kind)
        ).num_rows
        if isinstance(value, Decimal):
            rows = QueryBuilder().register("t", DeltaTable(place.folder)).execute(sql)
            found["datafusion"] = pa.table(rows.read_all()).num_rows
    else:
        scan = StaticTable.from_metadata(newest_metadata(place.folder))
        wanted = value.isoformat() if isinstance(value, datetime) else value
        is_equal = EQUAL(ex.Reference("c"), wanted)
        found["pyiceberg"] = scan.scan(row_filter=is_equal).to_arrow().num_rows
    return found


@pytest.mark.full
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("edge", EDGES)
def test_filters_find_values_at_the_edges(place: Place, edge: str, compacted: bool) -> None:
    kind, values = EDGES[edge]
    table = place.make(pa.schema([("id", pa.int64()), ("c", kind)]))
    rows = [{"id": at, "c": value} for at, value in enumerate(values)]
    write(table, rows)
    write(table, [{"id": 100, "c": None}, {"id": 101, "c": values[-1]}])
    if compacted and edge != "long texts":
        place.open().compact(10**8)
    for at, value in enumerate(values):
        if value == value:
            wanted = 1 + (at == len(values) - 1)
            assert set(found_by(place, kind, value).values()) == {wanted}, value


def test_row_groups_without_bounds_in_the_footer_keep_their_rows(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetspark.tables.file_writer.MAX_ROW_GROUP_ROWS", 1)
    table = place.make(pa.schema([("id", pa.int64()), ("c", pa.string())]))
    texts = ["a", "z" * 5000, "b"]
    batches = [
        pa.RecordBatch.from_pylist([{"id": at, "c": text}], table.schema)
        for at, text in enumerate(texts)
    ]
    layout = table.layout(10**8, "zstd")
    commit_files(table, write_files(layout, table.storage, "part-0", batches))
    for text in texts:
        assert set(found_by(place, pa.string(), text).values()) == {1}


def test_nulls_of_a_column_that_was_added_later_are_found(tmp_path: Path) -> None:
    place = Place(Format.DELTA, tmp_path / "table")
    table = place.make(pa.schema([("id", pa.int64())]))
    write(table, [{"id": 1}])
    table.add_columns([pa.field("c", pa.int64())])
    write(place.open(), [{"id": 2, "c": 5}])
    dataset = DeltaTable(place.folder).to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("c").is_null())["id"].to_pylist() == [1]
    assert dataset.to_table(filter=pc.field("c") == 5)["id"].to_pylist() == [2]


def test_a_table_that_got_a_time_without_a_zone_is_still_compacted(tmp_path: Path) -> None:
    place = Place(Format.DELTA, tmp_path / "table")
    table = place.make(pa.schema([("id", pa.int64())]))
    write(table, [{"id": 1}])
    table.add_columns([pa.field("c", pa.timestamp("us"))])
    write(place.open(), [{"id": 2, "c": datetime(2026, 1, 1)}])
    assert place.open().compact(10**8).removed == 2


def test_a_type_that_makes_tables_unreadable_is_refused_at_once(tmp_path: Path) -> None:
    place = Place(Format.DELTA, tmp_path / "table")
    with pytest.raises(ConfigError, match="TIMESTAMP_NTZ"):
        place.make(pa.schema([("m", pa.map_(pa.string(), pa.timestamp("us")))]))
    assert not place.folder.exists()


def test_rows_that_position_deletes_name_are_not_read(tmp_path: Path) -> None:
    with_position_deletes(random.Random(1), tmp_path)
    newest = max((tmp_path / "metadata").glob("*.metadata.json"), key=lambda one: one.name)
    table = StaticTable.from_metadata(str(newest))
    pieces = OpenIceberg(TableName(path=str(tmp_path)), table).scan_tasks(["n"], None, 3)
    ours = [one for piece in pieces for batch in piece.batches() for one in batch["n"].to_pylist()]
    theirs = table.scan(selected_fields=("n",)).to_arrow()["n"].to_pylist()
    assert sorted(ours) == sorted(theirs)
    assert len(ours) == 27
