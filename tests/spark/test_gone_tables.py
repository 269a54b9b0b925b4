"""Nothing is written where a query's table was removed while the query runs, and the next run tells
what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from tests.support.ingest_job import ingest_job

from jetspark.errors import ConfigError, PipelineError, TableError
from jetspark.spark.pipelines.pipeline import check_tables
from jetspark.spark.pipelines.pipeline_file import read_pipeline
from jetspark.spark.table_sink import batch_commits, writers
from jetspark.spark.table_sink.data_sources import DeltaDataSource, IcebergDataSource
from jetspark.spark.table_sink.writers import LakehouseStreamWriter
from jetspark.tables.formats import Format, find_table, open_or_create_table
from jetspark.tables.table import TableName

SCHEMA = StructType([StructField("seq", LongType())])
ROWS = pa.RecordBatch.from_pydict({"seq": [1, 2]})
NAMES = [pytest.param(one, id=one) for one in Format]
pytestmark = pytest.mark.parametrize("format_", NAMES)


class Query:
    """What Spark calls, and what it writes into the checkpoint, for each batch."""

    def __init__(self, format_: Format, home: Path) -> None:
        self.format, self.table, self.checkpoint = format_, home / "lake", home / "lake/_checkpoint"

    def plan(self, batch: int) -> None:
        (self.checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        if not batch:
            (self.checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
        (self.checkpoint / "offsets" / str(batch)).write_text("v1\n{}\n{}")

    def writer(self, **more: str) -> LakehouseStreamWriter:
        source = {Format.DELTA: DeltaDataSource, Format.ICEBERG: IcebergDataSource}[self.format]
        place = {"path": str(self.table), "checkpointLocation": str(self.checkpoint)}
        return source({**place, **more}).streamWriter(SCHEMA, False)

    def run(self, batch: int) -> None:
        self.plan(batch)
        writer = self.writer()
        writer.commit([writer.write(iter([ROWS]))], batch)

    @property
    def files(self) -> set[str]:
        """Those of the table, without the checkpoint, which is Spark's."""
        every = (one for one in self.table.rglob("*") if one.is_file())
        return {str(one) for one in every if not one.is_relative_to(self.checkpoint)}


