"""A list of tables that one stream is divided into, each with its own subjects and schema.

Before they are divided rows have the columns of the stream, the number of their table (`NUMBER`),
and for each table with a schema a struct of the payload's fields (`fields_column`), which is null
in the rows of other tables. Columns that are made of others are made where rows are divided, in
tasks, for rows that come through Spark, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from jetspark.lakehouse.quarantine import Reason
from jetspark.lakehouse.routes import ValueOf
from jetspark.spark.json_payloads import CORRUPT, KEPT, with_json_struct
from jetspark.spark.lakehouse.growth import without
from jetspark.spark.lakehouse.options import ListedTable
from jetspark.spark.versions import in_arrow
from jetspark.subjects import subject_matches

NUMBER = "_jetspark_table"
"""Null in rows without a table."""
DAY = "day"
"""A partition column that is made if the rows have none of this name."""
OF_DAY = ValueOf.parse(DAY, "day(timestamp)")
"""What it is made of."""
_PAYLOAD = "data"


def fields_column(number: int) -> str:
    """The column with the fields of a table."""
    return f"_jetspark_fields_{number}"


def pattern(subjects: Sequence[str]) -> str:
    """A regular expression for the subjects that fall under one of these."""
    return "|".join(r"\.".join(map(_token, subject.split("."))) for subject in subjects).join(
        ("(?s)^(?:", ")$")
    )


def _token(token: str) -> str:
    return {"*": "[^.]*", ">": ".*"}.get(token) or re.escape(token)


def with_fields(rows: DataFrame, tables: Sequence[ListedTable]) -> DataFrame:
    """Rows of a stream as they are divided, by Spark. Raises ConfigError."""
    number = F.lit(None).cast("int")
    for at, one in enumerate(tables):
        number = F.when(F.col("subject").rlike(pattern(one.subjects)), at).otherwise(number)
    rows = rows.withColumn(NUMBER, number)
    for at, one in enumerate(tables):
        if one.json is not None:
            payload = F.when(F.col(NUMBER) == at, F.col(_PAYLOAD))
            rows = with_json_struct(rows, fields_column(at), payload, one.json, one.option)
    return rows


def put_aside(tables: Sequence[ListedTable], *, unlisted: bool) -> Column:
    """Whether a row is no row of its table; with `unlisted` also, whether it has none."""
    refused = [
        F.col(fields_column(at))[CORRUPT].isNotNull()
        for at, one in enumerate(tables)
        if one.json is not None
    ]
    refused += [F.col(NUMBER).isNull()] if unlisted else []
    return reduce(Column.__or__, refused, F.lit(False))


def schema_of(rows: StructType, number: int, table: ListedTable) -> StructType:
    """The columns that the rows of one table have, by those of all rows."""
    found = [one for one in rows if one.name in KEPT]
    if table.json is None or table.options.quarantine is not None:
        found.append(rows[_PAYLOAD])
    fields = _fields(rows, number)
    found += fields
    for name, value in table.made.items():
        of = rows[_PAYLOAD] if value.known is not None else StructType(found)[value.column]
        none = pa.RecordBatch.from_pylist([], schema=in_arrow(StructType([of])))
        found.append(StructField(name, from_arrow_type(value.of(none).type)))
    return StructType(found)


def made_columns(rows: StructType, number: int, table: ListedTable) -> Mapping[str, ValueOf]:
    """The columns that are made of others, with the one for new fields if there is to be one."""
    if table.json is None:
        return table.made
    known = [one.name for one in _fields(rows, number) if one.name != CORRUPT]
    return without(known, table.made, new=table.options.evolve)


def _fields(rows: StructType, number: int) -> StructType:
    """Those of the payloads."""
    if (own := fields_column(number)) not in rows.names:
        return StructType()
    fields = rows[own].dataType
    assert isinstance(fields, StructType)  # noqa: S101
    return fields


def rows_of(
    batch: pa.RecordBatch, number: int, made: Mapping[str, ValueOf] | None = None
) -> pa.RecordBatch:
    """The rows of one table, with its fields as columns, and those that are made of others."""
    own = fields_column(number)
    columns = {
        name: batch.column(name) for name in batch.schema.names if not name.startswith("_jetspark_")
    }
    if own in batch.schema.names:
        struct = batch.column(own)
        names = [field.name for field in struct.type]
        columns |= dict(zip(names, struct.flatten(), strict=True))
    for name, value in (made or {}).items():
        # A field may have the name of the payload, which it is about.
        of = batch if value.known is not None else pa.RecordBatch.from_pydict(columns)
        columns[name] = value.of(of)
    return pa.RecordBatch.from_pydict(columns)


def numbers_of(subjects: pa.Array, tables: Sequence[ListedTable]) -> pa.Array:
    """The numbers of the tables, as Spark finds them in `with_fields`."""
    encoded = subjects.dictionary_encode()
    found = [_number(subject, tables) for subject in encoded.dictionary.to_pylist()]
    return pa.array(found, pa.int32()).take(encoded.indices)


def _number(subject: str, tables: Sequence[ListedTable]) -> int | None:
    for at, one in enumerate(tables):
        if any(subject_matches(wanted, subject) for wanted in one.subjects):
            return at
    return None


def divided(
    batch: pa.RecordBatch, numbers: pa.Array
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """(number of the table, its rows)."""
    for number in pc.unique(numbers).to_pylist():
        chosen = pc.is_null(numbers) if number is None else pc.equal(numbers, number)
        yield number, batch.filter(chosen)


def no_table(row: pa.RecordBatch) -> Reason:
    """Why a row has no table."""
    subject = row.column("subject")[0].as_py()
    return "subject", f"No table of the list takes the subject {subject}."
