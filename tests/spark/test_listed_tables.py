"""A list of tables that one stream is divided into."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.table_readers import by_duckdb, column

from jetspark.bulk import arrow
from jetspark.errors import PipelineError, TableError
from jetspark.lakehouse import batches
from jetspark.lakehouse.formats import Format
from jetspark.spark.lag import Progress
from jetspark.spark.lakehouse import listed, target
from jetspark.spark.lakehouse.options import (
    LakehouseOptions,
    listed_option,
    parse_lakehouse_options,
)
from jetspark.spark.lakehouse.target import LakehouseStreamWriter, TaskFiles, Written
from jetspark.spark.pipeline import (
    check_queries,
    check_tables,
    sink_of_quarantine,
    start,
    try_again,
)
from jetspark.spark.pipeline_file import PipelineFile, read_pipeline
from jetspark.spark.retry_quarantine import Tried
from jetspark.spark.source import schema_of
from jetspark.subjects import subject_matches

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.support.streams import Admin

    from jetspark.server import NatsServer

_token = st.sampled_from(["a", "b", "a+b", "$x", "a\\", "ü", "(", ""])


@given(
    st.lists(
        st.lists(_token | st.just("*"), min_size=1, max_size=3).map(".".join)
        | st.lists(_token, max_size=2).map(lambda some: ".".join([*some, ">"])),
        min_size=1,
        max_size=3,
    ),
    st.lists(_token, min_size=1, max_size=4).map(".".join),
)
def test_the_expression_for_spark_matches_what_the_subjects_match(
    subjects: list[str], subject: str
) -> None:
    matches = re.search(listed.pattern(subjects), subject) is not None
    assert matches == any(subject_matches(one, subject) for one in subjects)


def rows(*subjects: str) -> pa.RecordBatch:
    """Messages under these subjects, as the sink gets them; there are the tables a and b."""
    count = len(subjects)
    numbers = [{"a": 0, "b": 1}.get(one[0]) for one in subjects]
    columns: dict[str, Any] = {
        "stream": ["S"] * count,
        "subject": subjects,
        "seq": range(1, count + 1),
        "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        "data": [b"x"] * count,
        "headers": pa.nulls(count, arrow.SCHEMA.field("headers").type),
        listed.NUMBER: pa.array(numbers, pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


def options_of(format_: str, folder: Path, **more: str) -> LakehouseOptions:
    tables = [([f"{one}.>"], None, {"path": str(folder / one)}) for one in "ab"]
    return parse_lakehouse_options(Format(format_), listed_option(tables) | more).for_streaming()


@pytest.mark.tables
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_batch_that_was_not_committed_to_the_second_table_adds_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    options = options_of(format_, tmp_path, restTable=str(tmp_path / "rest"))
    prepared = target.prepare_for_query(options, schema_of(arrow.COLUMNS))
    writer = LakehouseStreamWriter(options, prepared, replace=False)
    failing = [str(tmp_path / "b")]

    def fail_once(table: Any, *arguments: Any, **named: Any) -> bool:
        if str(table.name) in failing:
            failing.clear()
            raise TableError("The storage is away.")
        return batches.commit_batch(table, *arguments, **named)

    monkeypatch.setattr(target, "commit_batch", fail_once)

    def attempt() -> None:
        """The tasks' part, too, as Spark runs a batch again."""
        files = TaskFiles(prepared)
        files.write(rows("a.x", "b.x", "c", "a.y"))
        writer.commit([Written("query", files.close())], 0)

    with pytest.raises(TableError, match="is away"):
        attempt()
    assert column(format_, tmp_path / "a", "seq") == Counter([1, 4])
    for _ in range(2):
        attempt()
        assert column(format_, tmp_path / "a", "seq") == Counter([1, 4])
        assert column(format_, tmp_path / "b", "seq") == Counter([2])
        assert column(format_, tmp_path / "rest", "seq") == Counter([3])


