"""An older copy of one of many tables is noticed; no Spark is started."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.table_readers import by_us

from jetspark.errors import TableError
from jetspark.spark.table_sink import batch_commits, task_files, writers
from jetspark.spark.table_sink.ledger import NO_BATCH, Location, PendingBatch, TableLedger
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.table_preparation import prepare_for_query
from jetspark.spark.table_sink.task_files import TaskFiles
from jetspark.spark.table_sink.task_output import TaskCommit, TaskOutput
from jetspark.spark.table_sink.writers import LakehouseStreamWriter
from jetspark.tables.batches import commit_batch, commit_files
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_or_create_table
from jetspark.tables.table import Table, TableName

ROWS = pa.schema([("site", pa.string()), ("n", pa.int64())])


TASK: list[tuple[str, int]] = []
"""The query and the batch, as a task knows them."""


@pytest.fixture(autouse=True)
def _task(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (task_files, writers):
        monkeypatch.setattr(module, "batch_of_query", lambda: TASK[-1])


class Query:
    """What Spark does with the batches of a query into a table for each site."""

    def __init__(self, folder: Path, format_: Format, checkpoint: str = "checkpoint") -> None:
        self.folder, self.format = folder, format_
        self.checkpoint = folder / checkpoint
        self.checkpoint.mkdir()

    def write(self, batch: int, sites: str, **more: str) -> None:
        given = {"path": f"{self.folder}/{{site}}", "checkpointLocation": str(self.checkpoint)}
        options = parse_lakehouse_options(self.format, given | more).for_streaming()
        into = prepare_for_query(options, [ROWS])
        TASK[:] = [("q", batch)]
        files = TaskFiles(into)
        files.write(pa.RecordBatch.from_pydict({"site": list(sites), "n": [batch] * len(sites)}))
        answers: list[Any] = [
            TaskCommit("q", replace(files.close(), retries=2)),
            TaskCommit("q", TaskOutput(retries=1)),
        ]
        LakehouseStreamWriter(options, into, replace=False).commit(answers, batch)

    def plan(self, batch: int, offsets: str) -> None:
        """As Spark does before it writes a batch."""
        (self.checkpoint / "offsets").mkdir(exist_ok=True)
        (self.checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offsets}")

    def copied(self) -> Query:
        """The same query with a copy of its checkpoint, and the same tables."""
        copy = Query(self.folder, self.format, "copy")
        shutil.copytree(self.checkpoint, copy.checkpoint, dirs_exist_ok=True)
        return copy

    def batches(self, site: str) -> list[int]:
        return sorted(row["n"] for row in by_us(self.format, self.folder / site))


@pytest.fixture(params=list(Format))
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Query:
    return Query(tmp_path, request.param)


def test_what_was_written_is_counted_once_however_often_a_batch_comes(query: Query) -> None:
    for batch, sites in ((0, "ab"), (0, "ab"), (1, "aac")):
        query.write(batch, sites)
    written = TableLedger(str(query.checkpoint), "q").totals
    assert written is not None
    assert (written.rows, written.files, written.commits) == (5, 4, 4)
    assert written.bytes > 0
    assert written.retries == 6


def test_an_older_copy_stops_the_query_and_the_newest_one_goes_on(query: Query) -> None:
    query.write(0, "ab")
    shutil.copytree(query.folder / "a", query.folder / "older")
    query.write(1, "a")
    query.write(2, "b")
    query.write(2, "b")  # again, after a crash
    (query.folder / "a").rename(query.folder / "newest")
    (query.folder / "older").rename(query.folder / "a")
    query.write(3, "b")  # nothing for the older copy
    with pytest.raises(TableError, match=r"a has only this query's batch 0, and the checkpoint "):
        query.write(4, "ab")
    assert query.batches("a") == [0]
    shutil.rmtree(query.folder / "a")
    (query.folder / "newest").rename(query.folder / "a")
    query.write(4, "ab")
    assert query.batches("a") == [0, 1, 4]
    assert query.batches("b") == [0, 2, 3, 4]


def test_a_table_that_was_removed_stops_the_query_until_it_is_to_go_on_without(
    query: Query,
) -> None:
    query.write(0, "ab")
    shutil.rmtree(query.folder / "a")
    query.write(1, "b")
    with pytest.raises(TableError, match=r"a does not have this query's batch 0: it was removed"):
        query.write(2, "a")
    query.write(2, "a", adopt="true")
    query.write(3, "a")
    assert query.batches("a") == [2, 3]


def test_a_checkpoint_that_does_not_know_the_tables_refuses_none(tmp_path: Path) -> None:
    query = Query(tmp_path, Format.DELTA)
    query.write(0, "a")
    file = query.checkpoint / ".jetspark.tables"
    for content in (b"", b'{"query": "another", "tables": {"x": 5}}'):
        file.write_bytes(content)
        ledger = TableLedger(str(query.checkpoint), "q")
        assert (ledger.last("x"), ledger.last(str(tmp_path / "a"))) == (NO_BATCH, NO_BATCH)
    shutil.rmtree(tmp_path / "a")
    query.write(1, "a")
    assert query.batches("a") == [1]
    shutil.rmtree(query.checkpoint)
    with pytest.raises(TableError, match="does not have the record of this query's batch 1"):
        query.write(2, "a")
    query.write(2, "a", adopt="true")
    assert not query.checkpoint.exists()


def test_a_batch_of_other_messages_is_not_taken_for_one_that_is_there(query: Query) -> None:
    query.plan(0, "10")
    query.write(0, "a")
    copy = query.copied()
    query.plan(1, "20")  # and it is killed
    copy.plan(1, "15")
    copy.write(1, "a")
    copy.write(1, "a")  # again, after a crash
    with pytest.raises(TableError, match=r"a has other messages as batch 1 of this query: a copy"):
        query.write(1, "a")
    query.write(1, "a", adopt="true")
    assert query.batches("a") == [0, 1]
    copy.plan(2, "30")
    copy.write(2, "a")
    (query.checkpoint / "offsets" / "2").unlink(missing_ok=True)
    query.write(2, "a")  # nobody knows what it has read
    assert query.batches("a") == [0, 1, 2]


def test_a_copy_of_a_checkpoint_writes_nothing_of_a_batch_that_the_other_one_has(
    query: Query,
) -> None:
    query.plan(0, "10")
    query.write(0, "ab")
    copy = query.copied()
    query.plan(1, "15")
    query.write(1, "ab")
    copy.plan(1, "20")
    with pytest.raises(TableError, match="has other messages as batch 1 of this query"):
        copy.write(1, "cab")
    query.plan(2, "20")
    query.write(2, "ab")
    with pytest.raises(TableError, match="has batch 2 of this query, which is at batch 1"):
        copy.write(1, "cab")
    assert query.batches("c") == []
    query.plan(3, "25")
    query.write(3, "abc")  # the other one goes on, and has each message once
    assert [query.batches(site) for site in "abc"] == [[0, 1, 2, 3], [0, 1, 2, 3], [3]]


def broken(monkeypatch: pytest.MonkeyPatch, *sites: str) -> None:
    """The disks of these tables fail."""

    def commit(table: Table, *args: Any, **kwargs: Any) -> bool:
        if str(table.name).endswith(sites):
            raise OSError("Input/output error")
        return commit_batch(table, *args, **kwargs)

    monkeypatch.setattr(batch_commits, "commit_batch", commit)


def test_a_batch_is_completed_as_it_was_begun_whatever_another_attempt_would_write(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.write(0, "abc")
    with monkeypatch.context() as patch:
        broken(patch, "/b")
        with pytest.raises(TableError, match=r"/b cannot be written: Input/output error\. When"):
            query.write(1, "ab")
    other = {"defaultTable": str(query.folder / "rest")}
    query.write(1, "bc", **other)
    assert [query.batches(site) for site in "abc"] == [[0, 1], [0, 1], [0]]
    query.write(2, "ab", **other)
    assert [query.batches(site) for site in "abc"] == [[0, 1, 2], [0, 1, 2], [0]]


def test_a_note_beside_tables_gives_rows_to_no_table_of_another_query(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write beside the tables may forge it."""
    elsewhere = {"checkpointLocation": "s3a://bucket/checkpoint"}
    query.write(0, "ab", **elsewhere)
    with monkeypatch.context() as patch:
        broken(patch, "/b")
        with pytest.raises(TableError, match="cannot be written"):
            query.write(1, "ab", **elsewhere)
    (note,) = (query.folder / "_jetspark").iterdir()
    noted = msgspec.msgpack.decode(pq.read_table(note)["batch"][0].as_py(), type=PendingBatch)
    stranger = open_or_create_table(query.format, TableName(path=str(query.folder / "x")), ROWS, ())
    rows = pa.RecordBatch.from_pydict({"site": ["x"], "n": [1]})
    layout = stranger.layout(2**20, "zstd")
    commit_files(stranger, write_files(layout, stranger.storage, "part-1", [rows]))
    path = f"../{noted.tables[1].files[0].path}"
    stranger_location = Location.of(query.format, TableName(path=str(query.folder / "x")))
    for forged, error in (
        ({"name": "x", "location": stranger_location}, "is not a table of this query"),
        ({"files": [replace(one, path=path) for one in noted.tables[1].files]}, r"\.\./"),
    ):
        second = msgspec.structs.replace(noted.tables[1], **forged)
        note_of_it = msgspec.structs.replace(noted, tables=[noted.tables[0], second])
        content = msgspec.msgpack.encode(note_of_it)
        with note.open("wb") as file:
            pq.write_table(pa.table({"batch": [content]}), file)
        with pytest.raises(TableError, match=error):
            query.write(1, "ab", **elsewhere)
    assert query.batches("b") == [0]


def test_a_batch_of_which_no_table_has_a_part_takes_other_settings(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.write(0, "ab")
    with monkeypatch.context() as patch:
        broken(patch, "/a", "/b")
        with pytest.raises(TableError, match="cannot be written"):
            query.write(1, "ab")
    query.write(1, "ab", defaultTable=str(query.folder / "rest"))
    assert [query.batches(site) for site in "ab"] == [[0, 1], [0, 1]]
