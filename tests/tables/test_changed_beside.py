"""Another program changes a table while a batch is written for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.tables.conftest import Place, written

from jetspark.errors import TableError
from jetspark.tables.batches import commit_files
from jetspark.tables.formats import Format
from jetspark.tables.history import FROM, TO, History
from jetspark.tables.upserts import Upsert

KEYED = pa.schema([("id", pa.int64()), ("n", pa.int64())])
BESIDE = pa.field("beside", pa.string())
TIME = pa.timestamp("us", "UTC")


def rows_of(place: Place) -> list[dict[str, Any]]:
    return place.polars().sort("id", "n").collect().to_dicts()


def test_rows_are_not_committed_under_the_partitions_of_another_program(tmp_path: Path) -> None:
    place = Place(Format.DELTA, tmp_path / "table")
    schema = pa.schema([("p", pa.string()), ("v", pa.string()), ("n", pa.int64())])
    table = place.make(schema, "p")
    files = written(table, [{"p": "a", "v": "x", "n": 1}])
    theirs = pa.table({"p": ["b"], "v": ["y"], "n": [2]}, schema=schema)
    write_deltalake(
        place.folder, theirs, mode="overwrite", partition_by=["v"],
        schema_mode="overwrite",
    )  # fmt: skip
    with pytest.raises(TableError, match="changed its partitions"):
        commit_files(table, files)
    assert DeltaTable(place.folder).to_pyarrow_table().to_pylist() == theirs.to_pylist()


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_are_not_committed_under_columns_of_another_type(tmp_path: Path, keyed: bool) -> None:
    place = Place(Format.DELTA, tmp_path / "table")
    table = place.make(KEYED)
    files = written(table, [{"id": 1, "n": 1}], keyed=keyed)
    theirs = pa.table({"id": [1], "n": ["text"]})
    write_deltalake(place.folder, theirs, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(TableError, match="changed the column n"):
        commit_files(place.open(), files, *([Upsert(("id",))] if keyed else []))
    assert place.duckdb("SELECT id, n FROM t") == [(1, "text")]


def test_a_keyed_table_that_gets_a_column_takes_the_rows_that_lack_it(place: Place) -> None:
    table = place.make(KEYED)
    commit_files(table, written(table, [{"id": 1, "n": 1}], keyed=True), Upsert(("id",)))
    files = written(place.open(), [{"id": 1, "n": 2}, {"id": 2, "n": 2}], keyed=True)
    place.open().add_columns([BESIDE])
    commit_files(place.open(), files, Upsert(("id",)))
    assert rows_of(place) == [{"id": 1, "n": 2, "beside": None}, {"id": 2, "n": 2, "beside": None}]


def test_a_history_keeps_what_others_wrote_into_its_rows(place: Place) -> None:
    history = History(("id",), "n", history_by="at")
    table = place.make(
        pa.schema([*KEYED, ("at", TIME), pa.field(FROM, TIME), pa.field(TO, TIME), BESIDE])
    )
    at = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]
    first = {"id": 1, "n": 1, "at": at[0], FROM: at[0], TO: None, "beside": "theirs"}
    commit_files(table, written(table, [first]))
    schema = pa.schema([one for one in table.schema if one.name != "beside"])
    batch = pa.RecordBatch.from_pylist([{"id": 1, "n": 2, "at": at[1]}], schema)
    files = written(place.open(), batch, keyed=True)
    commit_files(place.open(), files, history)
    assert [(row["n"], row[TO], row["beside"]) for row in rows_of(place)] == [
        (1, at[1], "theirs"),
        (2, None, None),
    ]
    files = written(place.open(), batch, keyed=True)
    place.open().add_columns([pa.field("later", pa.string())])
    commit_files(place.open(), files, history)
    assert [row["later"] for row in rows_of(place)] == [None, None]
