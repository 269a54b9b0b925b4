"""A table, its checkpoint and its query belong together, or nothing is read or written."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.support.streams import Admin, numbered

from jetspark.errors import ConfigError, PipelineError
from jetspark.spark import table_claim
from jetspark.spark.ingest import Ingest
from jetspark.spark.pipeline import check_tables, start
from jetspark.spark.pipeline_file import read_pipeline
from jetspark.spark.starting import begun
from jetspark.spark.table_files import HadoopFiles
from jetspark.spark.table_keeper import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from jetspark.server import NatsServer

SECONDS = 300
MADE_AGAIN = "where it is rebuilt from the table's note"


class Lake:
    """Streams of 30 messages, and tables made of them in batches of 20 sequences."""

    def __init__(
        self, spark: SparkSession, server: NatsServer, admin: Admin, folder: Path, name: str
    ) -> None:
        self.spark, self.server, self.admin, self.folder = spark, server, admin, folder
        self.a, self.b = f"{name}_A", f"{name}_B"
        for stream in (self.a, self.b):
            admin.create(stream, stream)
            self.fill(stream, 30)

    def fill(self, stream: str, count: int) -> None:
        self.admin.fill(numbered(stream, count))

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def ingest(self, stream: str, to: str, checkpoint: str | None = None, **more: Any) -> Ingest:
        options = {
            "servers": self.server.url, "stream": stream, "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "20", **more.pop("options", {}),
        }  # fmt: skip
        place = None if checkpoint is None else self.path(checkpoint)
        return Ingest(
            options=options, to=self.path(to), checkpoint=place, **{"format": "parquet"} | more
        )

    def run(self, stream: str, to: str, checkpoint: str | None = None, **more: Any) -> None:
        job = self.ingest(stream, to, checkpoint, **more)
        job.look_ahead()
        assert job.start(self.spark).awaitTermination(SECONDS)
        settle()  # as at the end of a session; nothing here is to happen a moment later

    def refused(
        self, says: str, stream: str, to: str, checkpoint: str | None = None, **more: Any
    ) -> None:
        """With and without Spark, and nothing was changed."""
        before = files(self.folder)
        job = self.ingest(stream, to, checkpoint, **more)
        late = more.keys() & {"json_schema", "options"}  # columns need Spark
        if not late:
            with pytest.raises(ConfigError, match=says):
                job.look_ahead()
        with pytest.raises(ConfigError, match=says):
            job.start(self.spark)
        assert files(self.folder) == before

    def rows(self, to: str) -> Counter[tuple[str, int]]:
        path = to if ":" in to else self.path(to)
        found = self.spark.read.parquet(path).select("stream", "seq").collect()
        return Counter((row.stream, row.seq) for row in found)

    def pyspark(self, stream: str, to: str, checkpoint: str) -> None:
        """As the README has it, without jetspark's ingest."""
        rows = self.spark.readStream.format("jetstream").options(
            servers=self.server.url, stream=stream, startingOffsets="earliest",
            maxOffsetsPerTrigger="20",
        ).load()  # fmt: skip
        query = begun(
            rows.writeStream.format("parquet").option("path", self.path(to))
            .option("checkpointLocation", self.path(checkpoint))
            .trigger(availableNow=True).start
        )  # fmt: skip
        assert query.awaitTermination(SECONDS)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def once(stream: str, count: int) -> Counter[tuple[str, int]]:
    return Counter((stream, seq) for seq in range(1, count + 1))


def newest_note(table: Path) -> Path:
    return max(table.glob("_jetspark/note-*.json"))


