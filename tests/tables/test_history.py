"""Histories that a user's column orders, and what may be written to them."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from tests.tables.conftest import written

from jetspark.errors import ConfigError
from jetspark.spark.table_sink.data_sources import written_schemas
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.spark.table_sink.table_preparation import prepare
from jetspark.tables.batches import commit_batch
from jetspark.tables.history import History

if TYPE_CHECKING:
    from tests.tables.conftest import Place

WITHOUT_SEQ = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())])
SCHEMA = pa.schema([*WITHOUT_SEQ, pa.field("seq", pa.int64())])
HISTORY = History(("id",), "at", None, None, "at")


def row(seq: int, key: int, at: int, value: str) -> dict[str, Any]:
    return {"id": key, "at": datetime(2026, 1, 1, 0, 0, at, tzinfo=UTC), "v": value, "seq": seq}


def put(place: Place, batch: int, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
    table = place.open() if batch else place.make(HISTORY.table_schema(schema))
    made = [pa.RecordBatch.from_pylist([one], schema=schema) for one in rows]
    files = written(table, *made, keyed=True)
    random.Random(batch).shuffle(files)
    commit_batch(table, "q", batch, files, change=HISTORY)


def versions(place: Place) -> list[tuple[Any, ...]]:
    sql = "SELECT id, v, second(valid_from), second(valid_to) FROM t ORDER BY id, seq"
    return place.duckdb(sql)


def test_changes_with_one_place_in_the_order_have_that_of_the_stream(place: Place) -> None:
    put(place, 0, [row(1, 1, 10, "a"), row(2, 1, 10, "b"), row(3, 2, 10, "x"), row(4, 1, 10, "a")])
    put(place, 1, [row(5, 2, 10, "y"), row(6, 2, 11, "z"), row(7, 1, 10, "c")])
    wanted = [
        *((1, "a", 10, 10), (1, "b", 10, 10), (1, "a", 10, 10), (1, "c", 10, None)),
        *((2, "x", 10, 10), (2, "y", 10, 11), (2, "z", 11, None)),
    ]
    assert versions(place) == wanted
    put(place, 2, [row(7, 1, 10, "c"), row(3, 2, 10, "x")])  # the same messages again
    assert versions(place) == wanted


def test_without_the_messages_sequence_such_changes_are_refused(place: Place) -> None:
    put(place, 0, [row(1, 1, 10, "a"), row(2, 1, 10, "a")], WITHOUT_SEQ)  # a change, and a repeat
    with pytest.raises(ConfigError, match="Two different changes of id=1 have the same at"):
        put(place, 1, [row(3, 1, 10, "b")], WITHOUT_SEQ)
    put(place, 1, [row(3, 1, 11, "b")], WITHOUT_SEQ)
    assert place.duckdb("SELECT v FROM t ORDER BY v") == [("a",), ("b",)]


@pytest.mark.parametrize(
    "options",
    [{}, {"keys": "v", "sequenceBy": "at"}, {"keys": "id", "sequenceBy": "at"}],
    ids=["without keys", "other keys", "no history"],
)
def test_rows_of_another_kind_are_refused(place: Place, options: dict[str, str]) -> None:
    """A key would come twice, which only the next run with keys would notice."""
    put(place, 0, [row(1, 1, 10, "a")])
    schema = StructType().add("id", "long").add("at", "timestamp").add("v", "string")
    rows = schema.add("seq", "long")
    same = {"path": str(place.folder), "keys": "id", "sequenceBy": "at", "historyBy": "at"}

    def options_of(given: dict[str, str]) -> LakehouseOptions:
        return parse_lakehouse_options(place.format, given).for_batch()

    columns = written_schemas(options_of(same), rows)
    prepare(options_of(same), columns)
    given = {"path": str(place.folder), **options}
    with pytest.raises(ConfigError, match="are a history of id"):
        prepare(options_of(given), columns)
