"""JSON payloads that jetspark decodes, beside Spark's own parser."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from tests.support.json_payloads import FIELDS, NESTED, payload
from tests.support.streams import Admin
from tests.support.table_readers import by_us

from jetspark.spark.source.payload_columns import decode_json
from jetspark.tables.formats import Format

KINDS = {**FIELDS, **{name: kind for name, (_, kind) in NESTED.items()}}
DDL = ", ".join(f"`{name}` {kind}" for name, kind in FIELDS.items() if name not in NESTED)
DDL += "".join(f", `{name}` {kind}" for name, (kind, _) in NESTED.items())

TEXTS = ("t", "naïve", "s", "g")
"""Columns with texts: Spark writes anew what is none, and we leave it as it came."""


def test_records_that_fit_are_those_of_sparks_parser(spark: SparkSession, admin: Admin) -> None:
    name, rng = admin.stream(), random.Random(7)
    admin.fill([(name, payload(rng, KINDS)) for _ in range(3_000)])
    options = {"servers": admin.url, "stream": name}
    plain = spark.read.format("jetstream").options(**options).load()
    options |= {"decode": "json", "schema": DDL}
    decoded = by_source = spark.read.format("jetstream").options(**options).load()
    by_rows = decode_json(plain, DDL, "json")
    assert by_rows.schema.simpleString() == by_source.schema.simpleString()
    assert _rows(by_rows) == _rows(by_source)

    fits = decoded.where("_corrupt_reason IS NULL").select("seq")
    assert 500 < fits.count() < 2_500
    parsed = F.from_json(
        F.col("data").cast("string"), f"{DDL}, _bad STRING", {"columnNameOfCorruptRecord": "_bad"}
    )
    fields = plain.select("seq", parsed.alias("_")).select("seq", "_.*").join(fits, "seq")
    expected = fields.where("_bad IS NULL").drop("_bad")
    expected = expected.drop(*TEXTS)
    found = by_source.join(expected.select("seq"), "seq").select(expected.columns)
    pairs = list(zip(_rows(found), _rows(expected), strict=True))
    assert len(pairs) > 500
    different = [(one, other) for one, other in pairs if one != other]
    assert not different[:3]


def _rows(frame: DataFrame) -> list[str]:
    # Spark has years that Python's dates do not have.
    numbers = {"at": F.unix_micros("at"), "on": F.unix_date("on"), "o": F.to_json("o")}
    found: list[Row] = frame.withColumns(numbers).orderBy("seq").collect()
    return list(map(repr, found))


def test_values_of_a_bucket_are_decoded_beside_its_columns(spark: SparkSession) -> None:
    values = [b'{"key": 1, "data": "x"}', b'{"key": "x"}', None]
    rows = spark.createDataFrame(
        [("B", f"k{at}", one) for at, one in enumerate(values)],
        "bucket STRING, key STRING, value BINARY",
    )
    found = decode_json(rows, "key INT, data STRING", "json").orderBy("key").collect()
    assert [(one.payload_key, one.data, one._corrupt_record) for one in found] == [
        (1, "x", None),
        (None, None, '{"key": "x"}'),
        (None, None, None),
    ]


@pytest.mark.tables
def test_a_program_puts_the_bad_records_of_its_rows_aside(
    spark: SparkSession, admin: Admin, tmp_path: Path
) -> None:
    name = admin.stream()
    admin.fill([(name, b'{"id": 1}'), (name, b'{"id": "x"}')])
    options = {"servers": admin.url, "stream": name, "decode": "json", "schema": "id INT"}
    rows = spark.read.format("jetstream").options(**options, keepPayload="true").load()
    writer = rows.write.format("jetspark-delta").option("quarantine", str(tmp_path / "bad"))
    writer.mode("append").save(str(tmp_path / "good"))
    assert [row["id"] for row in by_us(Format.DELTA, tmp_path / "good")] == [1]
    (bad,) = by_us(Format.DELTA, tmp_path / "bad")
    assert (bad["seq"], bad["data"], bad["reason"]) == (2, b'{"id": "x"}', 'id: "x" is not an INT.')