@pytest.fixture
def lake(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Lake:
    monkeypatch.setattr(table_claim, "LOCK_PATIENCE", 0.5)
    return Lake(spark, shared_server, admin, tmp_path, unique("LAKE"))


def test_a_second_stream_is_refused_on_a_table(lake: Lake) -> None:
    lake.run(lake.a, "x")
    says = f"is the table of {lake.a}, not of {lake.b}: take another folder"
    lake.refused(says, lake.b, "x")
    lake.refused(says, lake.b, "x", "chk")
    lake.fill(lake.a, 10)
    lake.run(lake.a, "x")
    assert lake.rows("x") == once(lake.a, 40)


def test_a_lost_checkpoint_is_made_again(lake: Lake) -> None:
    lake.run(lake.a, "x")
    shutil.rmtree(lake.path("x/_checkpoint"))
    lake.fill(lake.a, 10)
    lake.run(lake.a, "x")
    assert lake.rows("x") == once(lake.a, 40)
    # Another folder for it is the same, and the one before is not taken any more.
    lake.fill(lake.a, 5)
    lake.run(lake.a, "x", "chk")
    assert lake.rows("x") == once(lake.a, 45)
    lake.refused(f"not the checkpoint of .*{MADE_AGAIN}", lake.a, "x")
    # Cut off while it was made again.
    lake.fill(lake.a, 5)
    Path(lake.path("chk/metadata")).unlink()
    lake.run(lake.a, "x", "chk")
    assert lake.rows("x") == once(lake.a, 50)


def test_a_checkpoint_that_cannot_be_written_to_leaves_the_table_its_own(lake: Lake) -> None:
    lake.run(lake.a, "x")
    (lake.folder / "file").write_text("")
    for place in ("file", "file/below"):
        lake.refused("file is a file: name a folder for the checkpoint", lake.a, "x", place)
    lake.refused("file is a file: name a folder for the table", lake.a, "file/x", "chk")
    with pytest.raises(ConfigError, match=r"chk cannot be made \(No such file or directory\)\.$"):
        lake.ingest(lake.a, "x", "/proc/none/chk").start(lake.spark)
    lake.fill(lake.a, 5)
    lake.run(lake.a, "x")
    assert lake.rows("x") == once(lake.a, 35)


def test_a_checkpoint_that_cannot_be_made_again_is_refused(lake: Lake) -> None:
    lake.run(lake.a, "x")
    note = newest_note(lake.folder / "x")
    document = json.loads(note.read_text())
    shutil.rmtree(lake.path("x/_checkpoint"))
    for progress in (None, {**document["progress"], "batch": 0}, {"batch": 1}):
        note.write_text(json.dumps(document | {"progress": progress}))
        (note.parent / f".{note.name}.crc").unlink(missing_ok=True)
        lake.refused("has 2 batches, and it cannot be made again", lake.a, "x")


def test_a_checkpoint_of_another_table_is_refused(lake: Lake) -> None:
    lake.run(lake.a, "x", "chk")
    lake.refused("counts 2 batches as read that .*/y does not have", lake.a, "y", "chk")
    lake.run(lake.a, "y", "other")
    lake.refused(f"other is not the checkpoint of .*/x: .*{MADE_AGAIN}", lake.a, "x", "other")
    lake.run(lake.b, "z", "third")
    lake.refused("is the table of", lake.b, "x", "third")
    shutil.rmtree(lake.path("x"))
    lake.refused("counts 2 batches as read that .*/x does not have", lake.a, "x", "chk")


def test_a_table_that_has_lost_a_part_is_refused(lake: Lake) -> None:
    lake.run(lake.a, "x")
    shutil.copytree(lake.path("x"), lake.path("backup"))
    lake.fill(lake.a, 30)
    lake.run(lake.a, "x")
    shutil.copytree(lake.path("x/_checkpoint"), lake.path("newer"))
    shutil.rmtree(lake.path("x/_checkpoint"))
    shutil.copytree(lake.path("backup/_checkpoint"), lake.path("x/_checkpoint"))
    lake.refused(f"is older than .*, which has 4 batches: .*{MADE_AGAIN}", lake.a, "x")
    shutil.rmtree(lake.path("x"))
    shutil.copytree(lake.path("backup"), lake.path("x"))
    lake.refused("counts 4 batches as read, but .* has only 2 batches", lake.a, "x", "newer")
    shutil.rmtree(lake.path("x/_spark_metadata"))
    lake.refused("has lost Spark's list of its files", lake.a, "x")


def test_a_batch_planned_by_a_copy_of_the_checkpoint_is_not_taken_for_the_table_s(
    lake: Lake,
) -> None:
    lake.run(lake.a, "x", "chk")
    shutil.copytree(lake.path("chk"), lake.path("copy"))
    lake.fill(lake.a, 10)
    lake.run(lake.a, "x", "chk")
    # The copy had planned the same batch with another end, and was killed.
    planned = Path(lake.path("chk/offsets/2")).read_text().replace('"next": 41', '"next": 36')
    Path(lake.path("copy/offsets/2")).write_text(planned)
    lake.refused("copy is older than", lake.a, "x", "copy")
    Path(lake.path("copy/metadata")).unlink()
    before = files(lake.folder)
    with pytest.raises(ConfigError, match="copy has lost its file metadata: name an empty folder"):
        lake.ingest(lake.a, "x", "copy").start(lake.spark)
    assert files(lake.folder) == before


def test_after_a_restore_a_new_checkpoint_loses_nothing_in_silence(lake: Lake) -> None:
    lake.run(lake.a, "x")
    lake.admin.call(f"STREAM.DELETE.{lake.a}")
    lake.admin.create(lake.a, lake.a)
    lake.fill(lake.a, 50)
    # The lost checkpoint's place is taken by the note, which knows when the stream was made.
    for checkpoint in (None, "new", "newer"):
        with pytest.raises(StreamingQueryException, match="StreamRecreatedError"):
            lake.run(lake.a, "x", checkpoint)
        settle()
        assert lake.rows("x") == once(lake.a, 30)
    lake.run(lake.a, "y", "own", options={"startingOffsets": "31"})
    assert sorted(seq for _, seq in lake.rows("y")) == list(range(31, 51))


def test_files_that_no_query_wrote_are_not_hidden(lake: Lake) -> None:
    lake.spark.range(3).write.parquet(lake.path("x"))
    lake.refused("holds files that no streaming query of Spark has listed", lake.a, "x")
    assert lake.spark.read.parquet(lake.path("x")).count() == 3
    (lake.folder / "file").touch()
    lake.refused("is a file: name a folder", lake.a, "file", "chk")


def test_other_columns_partitions_and_streams_are_refused(lake: Lake) -> None:
    lake.run(lake.a, "x", partition_by=["token=substring(subject, 1, 1)"])
    same: dict[str, Any] = {"partition_by": ["token=substring(subject, 1, 1)"]}
    lake.refused("is partitioned by token, not by nothing", lake.a, "x")
    lake.refused(
        "other columns than it has .new: id string; new: _corrupt_record string; missing: data.",
        lake.a, "x", json_schema="id STRING", **same,
    )  # fmt: skip
    lake.refused(
        "token: int in place of string", lake.a, "x",
        json_schema=None, partition_by=["token=length(subject)"],
    )  # fmt: skip
    lake.fill(lake.a, 1)
    lake.run(lake.a, "x", **same)
    assert lake.rows("x") == once(lake.a, 31)


def test_a_table_of_a_plain_query_is_refused_or_adopted(lake: Lake) -> None:
    lake.pyspark(lake.a, "x", "chk")
    lake.refused("that jetspark knows nothing of", lake.a, "x")
    lake.refused("--adopt", lake.a, "x", "chk")
    lake.refused("is not its checkpoint", lake.a, "x", adopt=True)
    lake.refused(f"a query on {lake.a}, not on {lake.b}", lake.b, "x", "chk", adopt=True)
    lake.refused("this query writes others", lake.a, "x", "chk", adopt=True, json_schema="i INT")
    lake.refused(
        "partitioned by nothing", lake.a, "x", "chk", adopt=True, partition_by=["seq"], options={}
    )
    lake.fill(lake.a, 10)
    lake.run(lake.a, "x", "chk", adopt=True)
    lake.run(lake.a, "x", "chk")
    assert lake.rows("x") == once(lake.a, 40)


def test_a_plain_query_that_went_on_in_a_table_is_noticed(lake: Lake) -> None:
    lake.run(lake.a, "x")
    lake.fill(lake.b, 30)
    lake.pyspark(lake.b, "x", "chk")  # two batches skipped by Spark's sink, and one written
    lake.refused("is older than .*, which has 3 batches", lake.a, "x")


def test_a_plain_query_that_took_the_number_of_a_planned_batch_is_noticed(lake: Lake) -> None:
    lake.run(lake.a, "x")
    lake.fill(lake.a, 10)
    # As a run leaves it that was killed while it wrote.
    last = Path(lake.path("x/_checkpoint/offsets/1")).read_text()
    planned = Path(lake.path("x/_checkpoint/offsets/2"))
    planned.write_text(last.replace('"next": 31', '"next": 41'))
    copy = shutil.copytree(lake.path("x"), lake.path("copy"))
    lake.fill(lake.b, 30)
    lake.pyspark(lake.b, "x", "chk")
    before = files(lake.folder)
    with pytest.raises(ConfigError, match="Another query has written into"):
        lake.ingest(lake.a, "x").start(lake.spark)
    assert files(lake.folder) == before
    shutil.rmtree(lake.path("x"))
    shutil.move(copy, lake.path("x"))
    lake.run(lake.a, "x")
    assert lake.rows("x") == once(lake.a, 40)


def test_a_second_run_is_refused_and_the_first_goes_on(lake: Lake) -> None:
    first = lake.ingest(lake.a, "x", follow=True, interval=0.1).start(lake.spark)
    try:
        with pytest.raises(ConfigError, match=r"Another query of this process writes .*/x"):
            lake.ingest(lake.a, "x").start(lake.spark)
        # What another process finds; the JVM has the lock, not this one.
        with pytest.raises(ConfigError, match=r"Another run writes .*/x \(process \d+ on "):
            lake.ingest(lake.a, "x", "chk").look_ahead()
        lake.fill(lake.a, 10)
        first.processAllAvailable()
        assert first.isActive
    finally:
        first.stop()
    assert lake.rows("x") == once(lake.a, 40)
    lake.fill(lake.a, 1)
    lake.run(lake.a, "x")
    assert lake.rows("x") == once(lake.a, 41)


def test_what_a_kill_leaves_is_cleared_or_gone_on_with(lake: Lake) -> None:
    checkpoint = lake.folder / "chk"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / ".0.1b2c.tmp").write_text("v1\n")
    (checkpoint / "metadata").write_text("")  # cut off
    lake.run(lake.a, "x", "chk")
    assert lake.rows("x") == once(lake.a, 30)
    # The last batch was written, and not yet noted as done.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink()
    lake.fill(lake.a, 10)
    lake.run(lake.a, "x", "chk")
    assert lake.rows("x") == once(lake.a, 40)


