"""New fields become columns: which ones, of which types, and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tasks import Task

from jetspark.errors import ConfigError, SchemaEvolved
from jetspark.payloads.ddl import check_fields, with_types
from jetspark.payloads.field_names import FieldNames
from jetspark.payloads.unknown_fields import new_columns
from jetspark.ranges.arrow import SCHEMA
from jetspark.spark.table_sink import schema_evolution
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.spark.table_sink.schema_evolution import (
    UNKNOWN_FIELDS_COLUMN,
    SchemaChange,
    evolve_rows,
    evolve_tables,
    extend_ddl,
)
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.table import TableName


def needed(row: dict[str, Any]) -> str | None:
    """What a task says of the fields of a row."""
    return new_columns(json.dumps(row).encode(), (), FieldNames())


def added(*rows: dict[str, Any], taken: tuple[str, ...] = ()) -> dict[str, str]:
    """The columns that these need."""
    found = SchemaChange()
    found.add_fields(map(needed, rows), taken)
    return found.added


def test_a_field_has_the_type_that_takes_its_values() -> None:
    assert added({"a": 1}, {"a": 2.5, "b": True, "c": 2**70}) == {
        "a": "DOUBLE", "b": "BOOLEAN", "c": "STRING",
    }  # fmt: skip
    assert added({"a": {"x": 1}, "b": [1], "c": "2026-01-31"}) == dict.fromkeys("abc", "STRING")
    assert added({"a": 1}, {"a": "x"}, {"b": True}, {"b": 0}) == {"a": "STRING", "b": "STRING"}


def test_no_column_comes_of_nulls_and_of_names_that_are_there_or_that_readers_refuse() -> None:
    assert (
        added({"a": None, "X": 1, "b c": 1, "d.e": 1, "": 1, "_jetspark_x": 1}, taken=("x",)) == {}
    )
    assert added({"n": 1, "N": "x"}) == {"n": "BIGINT"}
    # Not those of the message.
    assert added({"SEQ": 1, "data": "x"}) == {"payload_SEQ": "BIGINT", "payload_data": "STRING"}


def test_a_table_gets_no_more_columns_than_readers_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_evolution, "MAX_COLUMNS", 3)
    found = added({"b": 1, "c": 1, "d": 1}, {"b": 2.5}, taken=("a",))
    assert found == {"b": "DOUBLE", "c": "BIGINT"}
    assert added({"b": 1}, taken=("x", "y", "z")) == {}


@given(st.permutations([1, 2.5, True, "x", 3]))
def test_the_order_of_tasks_does_not_matter(values: list[Any]) -> None:
    whole = SchemaChange()
    for value in values:
        one = SchemaChange()
        one.add_fields([needed({"a": value, "n": value if type(value) is not str else 1})], ())
        whole.merge(one)
    assert whole.added == {"a": "STRING", "n": "STRING"}


@pytest.mark.tables
def test_an_iceberg_table_is_widened_and_a_delta_table_says_that_it_cannot_be(
    tmp_path: Path,
) -> None:
    columns = pa.schema([("n", pa.int32()), ("x", pa.float32())])
    wider = [pa.field("n", pa.int64()), pa.field("x", pa.float64())]
    for format_ in Format:
        table = open_or_create_table(format_, TableName(path=str(tmp_path / format_)), columns, ())
        if format_ is Format.DELTA:
            with pytest.raises(ConfigError, match=r"wider types for n \(int64\), x \(double\)"):
                table.widen(wider)
            continue
        table.widen(wider)
        found = open_table(format_, table.name).schema
        assert [found.field(name).type for name in "nx"] == [pa.int64(), pa.float64()]


@pytest.mark.tables
def test_a_table_that_has_grown_says_so_and_one_that_another_writer_has_changed(
    tmp_path: Path,
) -> None:
    name = TableName(path=str(tmp_path / "t"))
    open_or_create_table(Format.ICEBERG, name, pa.schema([("n", pa.int32())]), ())
    need = {"": SchemaChange({"a": "BIGINT", "b": "STRING"}, {"n"})}
    tables = {"": LakehouseOptions(format=Format.ICEBERG, name=name)}
    with pytest.raises(
        SchemaEvolved, match=r"columns a, b were added to it and its columns n have"
    ):
        evolve_tables(tables, need)
    with pytest.raises(SchemaEvolved, match="its columns are those of another writer"):
        evolve_tables(tables, need)


@pytest.mark.tables
def test_what_a_history_has_for_itself_is_no_field_of_the_payloads(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
    options = LakehouseOptions(
        format=Format.DELTA, name=TableName(path=str(tmp_path / "t")), evolve=True,
        keys=("id",), sequence_by="seq", history_by="timestamp",
    )  # fmt: skip
    assert options.upsert is not None
    has = options.upsert.table_schema(pa.schema([*columns, pa.field("new", pa.string())]))
    open_or_create_table(Format.DELTA, options.name, has, ())
    ddl, derived = evolve_rows(options, "id BIGINT", "--json", {}, FieldNames())
    assert ddl == "id BIGINT, `new` string"
    assert [*derived] == [UNKNOWN_FIELDS_COLUMN]


def test_whole_numbers_that_are_too_large_for_a_small_column_widen_it() -> None:
    columns = pa.schema([("n", pa.int32()), ("m", pa.int64()), ("s", pa.string())])
    found = SchemaChange()
    texts = ['{"n": 1, "s": 2}', '{"n": "x"}', "[", None, '{"n": 9e9}']
    texts.append('{"m": 99999999999999999999}')
    found.add_larger_integers(texts, columns)
    assert not found
    found.add_larger_integers(['{"n": 3000000000}'], columns)
    assert found.widened == {"n"}


def test_the_schema_has_the_fields_that_were_given_and_those_of_the_table() -> None:
    table = pa.schema(
        [("seq", pa.int64()), ("n", pa.int64()), ("x", pa.float32()), ("new one", pa.bool_()),
         ("at", pa.timestamp("us", tz="UTC")), ("raw", pa.binary())]
    )  # fmt: skip
    found = extend_ddl(
        "n INT, x DOUBLE, tags ARRAY<STRUCT<a: INT, b: STRING>>",
        "--json",
        table,
        ["seq"],
        FieldNames(),
    )
    assert found == (
        "`n` bigint, x DOUBLE, tags ARRAY<STRUCT<a: INT, b: STRING>>, `new one` boolean, "
        "`at` timestamp, `raw` binary"
    )


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.sampled_from(["int", "string"])))
def test_fields_of_any_name_can_be_added_to_a_schema(kinds: dict[str, str]) -> None:
    found = with_types("STRUCT<`a``b`: INT, c: ARRAY<INT> COMMENT 'x, y'>", kinds)
    assert check_fields(found, "") == {"a`b": "int", "c": ""} | kinds


@pytest.mark.tables
@pytest.mark.parametrize("format_", list(Format))
def test_a_column_that_somebody_adds_meanwhile_is_one_of_the_rows(
    tmp_path: Path, format_: Format
) -> None:
    """Otherwise the values of its field would be lost until the query is started again."""
    given = {"path": str(tmp_path / "t"), "evolve": "true"}
    options = parse_lakehouse_options(format_, given).for_streaming()
    how = {"decode": "json", "schema": "a BIGINT"}
    task = Task(options, **how)
    open_table(format_, options.name).add_columns([pa.field("new", pa.bool_())])
    message = {"stream": "S", "subject": "s", "seq": 1, "timestamp": 0, "data": b'{"new": true}'}
    messages = pa.RecordBatch.from_pylist([message], SCHEMA)
    task.prepare()
    task.write(messages)
    with pytest.raises(SchemaEvolved, match="its columns are those of another writer"):
        evolve_tables({"": options}, task.files.schema_changes)
    restarted = Task(options, **how)
    restarted.write(messages)
    assert not restarted.files.schema_changes
    assert "new" in restarted.target.schema.names
