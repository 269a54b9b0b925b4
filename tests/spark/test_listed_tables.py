"""A list of tables that one stream is divided into."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.pipelines import pipeline_of
from tests.support.streams import Admin
from tests.support.table_readers import by_duckdb, column, rows_of
from tests.support.tasks import Task

import jetspark.spark.pipelines.pipeline as pipelines
from jetspark.errors import PipelineError, SchemaEvolved, TableError
from jetspark.ranges import arrow
from jetspark.server import NatsServer
from jetspark.spark.checkpoints import CheckpointState
from jetspark.spark.pipelines.retry_quarantine import ReprocessResult
from jetspark.spark.queries.progress import QueryProgress
from jetspark.spark.table_sink import batch_commits, table_preparation
from jetspark.spark.table_sink.option_texts import (
    ListedTable,
    parse_lakehouse_options,
    table_list_option,
)
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.spark.table_sink.schema_evolution import SchemaChange
from jetspark.spark.table_sink.task_output import TaskCommit
from jetspark.spark.table_sink.writers import LakehouseStreamWriter
from jetspark.tables import batches
from jetspark.tables.formats import Format

pytestmark = pytest.mark.tables


def rows(*subjects: str, data: bytes = b"x") -> pa.RecordBatch:
    """Messages under these subjects; there are the tables a and b."""
    count = len(subjects)
    columns: dict[str, Any] = {
        "stream": ["S"] * count,
        "subject": subjects,
        "seq": range(1, count + 1),
        "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        "data": [data] * count,
        "headers": pa.nulls(count, arrow.SCHEMA.field("headers").type),
    }
    return pa.RecordBatch.from_pydict(columns)


def options_of(format_: str, folder: Path, ddl: str | None = None, **more: str) -> LakehouseOptions:
    tables = table_list_option(
        ListedTable(subjects=(f"{one}.>",), options={"path": str(folder / one)}, json_schema=ddl)
        for one in "ab"
    )
    return parse_lakehouse_options(Format(format_), tables | more).for_streaming()


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_batch_that_was_not_committed_to_the_second_table_adds_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    options = options_of(format_, tmp_path, defaultTable=str(tmp_path / "rest"))
    writer = LakehouseStreamWriter(options, Task(options).target, replace=False)
    failing = [str(tmp_path / "b")]

    def fail_once(table: Any, *arguments: Any, **named: Any) -> bool:
        if str(table.name) in failing:
            failing.clear()
            raise TableError("The storage is away.")
        return batches.commit_batch(table, *arguments, **named)

    monkeypatch.setattr(batch_commits, "commit_batch", fail_once)

    def attempt() -> None:
        """The tasks' part, too, as Spark runs a batch again."""
        task = Task(options)
        task.write(rows("a.x", "b.x", "c", "a.y"))
        writer.commit([TaskCommit("query", task.files.close())], 0)

    with pytest.raises(TableError, match="is away"):
        attempt()
    assert column(format_, tmp_path / "a", "seq") == Counter([1, 4])
    for _ in range(2):
        attempt()
        assert column(format_, tmp_path / "a", "seq") == Counter([1, 4])
        assert column(format_, tmp_path / "b", "seq") == Counter([2])
        assert column(format_, tmp_path / "rest", "seq") == Counter([3])


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_tables_that_grow_get_each_row_once_wherever_the_batch_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    options = options_of(format_, tmp_path, "n LONG", evolve="true")
    payloads: dict[str, dict[str, Any]] = {"a": {"n": 1, "new": True}, "b": {"n": 2, "more": [3]}}

    def attempt() -> None:
        """As Spark and its tasks run the batch, by the columns that the tables have."""
        data = [json.dumps(payloads.get(one, {})).encode() for one in "abc"]
        batch = rows("a.x", "b.x", "c").set_column(4, "data", pa.array(data))
        task = Task(options)
        task.write(batch)
        writer = LakehouseStreamWriter(options, task.target, replace=False)
        writer.commit([TaskCommit("query", task.files.close())], 0)

    def seqs(name: str) -> Counter[Any]:
        return column(format_, tmp_path / name, "seq")

    options = replace(options, default_table=str(tmp_path / "rest"))
    away = ["grow", "commit"]

    def apply(growth: SchemaChange, table: Any) -> str:
        if str(table.name).endswith("b") and "grow" in away:
            away.remove("grow")
            raise TableError("The storage is away.")
        return real(growth, table)

    def commit(table: Any, *arguments: Any, **named: Any) -> bool:
        if str(table.name).endswith("b") and "commit" in away:
            away.remove("commit")
            raise TableError("The storage is away.")
        return batches.commit_batch(table, *arguments, **named)

    real = SchemaChange.apply
    monkeypatch.setattr(SchemaChange, "apply", apply)
    monkeypatch.setattr(batch_commits, "commit_batch", commit)
    with pytest.raises(TableError, match="is away"):
        attempt()
    with pytest.raises(SchemaEvolved, match="/b: the columns more were added to it"):
        attempt()
    assert (seqs("a"), seqs("b")) == (Counter(), Counter())
    with pytest.raises(TableError, match="is away"):
        attempt()
    assert (seqs("a"), seqs("b")) == (Counter([1]), Counter())
    payloads["b"]["late"] = 1  # for the batches after this one
    for _ in range(2):
        attempt()
        assert [seqs(one) for one in ("a", "b", "rest")] == [Counter([one]) for one in (1, 2, 3)]
    assert column(format_, tmp_path / "a", "new") == Counter([True])
    found = by_duckdb(format_, tmp_path / "b", "SELECT n, more FROM t")
    assert found == [(2, "[3]")]