@pytest.fixture
def query(format_: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    monkeypatch.setattr(writers, "require_query_id", lambda: "q")
    found = Query(format_, tmp_path)
    found.run(0)
    return found


def test_a_later_batch_does_not_create_a_table_again(query: Query) -> None:
    query.run(1)
    shutil.rmtree(query.table)
    query.plan(2)
    with pytest.raises(TableError, match=r"lake no longer exists, and .* 0 to 1\. R"):
        query.writer()
    assert query.files == set()
    assert query.writer(adopt="true") is not None


def test_a_table_of_another_one_in_its_place_gets_no_file(query: Query) -> None:
    query.run(1)
    for one in query.table.iterdir():
        if one != query.checkpoint:
            shutil.rmtree(one) if one.is_dir() else one.unlink()
    other = open_or_create_table(
        query.format, TableName(path=str(query.table)), pa.schema(ROWS.schema), ()
    )
    before = query.files
    query.plan(2)
    with pytest.raises(TableError, match=r"does not have .* 0 to 1: it was removed or replaced"):
        query.writer()
    assert query.files == before
    assert other.schema.names == ["seq"]


@pytest.mark.parametrize("batch", [0, 1])
def test_tasks_and_commits_write_nothing_after_the_removal(batch: int, query: Query) -> None:
    query.plan(batch)
    writer = query.writer()
    message = writer.write(iter([ROWS]))
    shutil.rmtree(query.table)
    with pytest.raises(TableError, match=r"lake no longer exists. Restore"):
        writer.write(iter([ROWS]))
    with pytest.raises(TableError, match=r"lake no longer exists.*Restore"):
        writer.commit([message], batch)
    assert not query.table.exists()


def test_a_first_batch_that_is_run_again_creates_its_table_but_not_its_checkpoint(
    format_: Format, tmp_path: Path
) -> None:
    query = Query(format_, tmp_path)
    for _ in range(2):
        query.plan(0)
        query.writer()
        assert find_table(format_, TableName(path=str(query.table))) is not None
        shutil.rmtree(query.table)
    query.plan(0)
    shutil.rmtree(query.table)
    with pytest.raises(
        TableError, match=r"_checkpoint no longer exists: .*lake, while this query used it"
    ):
        query.writer()
    assert not query.table.exists()


@pytest.mark.parametrize("fails", [True, False])
def test_a_table_that_is_removed_while_its_library_works_has_gone(
    fails: bool, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library says something else, or writes into the folder as if nothing had happened."""
    query.plan(1)
    writer = query.writer()
    message = writer.write(iter([ROWS]))
    log = next(query.table.glob("_delta_log/0*0.json"), None) or query.table / "metadata"

    def commit(*_: Any, **__: Any) -> None:
        if log.is_dir():
            shutil.rmtree(log)
            log.mkdir()
        else:
            log.rename(log.with_stem(f"{1:020}"))
        if fails:
            raise LookupError("_internal.DeltaError: no such file")

    monkeypatch.setattr(batch_commits, "commit_batch", commit)
    with pytest.raises(
        TableError, match=r"lake no longer exists, and with it this query's batch 0"
    ):
        writer.commit([message], 1)


def test_the_next_run_accepts_a_table_without_files(query: Query) -> None:
    """As a batch leaves it whose folder was removed while the table was made."""
    shutil.rmtree(query.table)
    open_or_create_table(query.format, TableName(path=str(query.table)), pa.schema(ROWS.schema), ())
    options = {"stream": "S", "columns": "seq"}
    ingest = ingest_job(options=options, to=str(query.table), format=query.format)
    ingest.check_preconditions()
    query.run(0)
    shutil.rmtree(query.checkpoint)
    with pytest.raises(ConfigError, match="has rows that this query did not write"):
        ingest.check_preconditions()


def test_the_next_run_tells_that_the_checkpoint_has_lost_its_batches(query: Query) -> None:
    shutil.rmtree(query.table)
    query.plan(1)  # by Spark, before it asks the sink
    ingest = ingest_job(options={"stream": "S"}, to=str(query.table), format=query.format)
    with pytest.raises(ConfigError, match=r"has lost its batch 0.*To begin anew, remove it and"):
        ingest.check_preconditions()
    # As after a run of a version that made the table again.
    open_or_create_table(query.format, TableName(path=str(query.table)), pa.schema(ROWS.schema), ())
    with pytest.raises(ConfigError, match=r"has lost its batch 0"):
        ingest.check_preconditions()
    shutil.rmtree(query.table)
    ingest.check_preconditions()


def test_a_pipeline_tells_it_of_every_sink(
    query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(query.table)
    query.plan(1)
    query.checkpoint.rename(tmp_path / "out")
    file = tmp_path / "p.toml"
    file.write_text(
        f'checkpoint = "{tmp_path}"\n[sources.s]\nstream = "S"\n'
        '[sinks.out]\nformat = "jetstream"\nstream = "T"\nguarantee = "at-least-once"\n'
    )
    with pytest.raises(PipelineError, match=r"sink out: .*out has lost its batch 0"):
        check_tables(read_pipeline(file))


def test_a_pipeline_tells_which_table_of_a_list_it_is(query: Query, tmp_path: Path) -> None:
    """Also if the path of another table of the list is the beginning of this one's."""
    shutil.rmtree(query.checkpoint)
    file = tmp_path / "p.toml"
    file.write_text(
        f'checkpoint = "{tmp_path}/checkpoints"\n[sources.s]\nstream = "S"\n'
        f'[sinks.out]\nformat = "jetspark-{query.format}"\n'
        '[[sinks.out.tables]]\nsubjects = ["s.a"]\n'
        f'path = "{str(query.table)[:-1]}"\n'
        '[[sinks.out.tables]]\nsubjects = ["s.b"]\n'
        f'path = "{query.table}"\n'
    )
    with pytest.raises(PipelineError, match=r"p.toml:9: sink out: .*query did not write"):
        check_tables(read_pipeline(file))