def test_a_table_belongs_to_no_query_until_its_first_batch_is_done(lake: Lake) -> None:
    lake.run(lake.a, "y", "other")
    # What a kill in the first batch leaves: a note, a checkpoint that has planned it, its files.
    (lake.folder / "x" / "_jetspark").mkdir(parents=True)
    note = json.loads(newest_note(lake.folder / "y").read_text()) | {"progress": None}
    (lake.folder / "x" / "_jetspark" / "note-000000.json").write_text(json.dumps(note))
    shutil.copy(next((lake.folder / "y").glob("*.parquet")), lake.folder / "x")
    (lake.folder / "chk" / "offsets").mkdir(parents=True)
    for name in ("metadata", "offsets/0"):
        shutil.copy(lake.folder / "other" / name, lake.folder / "chk" / name)
    lake.refused(f"is the checkpoint of a query on {lake.a}, not on {lake.b}", lake.b, "x", "chk")
    lake.run(lake.b, "x", "new")
    assert lake.rows("x") == once(lake.b, 30)
    (left,) = (lake.folder / "x" / "_jetspark").glob("note-*.json")
    assert json.loads(left.read_text())["streams"] == [lake.b]
    other = lake.path("x-2")
    says = f"is the table of {lake.b}, not of {lake.a}: take another folder, such as {other}[.]"
    lake.refused(says, lake.a, "x", "chk")
    lake.run(lake.a, "x-2", "chk")
    assert lake.rows("x-2") == once(lake.a, 30)


