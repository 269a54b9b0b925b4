"""A value that a table cannot hold as it is becomes a bad record, and fails no commit."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)
from tests.support.table_readers import by_polars
from tests.support.tasks import batch_writer

from jetspark.errors import ConfigError
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.versions import in_arrow
from jetspark.tables.formats import Format

MESSAGE: dict[str, str | DataType] = {
    "stream": "string",
    "subject": "string",
    "seq": "long",
    "timestamp": "timestamp",
    "data": "binary",
    "headers": ArrayType(StructType().add("key", "string").add("value", "string")),
}
FAR = 2_932_897
"""The day after 9999-12-31."""
START = datetime(2026, 1, 1, tzinfo=UTC)
DELTA, ICEBERG = Format.DELTA, Format.ICEBERG
NUMBERS = pa.array([5, -(2**63)], pa.int64())
DECIMAL = pa.decimal128(5, 2)
FAR_DAYS = pa.array([0, FAR], pa.int32())
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
BY_V = {"partitionBy": "v"}
KEYS = {"keys": "seq"}
BAD: dict[str, tuple[Format, str, pa.Array, dict[str, str]]] = {
    "a far date in a keyed Delta table": (DELTA, "date", FAR_DAYS, KEYS),
    "a far date in a Delta table": (DELTA, "date", FAR_DAYS, {}),
    "an early date in an Iceberg table": (
        ICEBERG, "date", pa.array([0, -719_163], pa.int32()), {},
    ),
    "the least number, truncated": (
        ICEBERG, "long", NUMBERS, {"partitionBy": "truncate(10, v)"},
    ),
    "the least number, truncated, with keys": (
        ICEBERG, "long", NUMBERS, {"partitionBy": "truncate(10, v)"} | KEYS,
    ),
    "the least decimal, truncated": (
        ICEBERG, "decimal(5,2)", pa.array([Decimal("1.00"), Decimal("-999.99")], DECIMAL),
        {"partitionBy": "truncate(100, v)"},
    ),
    "an empty text for a partition": (DELTA, "string", pa.array(["a", ""]), BY_V),
    "the name of null": (DELTA, "string", pa.array(["a", NULL_FOLDER]), BY_V | KEYS),
    "a long text for a partition": (DELTA, "string", pa.array(["a", "ü" * 50]), BY_V),
    "a long text for a partition in Iceberg": (
        ICEBERG, "string", pa.array(["a", "b" * 300]), BY_V,
    ),
    "a long text of which the beginning fits": (
        ICEBERG, "string", pa.array(["a", "b" * 300]), {"partitionBy": "truncate(200, v)"},
    ),
    "a negative fraction": (
        DELTA, "decimal(5,2)", pa.array([Decimal("0.05"), Decimal("-0.10")], DECIMAL), BY_V,
    ),
}  # fmt: skip
FITS = ("a long text of which the beginning fits",)


def rows_of(kind: str | DataType, values: pa.Array) -> tuple[StructType, pa.RecordBatch]:
    schema = StructType()
    for name, type_ in {**MESSAGE, "v": kind, "_corrupt_record": "string"}.items():
        schema.add(name, type_)
    arrow = in_arrow(schema)
    count = len(values)
    made: dict[str, Any] = {
        "seq": pa.array(range(1, count + 1), pa.int64()),
        "timestamp": pa.array(
            [datetime(2026, 1, 1, tzinfo=UTC)] * count, arrow.field("timestamp").type
        ),
        "data": pa.array([b"{}"] * count, pa.binary()),
        "v": values.cast(arrow.field("v").type),
    }
    columns = [made.get(one.name, pa.nulls(count, one.type)) for one in arrow]
    return schema, pa.RecordBatch.from_arrays(columns, schema=arrow)


def write(
    format_: Format, path: Path, kind: str | DataType, values: pa.Array, options: dict[str, str]
) -> None:
    schema, rows = rows_of(kind, values)
    if "keys" in options:
        options = options | {"sequenceBy": "seq"}
    parsed = parse_lakehouse_options(format_, {"path": str(path), **options}).for_batch()
    writer = batch_writer(parsed, schema)
    writer.commit([writer.write(iter([rows]))])


@pytest.mark.full
@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("case", BAD)
def test_the_record_is_put_aside_and_no_other(tmp_path: Path, case: str, template: bool) -> None:
    format_, kind, values, options = BAD[case]
    path = tmp_path / ("lake/{seq}" if template else "lake/1")
    options = options | {"quarantine": str(tmp_path / "aside")}
    write(format_, path, kind, values, options)
    there = [by_polars(format_, one) for one in (tmp_path / "lake").iterdir()]
    seqs = sorted(seq for one in there for seq in one.select("seq").collect()["seq"])
    assert seqs == ([1, 2] if case in FITS else [1])
    if case not in FITS:
        (aside,) = by_polars(format_, tmp_path / "aside").collect().to_dicts()
        assert (aside["seq"], aside["column"]) == (2, "v")
        assert aside["reason"].startswith("v")


@pytest.mark.parametrize("case", [one for one in BAD if one not in FITS])
def test_without_a_quarantine_the_error_names_the_message(tmp_path: Path, case: str) -> None:
    format_, kind, values, options = BAD[case]
    with pytest.raises(ConfigError, match="Message 2 does not become a row, for its column v"):
        write(format_, tmp_path / "t", kind, values, options)


DAYS = FAR_DAYS.cast(pa.date32())
INSTANTS = pa.array([0, FAR * 86_400_000_000]).cast(pa.timestamp("us", "UTC"))
NESTED: list[tuple[DataType, pa.Array]] = [
    (ArrayType(DateType()), pa.ListArray.from_arrays([0, 1, 2], DAYS)),
    (StructType().add("a", DateType()), pa.StructArray.from_arrays([DAYS], ["a"])),
    (
        MapType(StringType(), TimestampType()),
        pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), INSTANTS),
    ),
]


@pytest.mark.parametrize(("kind", "values"), NESTED, ids=["array", "struct", "map"])
def test_dates_are_looked_at_everywhere(tmp_path: Path, kind: DataType, values: pa.Array) -> None:
    write(DELTA, tmp_path / "t", kind, values, {"quarantine": str(tmp_path / "aside")})
    assert by_polars(DELTA, tmp_path / "aside").collect()["seq"].to_list() == [2]
    assert by_polars(DELTA, tmp_path / "t").select("seq").collect()["seq"].to_list() == [1]


def required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


A = StructType().add("a", "long")
REQUIRED: dict[str, tuple[pa.Field, str | DataType, list[Any]]] = {
    "v": (required("v", pa.int64()), "long", [1, None]),
    "v.a": (
        pa.field("v", pa.struct([required("a", pa.int64())])),
        A,
        [{"a": 1}, {"a": None}, None],
    ),
    "v.element": (
        pa.field("v", pa.list_(required("element", pa.int64()))),
        ArrayType(LongType()),
        [[1], [2, None], [], None],
    ),
    "v.element.a": (
        pa.field("v", pa.list_(pa.struct([required("a", pa.int64())]))),
        ArrayType(A),
        [[{"a": 1}, None], [{"a": None}], None],
    ),
    "v.value": (
        pa.field("v", pa.map_(pa.string(), required("value", pa.int64()))),
        MapType(StringType(), LongType()),
        [[("x", 1)], [("y", None)], [], None],
    ),
}
"""By what the reason names: the table's column, and values of which the second does not fit."""


@pytest.mark.parametrize("name", REQUIRED)
def test_a_required_value_is_missed_before_the_commit(tmp_path: Path, name: str) -> None:
    column, kind, listed = REQUIRED[name]
    schema, _ = rows_of(kind, pa.nulls(1))
    arrow = in_arrow(schema)
    values = pa.array(listed, arrow.field("v").type)
    columns = [column if one.name == "v" else one for one in arrow]
    DeltaTable.create(tmp_path / "t", schema=pa.schema(columns))
    with pytest.raises(ConfigError, match="Message 2 does not become a row, for its column v"):
        write(DELTA, tmp_path / "t", kind, values, {})
    write(DELTA, tmp_path / "t", kind, values, {"quarantine": str(tmp_path / "aside")})
    (aside,) = by_polars(DELTA, tmp_path / "aside").collect().to_dicts()
    assert aside["seq"] == 2
    assert aside["reason"] == f"{name} has no value, and the table requires one."
    seqs = sorted(by_polars(DELTA, tmp_path / "t").select("seq").collect()["seq"])
    assert seqs == [seq for seq in range(1, len(listed) + 1) if seq != 2]
