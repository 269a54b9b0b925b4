"""Readers of Delta and Iceberg tables, most of them not ours: DuckDB, Polars and PyIceberg."""

from __future__ import annotations

import importlib
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
from pyiceberg.table import StaticTable

from jetspark.tables.formats import Format, find_table
from jetspark.tables.table import TableName

os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")  # or Polars warns
_EXTENSIONS = {"delta": ("delta",), "iceberg": ("avro", "iceberg")}
_FUNCTION = {"delta": "delta_scan", "iceberg": "iceberg_scan"}


def duckdb_of(format_: str) -> duckdb.DuckDBPyConnection:
    """A connection that reads this format; its extensions are wheels, nothing is downloaded."""
    connection = duckdb.connect()
    for name in _EXTENSIONS[format_]:
        package = importlib.import_module(f"duckdb_extension_{name}")
        found = next(Path(str(package.__file__)).parent.rglob("*.duckdb_extension"))
        connection.execute(f"LOAD '{found}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


class _Connections(threading.local):
    """One a thread and format: loading the extensions takes longer than most queries."""

    def __init__(self) -> None:
        self.of: dict[str, duckdb.DuckDBPyConnection] = {}


_connections = _Connections()


def in_duckdb(format_: str, table: Path, sql: str) -> duckdb.DuckDBPyConnection:
    """A query, in which `t` is the table, with its result."""
    if format_ not in _connections.of:
        _connections.of[format_] = duckdb_of(format_)
    scan = f"{_FUNCTION[format_]}('{table}')"
    return _connections.of[format_].execute(sql.replace("FROM t", f"FROM {scan}"))


def by_duckdb(format_: str, table: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query, in which `t` is the table."""
    return in_duckdb(format_, table, sql).fetchall()


def by_polars(format_: str, table: Path) -> polars.LazyFrame:
    """The table."""
    if format_ == "delta":
        return polars.scan_delta(str(table))
    return polars.scan_iceberg(newest_metadata(table))


def newest_metadata(table: Path) -> str:
    """The metadata of an Iceberg table in a folder, as its hint says."""
    version = (table / "metadata" / "version-hint.text").read_text("utf-8")
    return str(table / "metadata" / f"v{version}.metadata.json")


def by_us(format_: Format, table: Path) -> list[dict[str, Any]]:
    """The rows; none where there is no table."""
    found = find_table(format_, TableName(path=str(table)))
    pieces = [] if found is None else found.scan_tasks(found.schema.names, None, 1)
    return [row for one in pieces for batch in one.batches() for row in batch.to_pylist()]


def rows_of(folder: Path, format_: Format) -> list[dict[str, Any]]:
    """The rows of a table by their sequences, in values that can be compared: dates and times as
    numbers, since they may be outside of Python's years, and numbers with a point as texts, since
    NaN is not NaN."""
    table = find_table(format_, TableName(path=str(folder)))
    assert table is not None
    found = [
        row
        for piece in table.scan_tasks(table.schema.names, None, 1)
        for batch in piece.batches()
        for row in _comparable(batch).to_pylist()
    ]
    return sorted(found, key=lambda row: row["seq"])


def _comparable(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [one.cast(_type(one.type)) for one in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_temporal(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_type(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_type(kind.item_type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_type(kind.value_type)))
    return kind


def column(format_: str, table: Path, name: str) -> Counter[Any]:
    """The values of a column, which DuckDB, Polars and, of Iceberg, PyIceberg agree on."""
    first = Counter(one for (one,) in by_duckdb(format_, table, f"SELECT {name} FROM t"))
    assert Counter(by_polars(format_, table).select(name).collect()[name].to_list()) == first
    if format_ == "iceberg":
        found = StaticTable.from_metadata(newest_metadata(table)).scan(selected_fields=(name,))
        assert Counter(found.to_arrow()[name].to_pylist()) == first
    return first
