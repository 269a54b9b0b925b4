"""Rows that tasks write into a table's files themselves."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from tests.support.ingest_job import ingest_job
from tests.support.lake import Lake
from tests.support.table_readers import by_duckdb

from jetspark.blocking import connect
from jetspark.errors import ConfigError, PipelineError
from jetspark.payloads.tolerant import CORRUPT
from jetspark.ranges.arrow import SCHEMA as MESSAGE
from jetspark.spark.failures import explain
from jetspark.spark.pipelines.retry_quarantine import ReprocessResult
from jetspark.spark.source.infer_schema import infer_schemas
from jetspark.spark.source.payload_columns import METADATA_COLUMNS
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.table_preparation import prepare
from jetspark.spark.table_sink.task_files import TaskFiles
from jetspark.tables.formats import Format

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.tables]

SCHEMA = "n LONG, name STRING, ok BOOLEAN, at TIMESTAMP, x DOUBLE"


@pytest.fixture
def lake(lake: Lake) -> Lake:
    lake.options["minPartitions"] = "2"
    lake.how = {"json_schema": SCHEMA}
    return lake


def payloads(count: int) -> list[tuple[str, bytes]]:
    return [
        (f"s{number % 3}.a", json.dumps({"n": number, "name": f"é{number}", "x": 0.5}).encode())
        for number in range(count)
    ]


NO_TOKEN = "The row's subject has no token 2 (counted from 0), which names its table."
ODD = (
    *(b"", b"  ", b"null", b"[]", b"{}", b"\xef\xbb\xbf{}", b'{"N": 3}'),
    *(b'{"n": "7"}', b'{"n": 1.0}', b'{"n": 1e3}', b'{"n": 99999999999999999999}'),
    *(b'{"n": 1, "n": 2}', b'{"n": 1} x', b'{"n": 1}{"n": 2}', b'{"n": 1'),
    *(b'{"name": 5}', b'{"name": {"a": [1]}}', b'{"name": "\xff"}', b'{"name": "\\ud800"}'),
    *(b'{"ok": "true"}', b'{"ok": 1}', b'{"at": "2026-01-31"}', b'{"at": 5}'),
    *(b'{"at": "2026-01-31T12:00:00+02:00"}', b'{"name": "a\\u0000b"}', b'{"x": "NaN"}'),
    *(b'{"x": 1}', b'{"x": 123456789012345678901234567890}'),
    b'{"n": null, "other": [[[[{}]]]]}',
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("format_", "partition_by"),
    [
        ("delta", ["day", "hour(timestamp)"]),
        ("iceberg", ["hour(timestamp)", "bucket(4, n)", "truncate(2, name)"]),
    ],
)
def test_each_message_is_one_row_whatever_its_payload_is(
    lake: Lake, format_: str, partition_by: list[str]
) -> None:
    lake.fill(*payloads(500), *((f"odd.{index}", one) for index, one in enumerate(ODD)))
    zone = lake.spark.conf.get("spark.sql.session.timeZone") or "UTC"
    lake.spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")  # tables are in UTC
    how: dict[str, Any] = {
        "format": format_,
        "partition_by": partition_by,
        "rescued_data_column": "others",
        "derive": ["site=subject[1]", "rest=subject[3]", "who=header[Who]", "h=hour(timestamp)"],
    }
    try:
        done = lake.ingest("table", **how)
    finally:
        lake.spark.conf.set("spark.sql.session.timeZone", zone)
    rows = lake.rows("table", Format(format_))
    assert done.rows == len(rows) == 500 + len(ODD)
    one = rows[0]
    assert (one["site"], one["rest"], one["who"], one["n"]) == ("s0", None, None, 0)
    assert all(row["h"] == row["timestamp"] // HOUR * HOUR for row in rows)
    if format_ == "delta":
        assert all(row["day"] == row["timestamp"] // (24 * HOUR) for row in rows)
    others = [row["others"] for row in rows if row["others"]]
    assert others == ['{"N":3}', '{"other":[[[[{}]]]]}']
    lake.ingest("bytes", format=format_, json_schema=None)
    data = [row["data"] for row in lake.rows("bytes", Format(format_))]
    assert data == [one for _, one in payloads(500)] + list(ODD)


HOUR = 3_600_000_000


def test_partitions_are_columns_and_transforms_of_columns(lake: Lake) -> None:
    for wrong in ("h=hour(timestamp)", "upper(name)", "nobody"):
        with pytest.raises(ConfigError, match=r"partition_by .* \(jetspark run\)"):
            lake.job("table", partition_by=[wrong])


def test_the_schema_of_a_sample_takes_every_message_of_it(lake: Lake) -> None:
    objects: list[dict[str, Any]] = [
        {"n": 1, "date": "2026-01-31", "at": "2026-01-31T12:00:00.5+02:00", "table": None},
        {"n": 0.5, "date": None, "at": "1970-01-01T00:00:00Z", "a b`": [1, None, 2**63]},
        {"in": {"select": [{"Größe": True}], "x-y": 5}, "mixed": 1, "seq": 7, "e": [], "o": {}},
        {"in": {"select": []}, "mixed": {"a": [1]}, "a b`": [], "n": -(2**63), "o": {}},
    ]
    lake.fill(*(("x", json.dumps(one).encode()) for one in objects))
    (found,) = infer_schemas(lake.options, None, 100)
    lake.ingest("table", json_schema=found.schema)
    rows = lake.rows("table")
    assert [row["_corrupt_record"] for row in rows] == [None] * 4
    assert [row["n"] and float(row["n"]) for row in rows] == [1.0, 0.5, None, -(2.0**63)]
    assert [row["mixed"] for row in rows] == [None, None, "1", '{"a": [1]}']
    assert rows[2]["in"] == {"select": [{"Größe": True}], "x-y": 5}


@pytest.mark.full
def test_one_stream_becomes_many_tables_that_other_readers_see(lake: Lake) -> None:
    lake.fill(*payloads(300), ("s1", b'{"n": -1}'))
    rest = {"defaultTable": str(lake.folder / "r")}
    assert lake.ingest("lake/{subject[1]}/t", table_options=rest).rows == 301
    for index in range(3):
        rows = lake.rows(f"lake/s{index}/t")
        assert [row["n"] for row in rows if row["n"] >= 0] == list(range(index, 300, 3))
        count = by_duckdb("delta", lake.folder / f"lake/s{index}/t", "SELECT count(*) FROM t")
        assert count == [(len(rows),)]
    lake.fill(*payloads(30))
    assert lake.ingest("lake/{subject[1]}/t", table_options=rest).rows == 30
    assert sum(len(lake.rows(f"lake/s{index}/t")) for index in range(3)) == 331


def test_rows_without_a_table_stop_the_query_unless_there_is_one_for_the_rest(lake: Lake) -> None:
    lake.fill(("a", b'{"n": 1}'), ("b.x", b'{"n": 2}'))
    query = lake.job("lake/{subject[2]}").start(lake.spark)
    with pytest.raises(Exception, match="defaultTable"):
        query.awaitTermination(60)
    rest = {"defaultTable": str(lake.folder / "lake/rest")}
    lake.ingest("lake/{subject[2]}", table_options=rest)
    assert [row["n"] for row in lake.rows("lake/rest")] == [1]
    assert [row["n"] for row in lake.rows("lake/x")] == [2]


def test_more_new_tables_than_allowed_stop_the_query_or_go_to_the_rest(lake: Lake) -> None:
    lake.fill(*((f"t{number}", b'{"n": 1}') for number in range(20)))
    few = {"maxNewTables": "3"}
    query = lake.job("lake/{subject[1]}", table_options=few).start(lake.spark)
    with pytest.raises(Exception, match="more than 3 new tables"):
        query.awaitTermination(60)
    rest = str(lake.folder / "lake/rest")
    lake.ingest("lake/{subject[1]}", table_options=few | {"defaultTable": rest})
    assert lake.rows("lake/rest")


@pytest.mark.full
def test_no_value_of_a_row_takes_a_table_that_is_not_the_querys(lake: Lake) -> None:
    """Whoever publishes chooses the subject, and by that the table."""
    lake.fill(("own", b'{"n": 1}'))
    lake.ingest("lake/orders", options={"subjects": f"{lake.stream}.own"})
    lake.fill(("b.site", b'{"n": 2}'), ("b.orders", b'{"n": 3}'))
    template: dict[str, Any] = {
        "options": {"subjects": f"{lake.stream}.b.*"},
        "checkpoint": str(lake.folder / "chk"),
        "table_options": {"writerName": "b"},
    }
    with pytest.raises(Exception, match="lake/orders has rows that this query did not write"):
        lake.ingest("lake/{subject[2]}", **template)
    assert lake.rows("lake/site") == []
    aside = str(lake.folder / "aside")
    lake.ingest("lake/{subject[2]}", quarantine=aside, **template)
    assert [row["n"] for row in lake.rows("lake/site")] == [2]
    assert [row["n"] for row in lake.rows("lake/orders")] == [1]
    (record,) = lake.rows("aside")
    assert (record["seq"], "did not write" in record["reason"]) == (3, True)
    for adopt, tried in ((False, ReprocessResult(0, 0, 1)), (True, ReprocessResult(1, 0, 0))):
        job = lake.job("lake/{subject[2]}", quarantine=aside, adopt=adopt, **template)
        assert job.reprocess() == tried
    lake.fill(("b.orders", b'{"n": 4}'))
    lake.ingest("lake/{subject[2]}", quarantine=aside, adopt=True, **template)
    lake.fill(("b.orders", b'{"n": 5}'))  # it is one of the query's now
    lake.ingest("lake/{subject[2]}", quarantine=aside, **template)
    assert sorted(row["n"] for row in lake.rows("lake/orders")) == [1, 3, 4, 5]
    assert lake.rows("aside") == []


def test_a_batch_that_fails_between_its_tables_is_completed_as_it_was_begun(lake: Lake) -> None:
    """Here the table cannot be committed to, once its quarantine is."""
    how: dict[str, Any] = {"quarantine": str(lake.folder / "aside")}
    lake.fill(("a", b'{"n": 0}'))
    lake.ingest("lake", **how)
    lake.fill(("a", b'{"n": 1}'), ("a", b'{"n": "x", "name": "b"}'), ("a", b'{"n": 2}'))
    log = lake.folder / "lake" / "_delta_log"
    blocked = log / f"{len(list(log.glob('0*.json'))):020}.json"
    blocked.mkdir()
    with suppress(StreamingQueryException):
        lake.ingest("lake", **how)
    assert [row["seq"] for row in lake.rows("aside")] == [3]
    blocked.rmdir()
    lake.fill(("a", b'{"n": 3}'))
    # The payload with a text would be a row now, and another one would not.
    lake.ingest("lake", **how | {"json_schema": "name STRING", "merge_schema": True})
    assert sorted(row["seq"] for row in lake.rows("lake")) == [1, 2, 4, 5]
    assert [row["seq"] for row in lake.rows("aside")] == [3]


@pytest.mark.full
def test_what_does_not_become_a_row_is_put_aside_with_its_reason(lake: Lake) -> None:
    lake.fill(("s.a", b'{"n": 1}'), ("s.a", b'{"n": [2]}'), ("s", b'{"n": 3}'), ("s.b", b"\xff{"))
    aside = str(lake.folder / "aside")
    done = lake.ingest("lake/{subject[2]}", quarantine=aside, partition_by=["day"])
    assert [(row["n"], "_corrupt_record" in row) for row in lake.rows("lake/a")] == [(1, False)]
    found = lake.rows("aside")
    assert [(row["seq"], row["data"], row["column"], row["reason"]) for row in found] == [
        (2, b'{"n": [2]}', "n", "n: [2] is not a BIGINT."),
        (3, b'{"n": 3}', "subject", NO_TOKEN),
        (4, b"\xff{", None, "The payload is not UTF-8: byte 0 is 0xff."),
    ]
    assert (done.rows, done.quarantined) == (1, 3)


@pytest.mark.full
def test_bad_records_become_letters_of_a_stream(lake: Lake) -> None:
    lake.fill(("s.a", b'{"n": 1}'), ("s", b"{}"), ("s.b", b"\xff{"), ("s.a", b'{"n": [2]}'))
    how: dict[str, Any] = {"quarantine": f"stream:{lake.stream}_bad"}
    done = lake.ingest("lake/{subject[2]}", **how)
    assert (done.rows, done.quarantined) == (1, 3)
    with connect(lake.admin.url) as nc:
        letters = nc.jetstream().dead_letters(f"{lake.stream}_bad").letters().all()
    found = {(one.stream_seq, one.data, one.column) for one in letters}
    assert found == {(2, b"{}", "subject"), (3, b"\xff{", None), (4, b'{"n": [2]}', "n")}
    with pytest.raises(ConfigError, match="is a stream of dead letters"):
        lake.job("lake/{subject[2]}", **how).check_reprocess()


@pytest.mark.full
def test_a_record_that_becomes_no_row_stops_the_query_until_the_schema_is_mended(
    lake: Lake,
) -> None:
    lake.fill(("a", b'{"n": 1, "x": 0.5}'))
    lake.ingest("table", on_bad_record="stop")
    lake.fill(("b", b'{"n": 2}'), ("c", b'{"n": 3, "x": "much"}'), ("d", b'{"n": 4}'))
    query = lake.job("table", on_bad_record="stop").start(lake.spark)
    with pytest.raises(StreamingQueryException) as stopped:
        query.awaitTermination(60)
    assert isinstance(said := explain(stopped.value), PipelineError)
    assert said.is_mistake
    assert str(said).startswith(
        f"Message 3 of {lake.stream} on the subject {lake.stream}.c does not become a row, for its "
        'column x: x: "much" is not a DOUBLE. Nothing of its batch was written. '
    )
    assert [row["n"] for row in lake.rows("table")] == [1]
    mended = "n LONG, name STRING, ok BOOLEAN, at TIMESTAMP"
    lake.ingest("table", on_bad_record="stop", json_schema=mended, merge_schema=True)
    found = [(row["n"], row["x"]) for row in lake.rows("table")]
    assert found == [(1, "0.5"), (2, None), (3, None), (4, None)]
    assert "_corrupt_record" not in lake.rows("table")[0]


def test_a_batch_that_is_run_again_adds_nothing_to_any_table(lake: Lake) -> None:
    """The checkpoint is put back to before its last commit, as a crash leaves it."""
    lake.fill(*payloads(30), ("bad", b"{"))
    how: dict[str, Any] = {"quarantine": str(lake.folder / "aside")}
    lake.ingest("lake/{subject[1]}", **how)
    (lake.folder / "lake/_checkpoint/commits/0").unlink()
    lake.ingest("lake/{subject[1]}", **how)
    assert sum(len(lake.rows(f"lake/s{index}")) for index in range(3)) == 30
    assert len(lake.rows("aside")) == 1


@pytest.mark.full
def test_an_upsert_puts_records_aside_and_keeps_them(lake: Lake) -> None:
    how: dict[str, Any] = {
        "quarantine": str(lake.folder / "aside"),
        "table_options": {"keys": "n", "sequenceBy": "seq"},
    }
    lake.fill(("a", b'{"n": 1, "name": "old"}'), ("a", b"{"))
    lake.ingest("table", **how)
    lake.fill(("a", b'{"n": 1, "name": "new"}'), ("a", b"["))
    lake.ingest("table", **how)
    assert [(row["n"], row["name"]) for row in lake.rows("table")] == [(1, "new")]
    assert [row["data"] for row in lake.rows("aside")] == [b"{", b"["]


def test_a_write_stops_for_a_record_of_which_little_is_known_and_needs_to_know_which_they_are(
    tmp_path: Path,
) -> None:
    given = {"path": str(tmp_path / "table"), "onBadRecord": "stop"}
    options = parse_lakehouse_options(Format.DELTA, given)
    number = pa.field("n", pa.int64())
    with pytest.raises(ConfigError, match="needs rows with the column _corrupt_record"):
        prepare(options, [pa.schema([number])])
    files = TaskFiles(prepare(options, [pa.schema([number, (CORRUPT, pa.string())])]))
    files.write(pa.RecordBatch.from_pydict({"n": [1], CORRUPT: pa.array([None], pa.string())}))
    with pytest.raises(ConfigError, match=r"^A record does not become a row, for its column n: "):
        files.write(pa.RecordBatch.from_pydict({"n": [None], CORRUPT: ['{"n": "x"}']}))


def test_a_row_without_its_key_is_no_row_of_the_table(tmp_path: Path) -> None:
    given = {"keys": "n", "applyAsTruncates": "op = 't'", "sequenceBy": "seq"}
    options = parse_lakehouse_options(Format.DELTA, given | {"path": str(tmp_path / "table")})
    kinds = {"n": pa.int64(), "op": pa.string(), "seq": pa.int64(), CORRUPT: pa.string()}
    files = TaskFiles(prepare(options, [pa.schema(kinds.items())]))

    def write(n: int | None, op: str | None, seq: int | None, corrupt: str | None = None) -> None:
        row = {"n": n, "op": op, "seq": seq, CORRUPT: corrupt}
        files.write(pa.RecordBatch.from_pylist([row], pa.schema(kinds.items())))

    write(1, None, 1)
    write(None, "t", 2)
    begin = "^Message 3 does not become a row, for its column n: "
    with pytest.raises(ConfigError, match=f"{begin}There is no value in n, which is the table's"):
        write(None, None, 3)
    with pytest.raises(ConfigError, match=f'{begin}n: "x" is not a BIGINT'):
        write(None, None, 3, '{"n": "x"}')
    with pytest.raises(
        ConfigError, match=r"seq, which is the table's order\. Nothing .* Fix the schema"
    ):
        write(None, "t", None)


def test_a_table_in_which_bad_records_were_kept_gets_them_put_aside_or_stops_at_them(
    tmp_path: Path,
) -> None:
    options = parse_lakehouse_options(Format.DELTA, {"path": str(tmp_path / "table")})
    how: dict[str, Any] = {"to": str(tmp_path / "table"), "json_schema": "n LONG", "adopt": True}
    kept = [one for one in MESSAGE if one.name in METADATA_COLUMNS]
    prepare(options, [pa.schema([*kept, ("n", pa.int64()), (CORRUPT, pa.string())])])
    for more in ({"quarantine": str(tmp_path / "aside")}, {"on_bad_record": "stop"}, {}):
        ingest_job(options={"stream": "S"}, **{**how, **more}).check_preconditions()


def test_new_fields_become_columns(lake: Lake) -> None:
    job = lake.job("table", evolve=True, json_schema="n INT")
    lake.fill(
        ("a", b'{"n": 1}'),
        ("a", b'{"n": 2, "whole": 5, "none": null, "N": 3, "seq": 1, "a b": 1}'),
        ("a", b'{"whole": 1.5, "some": {"x": [1, {}]}, "at": "2026-01-31"}'),
        ("a", b"{"),
    )
    assert lake.grow(job) == 2
    lake.fill(("a", b'{"some": "text", "none": true, "n": 4}'), ("a", b'{"n": 5, "whole": 2}'))
    assert lake.grow(job) == 2
    assert lake.grow(job) == 1
    rows = lake.rows("table")
    names = ("n", "whole", "some", "at", "none", "_corrupt_record")
    assert [tuple(row.get(name) for name in names) for row in rows] == [
        (1, None, None, None, None, None),
        (2, "5", None, None, None, None),
        (None, "1.5", '{"x": [1, {}]}', "2026-01-31", None, None),
        (None, None, None, None, None, "{"),
        (4, None, "text", None, True, None),
        (5, "2", None, None, None, None),
    ]
    assert json.loads(rows[1]["other_fields"]) == {"none": None, "N": 3, "a b": 1}
    assert [row["payload_seq"] for row in rows] == [None, 1, None, None, None, None]
    others = "other_fields payload_seq stream subject seq timestamp headers"
    assert rows[0].keys() == {*names, *others.split()}


@pytest.mark.full
def test_a_whole_number_that_is_too_large_widens_its_column_in_iceberg(lake: Lake) -> None:
    how: dict[str, Any] = {"evolve": True, "quarantine": str(lake.folder / "aside")}
    job = lake.job("table", format="iceberg", json_schema="n INT, x FLOAT", **how)
    lake.fill(("a", b'{"n": 1, "x": 0.5}'), ("a", b'{"n": 3000000000}'), ("a", b'{"n": "x"}'))
    assert lake.grow(job) == 2
    wider = lake.job("table", json_schema="n INT, x DOUBLE", **how)
    lake.fill(("a", b'{"n": 4, "x": 0.1}'))
    assert lake.grow(wider) == 1
    found = by_duckdb("iceberg", lake.folder / "table", "SELECT n, x FROM t ORDER BY seq")
    assert found == [(1, 0.5), (3000000000, None), (4, 0.1)]
    assert [row["seq"] for row in lake.rows("aside", Format.ICEBERG)] == [3]


@pytest.mark.full
def test_records_that_were_put_aside_become_rows_when_the_schema_is_mended(lake: Lake) -> None:
    how: dict[str, Any] = {
        "to": "lake/{subject[2]}",
        "quarantine": str(lake.folder / "aside"),
        "partition_by": ["day", "site"],
        "derive": ["site=subject[1]"],
        "rescued_data_column": "others",
    }
    lake.fill(("x.a", b'{"n": 1, "tags": ["p"]}'), ("y.a", b'{"n": 2}'), ("z", b'{"n": 3}'))
    lake.fill(("z.b", b"{"), ("z.b", b'{"n": 5.5, "name": 5, "tags": ["q", "r"]}'))
    lake.ingest(**how)
    assert [row["seq"] for row in lake.rows("aside")] == [3, 4, 5]
    mended = "name STRING, ok BOOLEAN, at TIMESTAMP, x DOUBLE, tags ARRAY<STRING>"
    job = lake.job(**how, json_schema=mended, merge_schema=True)
    assert job.reprocess() == ReprocessResult(added=1, already_present=0, remaining=2)
    (row,) = lake.rows("lake/b")
    assert (row["seq"], row["name"], row["tags"]) == (5, "5", ["q", "r"])
    assert (row["site"], row["others"]) == ("z", '{"n":5.5}')
    found = [(row["seq"], row["column"], row["reason"]) for row in lake.rows("aside")]
    assert found == [
        (3, "subject", NO_TOKEN),
        (4, None, "The payload is not one JSON object: it ends too early."),
    ]  # fmt: skip
    assert job.reprocess() == ReprocessResult(added=0, already_present=0, remaining=2)