def test_a_message_without_a_table_stops_the_query_with_a_sentence(tmp_path: Path) -> None:
    options = options_of("delta", tmp_path)
    with pytest.raises(Exception, match=r"No table of the list takes .*c\.x: .* default_table"):
        Task(options).write(rows("a.x", "c.x"))


def test_a_table_that_has_lost_rows_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of("delta", tmp_path, checkpointLocation=str(tmp_path / "chk"))
    states = [CheckpointState("q", planned=0)]
    monkeypatch.setattr(table_preparation, "read_checkpoint", lambda _: states[-1])
    task = Task(options)
    (tmp_path / "chk").mkdir()
    task.write(rows("a.x"))
    writer = LakehouseStreamWriter(options, task.target, replace=False)
    writer.commit([TaskCommit("q", task.files.close())], 0)
    states.append(CheckpointState("q", planned=1))
    shutil.rmtree(tmp_path / "b")  # it has lost nothing
    Task(options)
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(TableError, match=r"/a no longer exists, and with it this query's batch 0"):
        Task(options)


LIST = """
[sinks.{sink}]
from = "orders"
format = "jetspark-delta"
quarantine = "{folder}/aside"
[[sinks.{sink}.tables]]
subjects = ["{stream}.orders.>"]
path = "{folder}/orders"
json_schema = "id LONG, amount DOUBLE"
derive = ["site=subject[2]", "hour=hour(timestamp)"]
rescued_data_column = "others"
partition_by = ["day", "site"]
[[sinks.{sink}.tables]]
subjects = ["{stream}.tags.*"]
path = "{folder}/tags"
json_schema = "tags ARRAY<STRING>, data STRING, pos STRUCT<lat: DOUBLE>"
rename = "data=body"
rescued_data_column = "others"
[[sinks.{sink}.tables]]
subjects = ["{stream}.state.>"]
path = "{folder}/state"
json_schema = "id LONG, day STRING"
keys = ["id"]
sequence_by = "seq"
[[sinks.{sink}.tables]]
subjects = ["{stream}.raw"]
path = "{folder}/raw"
derive = ["kind=subject[1]"]
[[sinks.{sink}.tables]]
subjects = ["{stream}.none"]
path = "{folder}/without_rows"
"""


