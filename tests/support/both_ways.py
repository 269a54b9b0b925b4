"""One stream into a table by both ways: by tasks that write what they read, and through Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jetspark.lakehouse.formats import Format, find_table
from jetspark.lakehouse.table import TableName
from jetspark.spark.ingest import Ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows_of(folder: Path, format_: Format) -> list[dict[str, Any]]:
    """The rows of a table by their sequences, in values that can be compared: dates and times as
    numbers, since they may be outside of Python's years, and numbers with a point as texts, since
    NaN is not NaN."""
    table = find_table(format_, TableName(path=str(folder)))
    assert table is not None
    found = [
        row
        for piece in table.pieces(table.schema.names, None, 1)
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


def differences(
    spark: SparkSession, source: Mapping[str, str], folder: Path, format_: Format, **how: Any
) -> tuple[int, list[str]]:
    """Messages that became rows or records, and how the tables of both ways differ. With a
    `quarantine` of True there is a table for records that do not become rows."""
    aside = how.pop("quarantine", False)
    tables: dict[bool, list[list[dict[str, Any]]]] = {}
    for through in (False, True):
        place = folder / ("through" if through else "direct")
        job = Ingest(
            options=dict(source),
            to=str(place / "t"),
            format=format_,
            through_spark=through,
            quarantine=str(place / "aside") if aside else None,
            **how,
        )
        job.check()
        job.look_ahead()
        job.start(spark).awaitTermination()
        names = [name for name in ("t", "aside") if (place / name).exists()]
        tables[through] = [rows_of(place / name, format_) for name in names]
    found = [
        f"{one}\nis through Spark\n{other}"
        for direct, through_spark in zip(*tables.values(), strict=True)
        for one, other in zip(_padded(direct, through_spark), through_spark, strict=False)
        if one != other
    ]
    counts = [sum(map(len, some)) for some in tables.values()]
    if counts[0] != counts[1]:
        found.append(f"{counts[0]} rows, and {counts[1]} through Spark")
    return counts[0], found


def _padded(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[Any]:
    return rows + [None] * (len(others) - len(rows))