def test_elsewhere_a_lease_does_what_the_lock_does_here(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_claim, "LEASE_EVERY", 0.1)
    monkeypatch.setattr(table_claim, "LEASE_OVER", 6.0)
    mount = f"spark.hadoop.fs.viewfs.mounttable.m{lake.a[-10:-2]}.link./lake"
    conf = lake.spark._jsc.hadoopConfiguration()
    conf.set(mount.removeprefix("spark.hadoop."), f"file://{lake.folder}")
    table = f"viewfs://m{lake.a[-10:-2]}/lake/x"

    def job(**more: Any) -> Ingest:
        options = {"servers": lake.server.url, "stream": lake.a, "startingOffsets": "earliest"}
        return Ingest(options=options, to=table, format="parquet", **more)

    assert job().start(lake.spark).awaitTermination(SECONDS)
    settle()
    job().look_ahead()  # nothing can be known
    shutil.rmtree(lake.path("x/_checkpoint"))
    query = job(follow=True, interval=0.1).start(lake.spark)
    try:
        lake.fill(lake.a, 10)
        query.processAllAvailable()
        lease = lake.folder / "x" / "_jetspark" / "lease"
        claim = table_claim.claim_on(HadoopFiles(lake.spark), table)
        with pytest.raises(ConfigError, match=r"Another run writes viewfs:.* \(process \d+ on"):
            claim.check()
    finally:
        query.stop()
    assert lake.rows(table) == once(lake.a, 40)
    # One that a crash has left.
    settle()
    assert not lease.exists()
    lease.write_text("process 1 on nowhere, 0, 1")
    (lease.parent / ".lease.crc").unlink(missing_ok=True)
    monkeypatch.setattr(table_claim, "LEASE_OVER", 0.5)
    lake.fill(lake.a, 1)
    assert job().start(lake.spark).awaitTermination(SECONDS)
    assert lake.rows(table) == once(lake.a, 41)