def test_one_reading_fills_tables_of_different_schemas(
    spark: SparkSession, admin: Admin, tmp_path: Path
) -> None:
    name = admin.stream(under=".>")
    messages = [
        *(("orders.eu", b'{"id": %d, "amount": 0.5, "x": [%d]}' % (n, n)) for n in range(40)),
        ("orders.odd", b'{"id": "x"}'),
        ("orders.odd", b'{"id": 1, "amount": "NaN"}'),
        ("orders.odd", b"no JSON"),
        ("tags.a", b'{"tags": ["x", "y"], "by": "me", "data": "d", "pos": {"lat": 1, "alt": 2}}'),
        ("tags.a", b'{"tags": 5}'),
        *(("state.s", b'{"id": %d, "day": "d%d"}' % (n % 3, n)) for n in range(30)),
        ("raw", b"\xff"),
        ("raw.none", b"{}"),
        ("other", b"{}"),
    ]
    admin.fill([(f"{name}.{rest}", data) for rest, data in messages])
    sink = LIST.format(sink="tasks", folder=tmp_path / "tasks", stream=name)
    pipeline = pipeline_of(admin.url, name, tmp_path, sink)
    pipelines.check_tables(pipeline)
    flows = pipelines.check_queries(pipeline, spark)
    assert not (tmp_path / "tasks").exists()
    (query,) = pipelines.start_pipeline(pipeline, spark, flows).values()
    query.awaitTermination(300)
    done = QueryProgress()
    done.update(query)
    assert done.rows + done.quarantined == len(messages)
    found = {
        table: by_duckdb("delta", tmp_path / "tasks" / table, f"SELECT {columns} FROM t ORDER BY 1")
        for table, columns in {
            "orders": "seq, id, amount::VARCHAR, day = timestamp::DATE, "
            "hour = date_trunc('hour', timestamp), site, others",
            "tags": "seq, tags, body, others",
            "state": "id, day, seq",
            "raw": "seq, data, kind",
            "aside": 'seq, subject, data, "column", reason',
        }.items()
    }
    assert found["orders"][:2] == [
        (1, 0, "0.5", True, True, "eu", '{"x":[0]}'),
        (2, 1, "0.5", True, True, "eu", '{"x":[1]}'),
    ]
    assert len(found["orders"]) == 40 + sum(row[0] in (41, 42, 43) for row in found["orders"])
    assert found["tags"] == [(44, ["x", "y"], "d", '{"by":"me","pos":{"alt":2}}')]
    assert [row[:2] for row in found["state"]] == [(0, "d27"), (1, "d28"), (2, "d29")]
    assert found["raw"] == [(len(messages) - 2, b"\xff", "raw")]
    no_table = f"No table of the list takes the subject {name}.other."
    assert found["aside"][-1][3:] == ("subject", no_table)
    left, orders = len(found["aside"]), len(found["orders"])
    mended = f"""
[[sinks.tasks.tables]]
subjects = ["{name}.other"]
path = "{tmp_path}/tasks/others"
"""
    mended = sink.replace("id LONG, amount DOUBLE", "amount DOUBLE") + mended
    mended_pipeline = pipeline_of(admin.url, name, tmp_path, mended)
    aside = str(tmp_path / "tasks" / "aside")
    assert pipelines.sink_of_quarantine(mended_pipeline, aside) == "tasks"
    tried = pipelines.reprocess(mended_pipeline, "tasks")
    assert tried == ReprocessResult(added=2, already_present=0, remaining=left - 2)
    assert column("delta", tmp_path / "tasks" / "others", "data") == Counter([b"{}"])
    (row,) = by_duckdb(
        "delta", tmp_path / "tasks" / "orders", "SELECT id, site, others FROM t WHERE seq = 41"
    )
    assert row == (None, "odd", '{"id":"x"}')
    assert len(column("delta", tmp_path / "tasks" / "orders", "seq")) == orders + 1
    pipeline = pipeline_of(admin.url, name, tmp_path, sink)
    pipelines.check_tables(pipeline)
    shutil.rmtree(tmp_path / "tasks" / "without_rows")
    pipelines.check_tables(pipeline)
    shutil.rmtree(tmp_path / "tasks" / "tags")
    with pytest.raises(PipelineError, match=r"toml:20: sink tasks: .* or this table was removed"):
        pipelines.check_tables(pipeline)
    pipelines.check_tables(replace(pipeline, adopt=True))


