"""JSON payloads that the source parses: the columns of Spark's own parser."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import col, from_json, unix_date, unix_micros
from tests.support.json_payloads import FIELDS, payload

from jetspark.errors import ConfigError
from jetspark.spark.json_payloads import parsing, with_json_fields
from jetspark.spark.options import parse_options
from jetspark.wire.kernel import IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row, SparkSession
    from tests.support.streams import Admin

    from jetspark.server import NatsServer

DDL = ", ".join(f"`{name}` {kind}" for name, kind in FIELDS.items())


def test_rows_are_those_of_sparks_parser(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, unique: Callable[[str], str]
) -> None:
    name = unique("JSON")
    rng = random.Random(7)
    admin.create(name, name)
    admin.fill([(name, payload(rng)) for _ in range(6_000)])
    options = {"servers": shared_server.url, "stream": name}
    more = parsing(spark, options, DDL, "json")
    assert more
    by_spark = spark.read.format("jetstream").options(**options).load()
    by_source = spark.read.format("jetstream").options(**options, **more).load()
    expected = with_json_fields(by_spark, DDL, "json")
    found = with_json_fields(by_source, DDL, "json", parsed=True)
    assert found.schema.simpleString() == expected.schema.simpleString()
    left = {row.seq for row in by_source.where("data IS NOT NULL").select("seq").collect()}
    assert IMPLEMENTATION != "c" or 1_500 < len(left) < 3_600
    pairs = zip(_rows(found), _rows(expected), strict=True)
    different = [(repr(one), repr(other)) for one, other in pairs if repr(one) != repr(other)]
    assert not different[:5]


def test_bytes_that_are_not_utf_8_are_replaced_as_sparks_parser_does_it(
    spark: SparkSession, shared_server: NatsServer, admin: Admin, unique: Callable[[str], str]
) -> None:
    name = unique("JSON")
    rng = random.Random(11)
    wrong = [
        *(b"\xed\xa0\x80", b"\xed\xa0\x80\xed\xb0\x80", b"\xc0\x80", b"\xc3", b"\xff", b"\x80"),
        *(b"\xe0\x80\x80", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\xfe\xff"),
    ]
    texts = [rng.choice(wrong) + rng.choice((b"", b"x", b"\xc3\xa9")) for _ in range(200)]
    forms = (b'{"a": "%s", "n": 1}', b'{"n": 1, "b%s": 2, "a": "y"}', b'{"a": "x", "n": %s}')
    payloads = [rng.choice(forms) % (rng.choice((b"", b"z")) + text) for text in texts]
    payloads += [b'{"a": "x"}%s' % one for one in wrong] + [b'%s{"a": "x"}' % one for one in wrong]
    payloads += [b'{"a": "\xf0"} x }']
    admin.create(name, name)
    admin.fill([(name, one) for one in payloads])
    options = {"servers": shared_server.url, "stream": name}
    ddl = "a STRING, n INT"
    more = parsing(spark, options, ddl, "json")
    rows = spark.read.format("jetstream").options(**options).load()
    parsed = from_json(col("data").cast("string"), ddl)
    expected = rows.select("seq", parsed.alias("_")).select("seq", "_.*").orderBy("seq").collect()
    assert "\ufffd" in str(expected)
    for given in ({}, more):
        source = spark.read.format("jetstream").options(**options, **given).load()
        fields = with_json_fields(source, ddl, "json", parsed=bool(given)).orderBy("seq")
        assert fields.select("seq", "a", "n").collect() == expected
        for row in fields.select("seq", "_corrupt_record").collect():
            kept = payloads[row.seq - 1].decode("utf-8", "replace")
            damaged = row.seq > len(texts)
            assert row["_corrupt_record"] in ((kept,) if damaged else (None, kept))


@pytest.mark.parametrize("kind", ["STRING", "STRUCT<a: INT>"])
def test_a_payload_that_is_not_one_object_is_kept(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    kind: str,
) -> None:
    name = unique("JSON")
    kept = [
        b"",
        b" \n",
        b'{"id":"1"}\n{"id":"2"}',
        b'{"id":"1"},{"id":"2"}',
        b'{"id":"1"} and more',
        b'[{"id":"1"}]',
        b'{"id":"1"',
        b"null",
        b'{"id":"1"}}',
        b'{"id":"1"},"n":2',
        b'{"o":{"a":1}} {}',
    ]
    whole = [
        b"{}",
        b' {"id":"1"}\n',
        b'{"id":"} {"}',
        b'{"o":{"a":1},"l":[{} , {"b":2}],"id":"1"}',
        b'{"id":"1","id":"2"}',
    ]
    admin.create(name, name)
    admin.fill([(name, data) for data in [*kept, *whole]])
    options = {"servers": shared_server.url, "stream": name}
    ddl = f"id STRING, o {kind}"
    more = parsing(spark, options, ddl, "json")
    rows = spark.read.format("jetstream").options(**options, **more).load()
    found = with_json_fields(rows, ddl, "json", parsed=bool(more)).orderBy("seq").collect()
    expected = [data.decode() for data in kept] + [None] * len(whole)
    assert [row["_corrupt_record"] for row in found] == expected


def _rows(frame: DataFrame) -> list[Row]:
    # Spark has years that Python's dates do not have.
    numbers = {"at": unix_micros("at"), "on": unix_date("on")}
    return frame.withColumns(numbers).orderBy("seq").collect()


@pytest.mark.parametrize(
    ("ddl", "options"),
    [
        ("a ARRAY<STRING>", {}),
        ("a STRING, at TIMESTAMP_NTZ", {}),
        ("a DECIMAL(10,2)", {}),
        ("a STRING, A INT", {}),
        ("data STRING", {}),
        ("a STRING", {"bucket": "B"}),
        ("a STRING", {"Columns": "data"}),
    ],
)
def test_what_the_source_does_not_parse_is_left_to_spark(
    spark: SparkSession, ddl: str, options: dict[str, str]
) -> None:
    assert parsing(spark, options, ddl, "json") == {}


def test_with_the_former_rules_for_times_they_are_left_to_spark(spark: SparkSession) -> None:
    found = parsing(spark, {}, "a STRING, at TIMESTAMP", "json")
    assert found == {"jsonSchema": "`a` string, `at` timestamp_ltz"}
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    try:
        assert parsing(spark, {}, "at TIMESTAMP", "json") == {}
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"jsonSchema": "a ARRAY<INT>"}, "a is something else: use from_json on data"),
        ({"jsonSchema": "a TIMESTAMP"}, "a is something else: .* write TIMESTAMP_LTZ[.]$"),
        ({"jsonSchema": "a CHAR(3)"}, "a is something else: use from_json on data"),
        ({"jsonSchema": "a STRING NOT NULL"}, "is not a schema: a is NOT NULL, but each column"),
        ({"jsonSchema": "a STRNG"}, "no type STRNG .did you mean STRING"),
        ({"jsonSchema": "a STRING, Seq INT"}, "another column Seq"),
        ({"jsonSchema": "a STRING, A INT"}, "another column A"),
        ({"jsonSchema": "a STRING", "columns": "seq"}, "needs the column data"),
    ],
)
def test_wrong_schemas_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_options({"stream": "S", **options})


@pytest.mark.parametrize(
    ("ddl", "says"),
    [
        ("a INT, b STRING COLLATE FOO", "is not a schema: The value FOO .* correct collation name"),
        ("a STRING b INT", "is not a schema: Syntax error at or near 'b'"),
        ("d DECIMAL(50,2)", "is not a schema: Decimal precision 50 exceeds max precision 38"),
        ("s STRUCT<a: VARCHAR(3)>", "The char/varchar type can't be used in the table schema"),
        ("m MAP<INT, STRING>", "can only contain STRING as a key type for a MAP"),
    ],
)
def test_what_spark_refuses_of_a_schema_is_one_sentence(
    spark: SparkSession, ddl: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^--json '{re.escape(ddl)}'.*{says}") as caught:
        with_json_fields(spark.sql("SELECT '{}' AS data"), ddl, "--json")
    assert "\n" not in str(caught.value)


def test_a_bucket_has_no_schema() -> None:
    with pytest.raises(ConfigError, match="is for streams"):
        parse_options({"bucket": "B", "jsonSchema": "a STRING"})