def test_a_pipeline_s_table_knows_its_query(lake: Lake, tmp_path: Path) -> None:
    def pipeline(checkpoint: str, stream: str, sql: str = "SELECT * FROM rows") -> Any:
        file = tmp_path / "pipeline.toml"
        file.write_text(
            f'checkpoint = "{tmp_path}/{checkpoint}"\n[sources.rows]\nservers = '
            f'"{lake.server.url}"\nstream = "{stream}"\nstartingOffsets = "earliest"\n'
            f'[views.v]\nsql = "{sql}"\n[sinks.lake]\nformat = "json"\npath = "{tmp_path}/x"\n'
        )
        return read_pipeline(file)

    def run(*arguments: str) -> None:
        (query,) = start(pipeline(*arguments), lake.spark).values()
        assert query.awaitTermination(SECONDS)
        settle()

    run("chk", lake.a, "SELECT stream, seq FROM rows")
    before = files(lake.folder / "x")
    with pytest.raises(PipelineError, match=r"sink lake: .*x is the table of"):
        run("other", lake.b, "SELECT stream, seq FROM rows")
    with pytest.raises(PipelineError, match=r"sink lake: .*missing: stream"):
        run("chk", lake.a, "SELECT seq FROM rows")
    shutil.copytree(tmp_path / "chk", tmp_path / "copy")
    (tmp_path / "copy" / "lake" / "metadata").write_text('{"id":"another"}')
    with pytest.raises(PipelineError, match=r"sink lake: .*lake is not the checkpoint of"):
        check_tables(pipeline("copy", lake.a))
    assert files(lake.folder / "x") == before
    shutil.rmtree(tmp_path / "chk")
    lake.fill(lake.a, 10)
    run("chk", lake.a, "SELECT stream, seq FROM rows")
    table = lake.spark.read.json(lake.path("x")).collect()
    assert Counter((row.stream, row.seq) for row in table) == once(lake.a, 40)
