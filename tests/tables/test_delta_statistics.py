"""Statistics and partition values of Delta's log: true bounds, values as delta-rs has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.support.table_readers import by_duckdb, column

from jetspark.tables.batches import commit_files
from jetspark.tables.delta.statistics import statistics_json
from jetspark.tables.file_layout import partition_value
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_or_create_table
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.table import TableName

INSTANT = datetime(2026, 1, 1, tzinfo=UTC)
ZERO = datetime(1, 1, 1, tzinfo=UTC)
"""Go's zero time."""
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=80),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(
        max_value=datetime(9999, 12, 31), timezones=st.just(UTC)
    ),
    pa.decimal128(10, 2): st.decimals(-9999999, 9999999, places=2),
    pa.decimal128(22, 2): st.decimals(-(10**20) + 1, 10**20 - 1, places=2),
    pa.binary(): st.binary(max_size=5),
}


def of(values: Sequence[Any] | pa.Array, kind: pa.DataType, group: int = 3) -> dict[str, Any]:
    sink = pa.BufferOutputStream()
    column = pa.array(values, kind)
    pq.write_table(pa.table({"c": column}), sink, row_group_size=group)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    nan = pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py()
    found = json.loads(statistics_json(metadata, ["c"], {"c"} if nan else ()), parse_float=Decimal)
    assert isinstance(found, dict)
    return found


def read(text: Any, kind: pa.DataType) -> Any:
    """A bound as a reader takes it."""
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(text)
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    return float(text) if pa.types.is_floating(kind) else text


@given(st.data())
def test_bounds_are_true_for_every_row(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(VALUES)))
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=10))
    found = of(values, kind)
    assert found["numRecords"] == len(values)
    assert found["nullCount"].get("c", 0) in (0, values.count(None))
    for one in values:
        if one is None:
            continue
        if "c" in found.get("minValues", {}) and one == one:  # not NaN, which is above all numbers
            assert read(found["minValues"]["c"], kind) <= one
        if "c" in found.get("maxValues", {}):
            assert one <= read(found["maxValues"]["c"], kind)


@pytest.mark.parametrize(
    ("values", "kind", "low", "high"),
    [
        ([3, 1, None, 2], pa.int64(), 1, 3),
        (["b", "a"], pa.string(), "a", "b"),
        (["x" * 40], pa.string(), "x" * 32, "x" * 31 + "y"),
        ([date(2026, 1, 2)], pa.date32(), "2026-01-02", "2026-01-02"),
        (
            [INSTANT + timedelta(microseconds=1)],
            pa.timestamp("us", "UTC"),
            "2026-01-01T00:00:00.000Z",
            "2026-01-01T00:00:00.001Z",
        ),
        ([Decimal("1.25")], pa.decimal128(10, 2), Decimal("1.25"), Decimal("1.25")),
    ],
)
def test_bounds_in_the_protocol(values: list[Any], kind: pa.DataType, low: Any, high: Any) -> None:
    found = of(values, kind)
    assert found["minValues"] == {"c": low}
    assert found["maxValues"] == {"c": high}


def test_a_column_of_nulls_has_a_count_and_no_bounds() -> None:
    found = of([None, None], pa.int64())
    assert found["nullCount"] == {"c": 2}
    assert found["minValues"] == {}


def test_a_column_with_nan_has_no_upper_bound_since_nan_is_above_it() -> None:
    found = of([1.5, float("nan")], pa.float64())
    assert found["minValues"] == {"c": Decimal("1.5")}
    assert "maxValues" not in found
    assert of([1.5, 2.5], pa.float64())["maxValues"] == {"c": Decimal("2.5")}


def test_values_that_python_does_not_hold_have_no_bounds() -> None:
    far = pa.array([10_000_000, 5], pa.int32()).cast(pa.date32())
    assert "maxValues" not in of(far, pa.date32())


def test_the_end_of_time_is_a_bound() -> None:
    found = of([datetime.max.replace(tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert found["maxValues"] == {"c": "9999-12-31T23:59:59.999Z"}


def test_a_row_group_of_nulls_takes_no_bound_away() -> None:
    assert of([None, None, None, 7], pa.int64())["maxValues"] == {"c": 7}


def test_partition_values_are_those_that_the_library_writes(tmp_path: Path) -> None:
    row: dict[str, tuple[pa.DataType, Any]] = {
        "text": (pa.string(), "a b/c=ü"),
        "empty": (pa.string(), None),
        "day": (pa.date32(), date(2026, 1, 2)),
        "at": (pa.timestamp("us", "UTC"), INSTANT + timedelta(microseconds=123456)),
        "zero": (pa.timestamp("us", "UTC"), ZERO + timedelta(microseconds=1)),
        "yes": (pa.bool_(), True),
        "whole": (pa.int64(), -5),
        "amount": (pa.decimal128(10, 2), Decimal("1.20")),
    }
    columns = {name: pa.array([value], kind) for name, (kind, value) in row.items()}
    write_deltalake(tmp_path, pa.table({**columns, "x": [1]}), partition_by=list(row))
    log = (tmp_path / "_delta_log" / "00000000000000000000.json").read_text("utf-8")
    (added,) = [json.loads(line)["add"] for line in log.splitlines() if '"add"' in line]
    written = {name: added["partitionValues"].get(name) for name in row}
    assert {name: partition_value(value) for name, (_, value) in row.items()} == written
    assert DeltaTable(tmp_path).count() == 1


@pytest.mark.parametrize("partition_by", [(), ("moment",)])
def test_the_year_1_hides_no_other_row(tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    schema = pa.schema([("seq", pa.int64()), ("moment", pa.timestamp("us", "UTC"))])
    table = open_or_create_table(
        Format.DELTA,
        TableName(path=str(tmp_path / "t")),
        schema,
        list(map(PartitionBy, partition_by)),
    )
    rows = pa.record_batch([[1, 2, 3], [ZERO, INSTANT, INSTANT]], schema=schema)
    commit_files(table, write_files(table.layout(10**8, "zstd"), table.storage, "part-0", [rows]))
    where = "SELECT seq FROM t WHERE moment > '2000-01-01'"
    assert sorted(by_duckdb("delta", tmp_path / "t", where)) == [(2,), (3,)]
    old = [("moment", "<", datetime(2000, 1, 1, tzinfo=UTC))]
    assert DeltaTable(tmp_path / "t").to_pyarrow_table(filters=old)["seq"].to_pylist() == [1]
    assert column("delta", tmp_path / "t", "moment") == {ZERO: 1, INSTANT: 2}
