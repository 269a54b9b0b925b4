"""Rows of running tasks; no Spark is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from jetspark.errors import BrokenSocketError
from jetspark.links.retry import Retry
from jetspark.ranges.arrow import SCHEMA
from jetspark.retries import Backoff
from jetspark.spark.pipelines import task_writes
from jetspark.spark.pipelines.table_rows import RowSpec
from jetspark.spark.pipelines.task_writes import DirectPartition, DirectReader, Into
from jetspark.spark.queries.rows_in_progress import (
    RowsInProgress,
    collecting_in,
    read_reported_rows,
    report_folder,
    reporting,
    stop_collecting,
)
from jetspark.spark.source.options import parse_options
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.table_preparation import prepare
from jetspark.spark.table_sink.task_output import outputs_in
from jetspark.tables.formats import Format


def test_what_tasks_report_is_added_up_for_each_query(tmp_path: Path) -> None:
    with collecting_in(tmp_path / "rows"):
        folder = report_folder()
        with (
            reporting(folder, "a") as one,
            reporting(folder, "a") as another,
            reporting(folder, "b") as other,
        ):
            one(10_000)
            another(7)
            one(1)
            other(2**40)
        assert [read_reported_rows(query) for query in "abc"] == [10_008, 2**40, 0]
    assert report_folder() is None
    assert read_reported_rows("a") == 0
    assert not (tmp_path / "rows").exists()


def test_nobody_who_waits_for_rows_is_no_error(tmp_path: Path) -> None:
    with reporting(None, "a") as one:
        one(1)
    with reporting(str(tmp_path / "removed"), "a") as one, reporting(str(tmp_path), None) as other:
        one(1)
        other(1)
    assert read_reported_rows("a") == 0
    with collecting_in(tmp_path / "rows"):
        folder = report_folder()
        with reporting(folder, "a") as one:
            one(1)
            stop_collecting()
            one(1)
        assert read_reported_rows("a") == 0


def test_a_task_that_writes_files_reports_each_of_its_batches_and_how_often_it_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def batches(*_: Any) -> Iterator[pa.RecordBatch]:
        for count in (3, 4):
            yield pa.RecordBatch.from_pydict(
                {"seq": list(range(count))}, pa.schema([SCHEMA.field("seq")])
            )
            seen.append(read_reported_rows("a"))
            Retry(60, Backoff(0, 0)).wait_to_retry(BrokenSocketError("lost"))

    monkeypatch.setattr(task_writes, "read_partition", batches)
    monkeypatch.setattr(task_writes, "query_id", lambda: "a")
    given = {"path": str(tmp_path / "table"), "taskSecret": "s"}
    table = parse_lakehouse_options(Format.DELTA, given)
    source = parse_options({"stream": "S", "columns": "seq,data"})
    target = prepare(table, [pa.schema([SCHEMA.field("seq")])])
    with collecting_in(tmp_path / "rows"):
        reader = DirectReader(source, Into(table, RowSpec("json"), report_folder()))
        (done,) = reader.read(DirectPartition((), target))
        state = SimpleNamespace(statusStore=lambda: None)
        session = SimpleNamespace(sharedState=lambda: state)
        java = SimpleNamespace(sparkSession=lambda: session)
        query = cast("Any", SimpleNamespace(id="a", runId="b", _jsq=java))
        assert RowsInProgress(query).count() == 7
    assert seen == [3, 7]
    assert outputs_in(done, "s")[0].retries == 2