@pytest.mark.tables
def test_a_message_without_a_table_stops_the_query_with_a_sentence(tmp_path: Path) -> None:
    options = options_of("delta", tmp_path)
    files = TaskFiles(target.prepare_for_query(options, schema_of(arrow.COLUMNS)))
    with pytest.raises(
        Exception, match=r"No table of the list takes the subject c\.x: .* 'restTable'"
    ):
        files.write(rows("a.x", "c.x"))


@pytest.mark.tables
def test_a_table_that_has_lost_rows_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of("delta", tmp_path, checkpointLocation=str(tmp_path / "chk"))
    state = SimpleNamespace(planned=0, query="q")
    monkeypatch.setattr(target, "read_checkpoint", lambda _: state)
    prepared = target.prepare_for_query(options, schema_of(arrow.COLUMNS))
    (tmp_path / "chk").mkdir()
    files = TaskFiles(prepared)
    files.write(rows("a.x"))
    LakehouseStreamWriter(options, prepared, replace=False).commit([Written("q", files.close())], 0)
    state.planned = 1
    shutil.rmtree(tmp_path / "b")  # it has lost nothing
    target.prepare_for_query(options, schema_of(arrow.COLUMNS))
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(TableError, match=r"/a has gone with this query's batch 0"):
        target.prepare_for_query(options, schema_of(arrow.COLUMNS))


LIST = """
[sinks.{sink}]
from = "events"
format = "jetspark-delta"
through_spark = {through}
quarantineTable = "{folder}/aside"
[[sinks.{sink}.tables]]
subjects = ["{stream}.orders.>"]
path = "{folder}/orders"
json = "id LONG, amount DOUBLE"
partition_by = ["day"]
[[sinks.{sink}.tables]]
subjects = ["{stream}.tags.*"]
path = "{folder}/tags"
json = "tags ARRAY<STRING>"
[[sinks.{sink}.tables]]
subjects = ["{stream}.state.>"]
path = "{folder}/state"
json = "id LONG, day STRING"
keys = ["id"]
sequenceBy = "seq"
[[sinks.{sink}.tables]]
subjects = ["{stream}.raw"]
path = "{folder}/raw"
[[sinks.{sink}.tables]]
subjects = ["{stream}.none"]
path = "{folder}/without_rows"
"""


