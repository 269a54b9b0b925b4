"""Partitions by transforms and sort orders: where rows go, and that readers leave files out."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import expressions
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as PyTable
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType
from pyspark.sql.types import LongType as SparkLong
from pyspark.sql.types import StringType as SparkString
from pyspark.sql.types import StructType, TimestampType
from tests.support.table_readers import by_duckdb, by_polars, newest_metadata
from tests.tables.conftest import written

from jetspark.errors import ConfigError, TableError
from jetspark.spark.table_sink.data_sources import written_schemas
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.table_preparation import prepare
from jetspark.spark.table_sink.task_files import TaskFiles
from jetspark.tables.batches import commit_batch, commit_files, overwrite
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.iceberg.folder import IDENTIFIER, FolderCatalog
from jetspark.tables.iceberg.partitions import partitions_of, sort_keys_of
from jetspark.tables.partitions import PartitionBy, join_partitions, parse_partitions
from jetspark.tables.table import Table, TableName
from jetspark.tables.upserts import Upsert

ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST
OF: Any = expressions
START = datetime(1969, 12, 30, 22, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("small", pa.int16()),
        ("data", pa.binary()),
    ]
)


def row(n: int) -> dict[str, Any]:
    if n % 11 == 10:
        return {"n": n}
    at = START + timedelta(minutes=37 * n, microseconds=n)
    return {
        "n": n,
        "name": ["", "é", "ééé", "ab/c=", "abcdef"][n % 5] + str(n % 3),
        "at": at,
        "day": at.date(),
        "price": Decimal(n - 50) / 100,
        "small": n - 60,
        "data": bytes([n]),
    }


def batch(start: int, end: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row(n) for n in range(start, end)], schema=SCHEMA)


def numbers(folder: Path) -> Counter[int]:
    """Those of the table, which all readers agree on."""
    found = Counter(n for (n,) in by_duckdb("iceberg", folder, "SELECT n FROM t"))
    assert Counter(by_polars("iceberg", folder).select("n").collect()["n"].to_list()) == found
    assert Counter(loaded(folder).scan().to_arrow()["n"].to_pylist()) == found
    return found


def loaded(folder: Path) -> PyTable:
    return StaticTable.from_metadata(newest_metadata(folder))


def files_of(folder: Path, wanted: Any = None) -> list[DataFile]:
    scan = loaded(folder).scan() if wanted is None else loaded(folder).scan(row_filter=wanted)
    return [one.file for one in scan.plan_files()]


def iceberg(folder: Path, text: str) -> Table:
    return open_or_create_table(
        Format.ICEBERG, TableName(path=str(folder)), SCHEMA, parse_partitions(text)
    )


def of_others(
    folder: Path, schema: Schema, *fields: PartitionField, order: SortOrder | None = None
) -> Table:
    """A table that another program has made."""
    catalog = FolderCatalog(folder)
    catalog.create_table_transaction(
        IDENTIFIER,
        schema,
        catalog.location,
        PartitionSpec(*fields),
        SortOrder() if order is None else order,
    ).commit_transaction()
    return open_table(Format.ICEBERG, TableName(path=str(folder)))


PARTITIONS = [
    ("year(at)", OF.GreaterThanOrEqual("at", "1970-01-01T00:00:00+00:00")),
    ("month(at)", OF.GreaterThanOrEqual("at", "1970-01-01T00:00:00+00:00")),
    ("day(at)", OF.LessThan("at", "1969-12-31T00:00:00+00:00")),
    ("hour(at)", OF.LessThan("at", "1969-12-31T00:00:00+00:00")),
    ("month(day)", OF.GreaterThanOrEqual("day", "1970-01-01")),
    ("bucket(8, n)", OF.EqualTo("n", 7)),
    ("bucket(3, name)", OF.EqualTo("name", "ééé2")),
    ("bucket(4, at)", OF.EqualTo("at", START.isoformat())),
    ("bucket(4, price)", OF.EqualTo("price", "0.07")),
    ("bucket(5, data)", OF.EqualTo("data", b"\x07")),
    ("truncate(2, name)", OF.StartsWith("name", "éé")),
    ("truncate(10, n)", OF.LessThan("n", 10)),
    ("truncate(20, small)", OF.LessThan("small", -40)),
    ("truncate(50, price)", OF.LessThan("price", "0.00")),
    ("day(at), bucket(2, n), truncate(1, name), day", OF.EqualTo("day", "1969-12-31")),
    ("bucket(2, n), truncate(30, n)", OF.LessThan("n", 30)),
]


@pytest.mark.full
@pytest.mark.parametrize(("text", "wanted"), PARTITIONS)
def test_rows_go_to_their_partitions_and_readers_leave_files_out(
    tmp_path: Path, text: str, wanted: Any
) -> None:
    folder = tmp_path / "t"
    table = iceberg(folder, text)
    assert ", ".join(table.partition_by) == text
    for number, start in enumerate((0, 60)):
        commit_batch(table, "q", number, written(table, batch(start, start + 60)))
        table.refresh()
    assert numbers(folder) == Counter(range(120))
    scan = loaded(folder).scan(row_filter=wanted)
    assert len(list(scan.plan_files())) < len(files_of(folder))
    whole = loaded(folder).scan().to_arrow()
    place = loaded(folder)
    # Every row is in a file whose recorded values are what PyIceberg computes for it.
    spec, schema = place.spec(), place.schema()
    for file in files_of(folder):
        rows = pa.parquet.read_table(file.file_path.removeprefix("file://"), partitioning=None)
        for at, field in enumerate(spec.fields):
            change = field.transform.transform(schema.find_type(field.source_id))
            name = schema.find_column_name(field.source_id)
            values = {change(one) for one in rows[str(name)].to_pylist()}
            recorded = file.partition[at]
            if isinstance(field.transform, IdentityTransform) and name == "day":
                values = {None if one is None else (one - date(1970, 1, 1)).days for one in values}
            assert values == {recorded}
    assert scan.count() == sum(1 for one in whole["n"].to_pylist() if _meets(wanted, row(one)))


def _meets(wanted: Any, row: dict[str, Any]) -> bool:
    name, literal = wanted.term.name, wanted.literal.value
    value = row.get(name)
    if value is None:
        return False
    if isinstance(value, datetime):
        literal = datetime.fromisoformat(literal)
    elif isinstance(value, date):
        literal = date.fromisoformat(literal)
    elif isinstance(value, Decimal):
        literal = Decimal(literal)
    match wanted:
        case OF.StartsWith():
            return bool(value.startswith(literal))
        case OF.LessThan():
            return bool(value < literal)
        case OF.EqualTo():
            return bool(value == literal)
    return bool(value >= literal)


@pytest.mark.full
def test_a_table_of_others_takes_rows_by_its_present_partitions(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = iceberg(folder, "bucket(4, n)")
    commit_files(table, written(table, batch(0, 30)))
    with FolderCatalog(folder).load_table(IDENTIFIER).update_spec() as spec:
        spec.remove_field("n_bucket")
        spec.add_field("at", DayTransform(), "at_day")
        spec.add_field("name", IdentityTransform(), "name")
    late = written(table, batch(30, 60))
    table.refresh()
    assert table.partition_by == ("day(at)", "name")
    with pytest.raises(TableError, match="partitions while this batch was written"):
        commit_files(table, late)
    for start in (30, 45):
        commit_files(table, written(table, batch(start, start + 15)))
        table.refresh()
    assert len({one.spec_id for one in files_of(folder)}) == 2
    assert numbers(folder) == Counter(range(60))
    table = open_table(Format.ICEBERG, table.name)
    assert table.compact(10**8).removed
    assert numbers(folder) == Counter(range(60))
    # Rows that are replaced lie in files of both.
    changes = pa.concat_batches([batch(0, 5), batch(50, 70)])
    files = written(table, changes, keyed=True)
    commit_batch(table, "q", 0, files, change=Upsert(("n",)))
    assert numbers(folder) == Counter(range(70))
    table = open_table(Format.ICEBERG, table.name)
    commit_files(table, written(table, batch(0, 10)), overwrite)
    assert numbers(folder) == Counter(range(10))


@pytest.mark.full
@pytest.mark.parametrize("text", ["bucket(3, n)", "truncate(10, n), day(at)"])
def test_a_table_with_partitions_has_the_last_value_of_a_key(tmp_path: Path, text: str) -> None:
    chosen = random.Random(text)
    folder = tmp_path / "t"
    table = iceberg(folder, text)
    model: dict[int, dict[str, Any]] = {}
    for number in range(4):
        rows = {
            n: row(n) | {"name": f"{number}", "at": row(chosen.randrange(99)).get("at")}
            for n in chosen.sample(range(30), 9)
        }
        model |= rows
        changes = pa.RecordBatch.from_pylist(list(rows.values()), schema=SCHEMA)
        files = written(table, changes, keyed=True)
        assert commit_batch(table, "q", number, files, change=Upsert(("n",)))
        table.refresh()
        found = {
            n: (name, at)
            for n, name, at in by_duckdb("iceberg", folder, 'SELECT n, name, "at" FROM t')
        }
        assert found == {n: (one["name"], one["at"]) for n, one in model.items()}
        assert sum(numbers(folder).values()) == len(model)


@pytest.mark.parametrize("transform", [VoidTransform(), UnknownTransform("zorder")])
def test_transforms_that_nobody_can_compute_are_refused(tmp_path: Path, transform: Any) -> None:
    schema = Schema(NestedField(1, "n", LongType()))
    metadata = new_table_metadata(schema, PartitionSpec(), SortOrder(), "t")
    spec = PartitionSpec(PartitionField(1, 1000, transform, "odd"))
    order = SortOrder(SortField(1, transform, ASC, LAST))
    strange = {"partition_specs": [spec], "sort_orders": [order], "default_sort_order_id": 1}
    metadata = metadata.model_copy(update=strange)
    said = f"{transform} of n, which is not supported here"
    with pytest.raises(ConfigError, match=f"t is partitioned by {said}"):
        partitions_of("t", metadata)
    with pytest.raises(ConfigError, match=f"t is sorted by {said}"):
        sort_keys_of("t", metadata)


SORTED = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "x", DoubleType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "at", TimestamptzType()),
)


@pytest.mark.parametrize(("direction", "nulls"), [(ASC, LAST), (DESC, FIRST), (ASC, FIRST)])
def test_the_rows_of_a_file_have_the_tables_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direction: SortDirection, nulls: NullOrder
) -> None:
    monkeypatch.setattr("jetspark.tables.file_writer.MAX_ROW_GROUP_ROWS", 40)
    folder = tmp_path / "t"
    order = SortOrder(
        SortField(4, YearTransform(), ASC, LAST),
        SortField(2, IdentityTransform(), direction, nulls),
        SortField(1, BucketTransform(3), DESC, FIRST),
        SortField(3, IdentityTransform(), ASC, LAST),
    )
    table = of_others(folder, SORTED, order=order)
    chosen = random.Random(3)
    values = [None, float("nan"), -1.5, 0.0, 2.0, float("inf")]
    rows = [
        {
            "n": chosen.choice([None, n]),
            "x": chosen.choice(values),
            "name": chosen.choice([None, "a", "é"]),
            "at": chosen.choice([None, START, START + timedelta(days=9)]),
        }
        for n in range(100)
    ]
    schema = schema_to_pyarrow(SORTED, include_field_ids=False)
    batches = [
        pa.RecordBatch.from_pylist(rows[at : at + 20], schema=schema) for at in (0, 20, 40, 60, 80)
    ]
    files = write_files(table.layout(10**8, "zstd"), table.storage, "part-0", batches)
    assert [one.metadata.num_row_groups for one in files] == [1, 1, 1]
    commit_files(table, files)
    assert {one.sort_order_id for one in files_of(folder)} == {1}
    assert len(loaded(folder).scan().to_arrow()) == 100
    bucket = BucketTransform(3).transform(LongType())
    for file in files_of(folder):
        found = pa.parquet.read_table(file.file_path.removeprefix("file://")).to_pylist()
        keys = [
            (
                (one["at"] is None, one["at"] and one["at"].year),
                _floating(one["x"], direction, nulls),
                (one["n"] is not None, -(bucket(one["n"]) or 0)),
                (one["name"] is None, one["name"] or ""),
            )
            for one in found
        ]
        assert keys == sorted(keys)


def _floating(
    x: float | None, direction: SortDirection, nulls: NullOrder
) -> tuple[int, float, float]:
    if x is None:
        return (-1 if nulls is FIRST else 1, 0, 0)
    sign = 1 if direction is ASC else -1
    return (0, sign, 0) if x != x else (0, 0, sign * x)


TEXTS = st.builds(
    PartitionBy,
    st.text("abé .`=", min_size=1).map(str.strip).filter(bool),
    st.sampled_from(["", "year", "month", "day", "hour"]),
) | st.builds(
    PartitionBy,
    st.text("abé .`=", min_size=1).map(str.strip).filter(bool),
    st.sampled_from(["bucket", "truncate"]),
    st.integers(1, 10**6),
)


@given(st.lists(TEXTS, min_size=1, unique=True))
def test_partitions_are_read_as_they_are_written(partitions: list[PartitionBy]) -> None:
    assert parse_partitions(", ".join(map(str, partitions))) == tuple(partitions)


def test_partitions_are_read_as_spark_writes_them() -> None:
    found = parse_partitions(" DAYS( at ),Bucket(16,id) , region ")
    assert list(map(str, found)) == ["day(at)", "bucket(16, id)", "region"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("week(at)", r"no column 'week\(at\)'; .*transforms are day\(timestamp\)"),
        ("day(when)", "no column 'when'"),
        ("day(name)", r"by day\(name\): the type of 'name' is string"),
        ("hour(day)", r"by hour\(day\): the type of 'day' is date32"),
        ("truncate(3, at)", "the type of 'at' is timestamp"),
        ("bucket(0, n)", "its number must be 1 or more"),
        (f"bucket({2**31}, n)", "2147483647 at most"),
        (f"truncate({'9' * 5000}, n)", "2147483647 at most"),
        ("day(at), hour(at)", "day.*hour|hour.*day"),
        ("n, n", "names a column twice"),
    ],
)
def test_partitions_that_no_table_has_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        iceberg(tmp_path / "t", text)


def test_a_time_that_python_does_not_have_is_no_partition(tmp_path: Path) -> None:
    table = iceberg(tmp_path / "t", "day(at)")
    far = pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_arrays([pa.array([1]), far], ["n", "at"])
    with pytest.raises(ConfigError, match="'at' has a value outside the years 1 to 9999"):
        written(table, rows)


ROWS = StructType().add("n", SparkLong()).add("name", SparkString()).add("at", TimestampType())


def test_a_delta_table_has_columns_in_place_of_days_and_hours(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "t"), "partitionBy": "day(at), hour(at), name"}
    parsed = parse_lakehouse_options(Format.DELTA, options)
    for number in range(2):
        target = pickle.loads(pickle.dumps(prepare(parsed, written_schemas(parsed, ROWS))))
        files = TaskFiles(target)
        files.write(batch(number * 10, number * 10 + 10).select(["n", "name", "at"]))
        commit_files(open_table(Format.DELTA, parsed.name), files.close().files)
    table = open_table(Format.DELTA, parsed.name)
    assert table.partition_by == ("at_day", "at_hour", "name")
    found = by_duckdb("delta", tmp_path / "t", 'SELECT n, "at", at_day, at_hour FROM t ORDER BY n')
    assert [one[0] for one in found] == list(range(20))
    for _, at, day, hour in found:
        assert day == (at and at.date())
        assert hour == (at and at.replace(minute=0, second=0, microsecond=0))
    whole = by_polars("delta", tmp_path / "t").collect()
    assert whole["at_day"].null_count() == 1


@pytest.mark.parametrize("text", ["bucket(4, n)", "month(at)", "truncate(3, name)"])
def test_other_transforms_are_refused_for_delta(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="is for Iceberg tables"):
        parse_lakehouse_options(Format.DELTA, {"path": str(tmp_path), "partitionBy": text})


def test_a_column_with_a_comma_is_one_partition() -> None:
    given = ["a,b", "bucket(4, `c`)", "day(t)", "d`e", "truncate(2, `f,g`)"]
    parsed = parse_partitions(join_partitions(given))
    assert [(one.column, one.transform) for one in parsed] == [
        ("a,b", ""),
        ("c", "bucket"),
        ("t", "day"),
        ("d`e", ""),
        ("f,g", "truncate"),
    ]
    assert parse_partitions("`a,b` , c") == (PartitionBy("a,b"), PartitionBy("c"))
