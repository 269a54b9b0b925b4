"""A table and a checkpoint that do not belong together are refused, and nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.ingest_job import ingest_job

from jetspark.errors import ConfigError, TableError
from jetspark.spark.checkpoints import CheckpointState, read_checkpoint
from jetspark.spark.local_folders import local_path
from jetspark.spark.pipelines.ingest import Ingest
from jetspark.tables.batches import commit_batch
from jetspark.tables.file_writer import FileWriter
from jetspark.tables.formats import Format, find_table, open_or_create_table
from jetspark.tables.table import TableName

ROWS = pa.RecordBatch.from_pydict({"seq": [1, 2]})
NAME = "the run on S"


class Run:
    """A run of `jetspark ingest` on the stream S: what it has left, and what its next one says."""

    def __init__(self, format_: Format, home: Path) -> None:
        self.format, self.table, self.checkpoint = format_, home / "lake", home / "chk"

    def write(self, *, table: int | None, planned: int | None, committed: int | None) -> None:
        """The last batch that the table and the checkpoint have."""
        if table is not None:
            name = TableName(path=str(self.table))
            made = open_or_create_table(self.format, name, ROWS.schema, ())
            files = FileWriter(made.layout(1 << 20, "zstd"), made.storage, "part")
            files.write(ROWS)
            commit_batch(made, "q", table, files.close(), name=NAME, adopt=True)
        for log, last in (("offsets", planned), ("commits", committed)):
            (self.checkpoint / log).mkdir(parents=True, exist_ok=True)
            for batch in range(-1 if last is None else last + 1):
                (self.checkpoint / log / str(batch)).write_text("v1")
        (self.checkpoint / "metadata").write_text(json.dumps({"id": "q"}))

    def ingest(self, stream: str = "S", **more: object) -> Ingest:
        options = {"stream": stream, "columns": "seq"}
        place = {"to": str(self.table), "checkpoint": str(self.checkpoint)}
        return ingest_job(options=options, format=self.format, **(place | more))  # type: ignore[arg-type]


@pytest.fixture(params=Format)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return Run(request.param, tmp_path)


@pytest.mark.parametrize(
    ("table", "planned", "committed"),
    [
        (None, None, None),
        (None, 0, None),
        (0, 0, None),  # killed after the table's commit
        (0, 0, 0),
        (3, 4, 3),  # killed before it
        (3, 3, 3),
    ],
)
def test_what_a_kill_leaves_goes_on(
    run: Run, table: int | None, planned: int | None, committed: int | None
) -> None:
    run.write(table=table, planned=planned, committed=committed)
    run.ingest().check_preconditions()


@pytest.mark.parametrize(
    ("table", "planned", "committed", "says"),
    [
        (None, 1, 1, r"chk counts 2 batches as read that .*lake does not have: it is the check"),
        (1, 3, 3, r"chk counts 4 batches as read, but .*lake has only 2 batches: restore the"),
        (5, 3, 3, r"chk is older than .*lake, which has 6 batches: name the checkpoint that wrote"),
        (4, 3, 3, r"chk is older than .*lake, which has 5 batches"),
        (5, 4, 3, r"chk is older than .*lake, which has 6 batches"),
    ],
)
def test_a_copy_that_was_put_back_is_refused(
    run: Run, table: int | None, planned: int, committed: int, says: str
) -> None:
    run.write(table=table, planned=planned, committed=committed)
    with pytest.raises(ConfigError, match=says):
        run.ingest().check_preconditions()


def test_a_lost_checkpoint_and_another_stream_are_refused_unless_rows_may_be_added(
    run: Run,
) -> None:
    run.write(table=1, planned=1, committed=1)
    shutil.rmtree(run.checkpoint)
    with pytest.raises(TableError, match=f"has rows of {NAME}, but this run does not have its che"):
        run.ingest().check_preconditions()
    with pytest.raises(ConfigError, match="has rows that this query did not write: take another t"):
        run.ingest("T").check_preconditions()
    for stream in "ST":
        run.ingest(stream, adopt=True).check_preconditions()
    table = find_table(run.format, TableName(path=str(run.table)))
    assert table is not None
    assert not run.checkpoint.exists()


@pytest.mark.parametrize("planned", [3, 4])
def test_an_older_table_that_was_put_back_is_adopted(run: Run, planned: int) -> None:
    run.write(table=1, planned=planned, committed=3)
    with pytest.raises(ConfigError, match=r"has only 2 batches: .* or set adopt to true"):
        run.ingest().check_preconditions()
    run.ingest(adopt=True).check_preconditions()
    run.write(table=4, planned=4, committed=3)
    run.ingest().check_preconditions()


def test_adopting_leaves_out_no_row_and_makes_no_table(run: Run) -> None:
    with pytest.raises(ConfigError, match="lake has no table to adopt"):
        run.ingest(adopt=True).check_preconditions()
    run.write(table=5, planned=3, committed=3)
    with pytest.raises(ConfigError, match=r"chk is older than .*lake, which has 6 batches"):
        run.ingest(adopt=True).check_preconditions()
    shutil.rmtree(run.table)
    with pytest.raises(ConfigError, match=r"lake does not have: .* Name another folder for the "):
        run.ingest(adopt=True).check_preconditions()


@pytest.mark.parametrize(
    ("checkpoint", "says"),
    [
        ("lake", "is the folder of the table itself"),
        ("x/../lake/", "is the folder of the table itself"),
        (".", "lake would lie in its checkpoint"),
        ("others", r"others holds other things than a checkpoint \(a, …\): take another folder"),
        ("others/a/x", "others/a, another table or checkpoint, and"),
        ("others/a/x/y", "others/a, another table or checkpoint, and"),
        ("lake/chk", "chk is inside of the table, where chk would count as a part of it"),
    ],
)
def test_a_new_checkpoint_has_a_folder_of_its_own(
    run: Run, tmp_path: Path, checkpoint: str, says: str
) -> None:
    for name in ("a", "b"):
        open_or_create_table(
            run.format, TableName(path=f"{tmp_path}/others/{name}"), ROWS.schema, ()
        )
    with pytest.raises(ConfigError, match=says) as raised:
        run.ingest(checkpoint=f"{tmp_path}/{checkpoint}").check_preconditions()
    assert f"such as {tmp_path}/lake/_checkpoint" in str(raised.value)
    run.ingest(checkpoint=f"{tmp_path}/others/chk").check_preconditions()
    run.ingest(checkpoint=None).check_preconditions()


def test_states_are_read_from_folders(tmp_path: Path) -> None:
    assert read_checkpoint(f"{tmp_path}/nowhere") == CheckpointState()
    for file in ("offsets/8", "offsets/9", "offsets/.10.crc", "commits/8", "metadata"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text('{"id":"q"}' if file == "metadata" else "v1")
    assert read_checkpoint(str(tmp_path)) == CheckpointState("q", 9, 8)
    (tmp_path / "offsets" / "8").unlink()
    (tmp_path / "metadata").write_text('{"id":')
    assert read_checkpoint(str(tmp_path)) == CheckpointState(None, 9, 8, lost=8)


def test_only_local_paths_are_checked_before_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_path("lake/x") == "lake/x"
    assert local_path("file:///lake/a%20b") == "/lake/a b"
    assert local_path("s3a://bucket/lake") is None
    assert local_path("file://host/lake") is None
    monkeypatch.setitem(os.environ, "HADOOP_CONF_DIR", "/etc/hadoop")
    assert local_path("lake/x") is None