def pipeline_of(
    server: NatsServer, stream: str, folder: Path, *sinks: str, options: str = ""
) -> PipelineFile:
    file = folder / "shop.toml"
    file.write_text(
        f"""
checkpoint = "{folder}/chk"
[sources.events]
servers = "{server.url}"
stream = "{stream}"
startingOffsets = "earliest"
minPartitions = 2
{options}
{"".join(sinks)}
""",
        "utf-8",
    )
    return read_pipeline(file)


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.tables
def test_one_reading_fills_tables_of_different_schemas_as_spark_does(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    name = unique("SHOP")
    admin.create(name, f"{name}.>")
    messages = [
        *(("orders.eu", b'{"id": %d, "amount": 0.5}' % n) for n in range(40)),
        ("orders.odd", b'{"id": "x"}'),
        ("orders.odd", b'{"id": 1, "amount": "NaN"}'),
        ("orders.odd", b"no JSON"),
        ("tags.a", b'{"tags": ["x", "y"]}'),
        ("tags.a", b'{"tags": 5}'),
        *(("state.s", b'{"id": %d, "day": "d%d"}' % (n % 3, n)) for n in range(30)),
        ("raw", b"\xff"),
        ("raw.none", b"{}"),
        ("other", b"{}"),
    ]
    admin.fill([(f"{name}.{rest}", data) for rest, data in messages])
    ways = {"tasks": "false", "spark": "true"}
    sinks = [
        LIST.format(sink=one, through=through, folder=tmp_path / one, stream=name)
        for one, through in ways.items()
    ]
    pipeline = pipeline_of(shared_server, name, tmp_path, *sinks)
    check_tables(pipeline)
    flows = check_queries(pipeline, spark)
    assert {one: flow.direct for one, flow in flows.items()} == {"tasks": True, "spark": False}
    assert not (tmp_path / "tasks").exists()
    figures = []
    for query in start(pipeline, spark, flows).values():
        query.awaitTermination(300)
        done = Progress()
        done.update(query)
        figures.append((done.rows, done.aside))
    assert figures[0] == figures[1]
    assert sum(figures[0]) == len(messages)
    found = [
        {
            table: by_duckdb("delta", tmp_path / one / table, f"SELECT {columns} FROM t ORDER BY 1")
            for table, columns in {
                "orders": "seq, id, amount::VARCHAR, day = timestamp::DATE",
                "tags": "seq, tags",
                "state": "id, day, seq",
                "raw": "seq, data",
                "aside": 'seq, subject, data, "column", reason',
            }.items()
        }
        for one in ways
    ]
    assert found[0] == found[1]
    assert found[0]["orders"][:2] == [(1, 0, "0.5", True), (2, 1, "0.5", True)]
    assert len(found[0]["orders"]) == 40 + sum(row[0] in (41, 42, 43) for row in found[0]["orders"])
    assert found[0]["tags"] == [(44, ["x", "y"])]
    assert [row[:2] for row in found[0]["state"]] == [(0, "d27"), (1, "d28"), (2, "d29")]
    assert found[0]["raw"] == [(len(messages) - 2, b"\xff")]
    no_table = f"No table of the list takes the subject {name}.other."
    assert found[0]["aside"][-1][3:] == ("subject", no_table)
    left, orders = len(found[0]["aside"]), len(found[0]["orders"])
    mended = f"""
[[sinks.tasks.tables]]
subjects = ["{name}.other"]
path = "{tmp_path}/tasks/others"
"""
    sink = sinks[0].replace("id LONG, amount DOUBLE", "amount DOUBLE") + mended
    mended_pipeline = pipeline_of(shared_server, name, tmp_path, sink)
    aside = str(tmp_path / "tasks" / "aside")
    assert sink_of_quarantine(mended_pipeline, aside) == "tasks"
    assert try_again(mended_pipeline, "tasks", spark) == Tried(added=2, there=0, left=left - 2)
    assert column("delta", tmp_path / "tasks" / "others", "data") == Counter([b"{}"])
    assert len(column("delta", tmp_path / "tasks" / "orders", "seq")) == orders + 1
    pipeline = pipeline_of(shared_server, name, tmp_path, *sinks)
    check_tables(pipeline)
    shutil.rmtree(tmp_path / "tasks" / "without_rows")
    check_tables(pipeline)
    shutil.rmtree(tmp_path / "tasks" / "tags")
    with pytest.raises(PipelineError, match=r"toml:20: sink tasks: .* or this table was removed"):
        check_tables(pipeline)
    check_tables(pipeline, adopt=True)


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.tables
def test_a_queue_is_emptied_only_of_what_all_its_tables_have(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.14")
    queue = unique("QUEUE")
    admin.create(queue, f"{queue}.>", retention="workqueue", allow_direct=True)
    sink = f"""
[sinks.lake]
from = "events"
format = "jetspark-iceberg"
[[sinks.lake.tables]]
subjects = ["{queue}.a"]
path = "{tmp_path}/a"
json = "n LONG"
[[sinks.lake.tables]]
subjects = ["{queue}.b"]
path = "{tmp_path}/b"
"""
    only = "soleReader = true\nmaxOffsetsPerTrigger = 30"
    pipeline = pipeline_of(shared_server, queue, tmp_path, sink, options=only)
    for count, through_spark in ((60, False), (120, True)):
        admin.fill([(f"{queue}.{'ab'[n % 2]}", b'{"n": 1}') for n in range(60)])
        for query in start(pipeline, spark, through_spark=through_spark).values():
            query.awaitTermination(300)
        assert column("iceberg", tmp_path / "a", "seq") == Counter(range(1, count, 2))
        assert column("iceberg", tmp_path / "b", "seq") == Counter(range(2, count + 1, 2))
        # The last batch is committed when the next one is planned.
        assert admin.facts(queue).first_seq == count - 29
