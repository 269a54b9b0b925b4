"""Generated columns of Delta tables: filled in, checked, or refused before anything is written."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType, Schema
from pyspark.sql.types import DateType, IntegerType, LongType, StringType, StructType, TimestampType
from tests.support.table_readers import by_duckdb

from jetspark.errors import ConfigError
from jetspark.spark.table_sink.data_sources import written_schemas
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.table_preparation import check_columns, check_fit
from jetspark.tables.batches import commit_files, overwrite
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_table
from jetspark.tables.generated import Generated
from jetspark.tables.new_files import NewFile
from jetspark.tables.table import Table, TableName

START = datetime(1969, 12, 31, 22, 59, 59, 999999, tzinfo=UTC)
GIVEN = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("on", pa.date32()),
    ]
)


def row(n: int) -> dict[str, Any]:
    at = START + timedelta(hours=n * 7)
    return {"id": n - 5, "small": n, "name": "éabc"[: n % 5], "at": at, "on": at.date()}


ROWS = pa.RecordBatch.from_pylist([*map(row, range(20)), dict.fromkeys(GIVEN.names)], schema=GIVEN)


@pytest.mark.parametrize(
    ("expression", "kind", "wanted"),
    [
        ("CAST(at AS DATE)", pa.date32(), lambda r: r["at"].date()),
        ("cast( `at` as date )", pa.date32(), lambda r: r["at"].date()),
        ("YEAR(at)", pa.int32(), lambda r: r["at"].year),
        ("month(ON)", pa.int32(), lambda r: r["on"].month),
        ("DAY(at)", pa.int32(), lambda r: r["at"].day),
        ("HOUR(at)", pa.int32(), lambda r: r["at"].hour),
        ("YEAR(at) * 100 + MONTH(at)", pa.int32(), lambda r: r["at"].year * 100 + r["at"].month),
        (
            "DATE_TRUNC('HOUR', at)",
            pa.timestamp("us", "UTC"),
            lambda r: r["at"].replace(minute=0, second=0, microsecond=0),
        ),
        ("TRUNC(on, 'month')", pa.date32(), lambda r: r["on"].replace(day=1)),
        ("DATE_FORMAT(at, 'yyyy-MM-dd')", pa.string(), lambda r: f"{r['at']:%Y-%m-%d}"),
        ('date_format(at, "yyyyMMdd HH:mm")', pa.string(), lambda r: f"{r['at']:%Y%m%d %H:%M}"),
        ("SUBSTRING(name, 1, 2)", pa.string(), lambda r: r["name"][:2]),
        ("left(name, 1)", pa.string(), lambda r: r["name"][:1]),
        ("id", pa.int64(), lambda r: r["id"]),
        ("(id + 1) * 2 - small", pa.int64(), lambda r: (r["id"] + 1) * 2 - r["small"]),
        ("id % 3", pa.int64(), lambda r: abs(r["id"]) % 3 * (1 if r["id"] > 0 else -1)),
        ("CAST(id AS STRING)", pa.string(), lambda r: str(r["id"])),
        ("CAST(small AS BIGINT)", pa.int64(), lambda r: r["small"]),
    ],
)
def test_columns_are_made_as_in_spark(expression: str, kind: pa.DataType, wanted: Any) -> None:
    made = Generated.parse(pa.field("made", kind), expression, "t", GIVEN)
    found = pickle.loads(pickle.dumps(made)).of(ROWS)
    assert found.type == kind
    assert found.to_pylist() == [*(wanted(one) for one in map(row, range(20))), None]


@pytest.mark.parametrize(
    "expression",
    [
        "", "1", "'x'", "nobody", "UPPER(name)", "CAST(name AS DATE)", "CAST(at AS STRING)",
        "DATE_FORMAT(at, 'EEE')", "DATE_FORMAT(at, \"yyyy'T'\")", "DATE_FORMAT(at, '-')",
        "DATE_TRUNC('fortnight', at)", "HOUR(on)", "YEAR(name)", "SUBSTRING(name, -1, 2)",
        "id / 2", "id % 0", "id +", "(id", "id)", "id id", "YEAR(at", "YEAR()", "YEAR(at, at)",
        "name + 1", "CAST(at AS)", "CASE WHEN id > 1 THEN 1 END", "id; DROP", "at.x", "-id", "1.5",
        "(" * 50_000 + "id",
    ],
)  # fmt: skip
def test_an_expression_that_is_not_known_is_refused(expression: str) -> None:
    for kind in (pa.int64(), pa.string(), pa.date32(), pa.timestamp("us", "UTC")):
        with pytest.raises(ConfigError, match=r"t has the generated column made = .* not one of"):
            Generated.parse(pa.field("made", kind), expression, "t", GIVEN)


def test_a_value_that_has_no_result_is_reported() -> None:
    made = Generated.parse(pa.field("made", pa.int32()), "small * 2", "t", GIVEN)
    with pytest.raises(ConfigError, match="small \\* 2: "):
        made.of(pa.record_batch([pa.array([2**31 - 1], pa.int32())], ["small"]))
    made = Generated.parse(pa.field("made", pa.int32()), "YEAR(at)", "t", GIVEN)
    far = pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC"))
    with pytest.raises(ConfigError, match="outside the years 1 to 9999"):
        made.of(pa.record_batch([far], ["at"]))


COLUMNS = {
    "id": "long", "name": "string", "at": "timestamp", "day": "date", "hour": "integer",
    "start": "string",
}  # fmt: skip
MADE = {"day": "CAST(at AS DATE)", "hour": "HOUR(at)", "start": "SUBSTRING(name, 1, 1)"}


def table_of_others(folder: Path, made: dict[str, str]) -> Table:
    fields = [
        Field(
            name,
            PrimitiveType(kind),
            metadata={"delta.generationExpression": made[name]} if name in made else {},
        )
        for name, kind in COLUMNS.items()
    ]
    DeltaTable.create(str(folder), Schema(fields), partition_by=["day"])
    return open_table(Format.DELTA, TableName(path=str(folder)))


def written(table: Table, rows: list[dict[str, Any]]) -> list[NewFile]:
    names = list(rows[0])
    kinds = {**{one.name: one.type for one in GIVEN}, "day": pa.date32(), "hour": pa.int32()}
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([(name, kinds[name]) for name in names]))
    layout = pickle.loads(pickle.dumps(table.layout(10**8, "zstd")))
    return write_files(layout, table.storage, "part-0", [batch])


def picked(n: int, **more: Any) -> dict[str, Any]:
    return {"id": n, "name": f"n{n}", "at": START + timedelta(hours=n)} | more


def check(folder: Path, numbers: list[int]) -> None:
    found = by_duckdb("delta", folder, 'SELECT id, name, "at", day, hour, start FROM t ORDER BY id')
    assert [one[0] for one in found] == sorted(numbers)
    for _, name, at, day, hour, start in found:
        assert (day, hour, start) == (at.date(), at.hour, name[0])


def test_a_table_with_generated_columns_is_written(tmp_path: Path) -> None:
    table = table_of_others(tmp_path / "t", MADE)
    for start in (0, 15):
        commit_files(table, written(table, [picked(n) for n in range(start, start + 30)]))
        table.refresh()
    check(tmp_path / "t", [*range(30), *range(15, 45)])
    assert table.compact(10**8).removed
    check(tmp_path / "t", [*range(30), *range(15, 45)])
    commit_files(table, written(table, [picked(7)]), overwrite)
    check(tmp_path / "t", [7])


def test_a_value_that_is_given_is_checked(tmp_path: Path) -> None:
    table = table_of_others(tmp_path / "t", MADE)
    right = [picked(n, hour=(START + timedelta(hours=n)).hour) for n in range(3)]
    commit_files(table, written(table, right))
    for wrong in (99, None):
        with pytest.raises(ConfigError, match=f"column hour .* must be 23, not {wrong}"):
            written(table, [right[0], picked(1, hour=wrong)])


def test_an_unknown_expression_is_refused_before_a_row_is_read(tmp_path: Path) -> None:
    table_of_others(tmp_path / "t", MADE | {"start": "UPPER(name)"})
    rows = StructType().add("id", LongType()).add("name", StringType()).add("at", TimestampType())
    options = parse_lakehouse_options(Format.DELTA, {"path": str(tmp_path / "t")})
    with pytest.raises(ConfigError, match=r"generated column start = .UPPER\(name\)"):
        check_columns(options, rows.names)
    with pytest.raises(ConfigError, match=r"generated column start = .UPPER\(name\)"):
        open_table(Format.DELTA, options.name).layout(1, "zstd")


def test_rows_need_not_have_what_is_made_of_them(tmp_path: Path) -> None:
    table_of_others(tmp_path / "t", MADE)
    rows = StructType().add("id", LongType()).add("name", StringType()).add("at", TimestampType())
    options = parse_lakehouse_options(Format.DELTA, {"path": str(tmp_path / "t")})
    check_columns(options, rows.names)
    check_fit(options, written_schemas(options, rows))
    more = rows.add("day", DateType()).add("hour", IntegerType())
    check_fit(options, written_schemas(options, more))
    with pytest.raises(ConfigError, match="The rows have no column at, as"):
        check_columns(options, ["id", "name"])
    merging = parse_lakehouse_options(Format.DELTA, {"path": str(tmp_path / "t"), "keys": "id"})
    with pytest.raises(ConfigError, match=r"generated columns \(day, .*does not merge"):
        check_columns(merging, rows.names)