EVOLVING = """
[sinks.{sink}]
from = "orders"
format = "jetspark-delta"
evolve = true
[[sinks.{sink}.tables]]
subjects = ["{stream}.a"]
path = "{folder}/a"
json_schema = "n LONG"
rescued_data_column = "others"
[[sinks.{sink}.tables]]
subjects = ["{stream}.b"]
path = "{folder}/b"
json_schema = "tags ARRAY<STRING>"
partition_by = ["day"]
[[sinks.{sink}.tables]]
subjects = ["{stream}.c"]
path = "{folder}/c"
json_schema = "n LONG"
evolve = false
[[sinks.{sink}.tables]]
subjects = ["{stream}.d"]
path = "{folder}/d"
"""
ONE = """
[sources.payments]
servers = "{url}"
stream = "{stream}"
subjects = "{stream}.a"
starting_offsets = "earliest"
json_schema = "n LONG"
[sinks.one]
from = "payments"
format = "jetspark-delta"
path = "{folder}/one"
evolve = true
rescued_data_column = "others"
"""


@pytest.mark.full
def test_each_table_of_a_pipeline_grows_on_its_own(
    spark: SparkSession, admin: Admin, tmp_path: Path
) -> None:
    name = admin.stream(under=".>")
    sink = EVOLVING.format(sink="tasks", folder=tmp_path / "tasks", stream=name)
    one = ONE.format(url=admin.url, stream=name, folder=tmp_path)
    pipeline = pipeline_of(admin.url, name, tmp_path, sink, one)

    def run() -> list[int]:
        """How often each query was started until the stream's end."""
        counts = []
        for query in pipelines.start_pipeline(pipeline, spark).values():
            running: StreamingQuery | None = query
            for started in itertools.count(1):
                assert running is not None
                with suppress(StreamingQueryException):
                    running.awaitTermination(300)
                if (again := pipelines.start_again(pipeline, spark, running)) is None:
                    assert running.exception() is None
                    counts.append(started)
                    break
                running = again
        return counts

    both = b'{"n": 1, "new": {"x": [1]}, "late": null, "a b": 1}'
    admin.fill([(f"{name}.{one}", both) for one in "abcd"])
    assert run() == [2, 2]
    admin.fill([(f"{name}.a", b'{"new": 5, "n": 2}'), (f"{name}.b", b'{"tags": ["x"]}')])
    assert run() == [1, 1]
    admin.fill([(f"{name}.a", b'{"late": 1.5}'), (f"{name}.c", b'{"late": 1.5}')])
    assert run() == [2, 2]
    found = {one: rows_of(tmp_path / "tasks" / one, Format.DELTA) for one in "abcd"}
    names = ("seq", "n", "new", "late", "others")
    in_a = [tuple(row[name] for name in names) for row in found["a"]]
    assert in_a == [
        (1, 1, '{"x": [1]}', None, '{"late":null,"a b":1}'),
        (5, 2, "5", None, None),
        (7, None, None, "1.5", None),
    ]
    alone = rows_of(tmp_path / "one", Format.DELTA)
    assert [tuple(row[name] for name in names) for row in alone] == in_a
    in_b = [tuple(row[name] for name in ("seq", "tags", "n", "new")) for row in found["b"]]
    assert in_b == [(2, None, 1, '{"x": [1]}'), (6, ["x"], None, None)]
    (first, _) = found["c"]
    assert first.keys().isdisjoint(("new", "late"))
    assert [row["data"] for row in found["d"]] == [both]


@pytest.mark.full
def test_a_queue_is_emptied_only_of_what_all_its_tables_have(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    tmp_path: Path,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.14")
    queue = admin.stream(under=".>", retention="workqueue", allow_direct=True)
    sink = f"""
[sinks.lake]
from = "orders"
format = "jetspark-iceberg"
[[sinks.lake.tables]]
subjects = ["{queue}.a"]
path = "{tmp_path}/a"
json_schema = "n LONG"
[[sinks.lake.tables]]
subjects = ["{queue}.b"]
path = "{tmp_path}/b"
"""
    only = "sole_reader = true\nmax_offsets_per_trigger = 30"
    pipeline = pipeline_of(admin.url, queue, tmp_path, sink, options=only)
    for count in (60, 120):
        admin.fill([(f"{queue}.{'ab'[n % 2]}", b'{"n": 1}') for n in range(60)])
        for query in pipelines.start_pipeline(pipeline, spark).values():
            query.awaitTermination(300)
        assert column("iceberg", tmp_path / "a", "seq") == Counter(range(1, count, 2))
        assert column("iceberg", tmp_path / "b", "seq") == Counter(range(2, count + 1, 2))
        # The last batch is committed when the next one is planned.
        assert admin.facts(queue).first_seq == count - 29
