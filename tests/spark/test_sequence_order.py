"""Tables that are ordered by `seq` lose no change when sequences begin anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.blocking.eventually import eventually
from tests.support.driven_query import DrivenQuery
from tests.support.ingest_job import ingest_job
from tests.support.streams import Admin
from tests.support.table_readers import by_duckdb

from jetspark.blocking import connect
from jetspark.errors import ConfigError, PipelineError, StreamRecreatedError
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.spark.pipelines.ingest import Ingest
from jetspark.spark.pipelines.pipeline import check_queries
from jetspark.spark.pipelines.pipeline_file import read_pipeline
from jetspark.spark.queries.start import streaming_sources
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.partitions import plan_partitions, read_partition
from jetspark.tables.file_writer import FileWriter
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.table import TableName

pytestmark = pytest.mark.server


class Changes:
    """A stream of changes of the keys a and b, and a table that has them."""

    def __init__(self, admin: Admin, name: str, place: Path) -> None:
        self.admin, self.name, self.place = admin, name, place
        self.made(8)

    def made(self, count: int) -> None:
        self.admin.create(self.name, f"{self.name}.>")
        self.add(count)

    def add(self, count: int) -> None:
        self.admin.fill([(f"{self.name}.{'ab'[n % 2]}", b"%d" % n) for n in range(count)])

    def deleted(self) -> None:
        self.admin.call(f"STREAM.DELETE.{self.name}")

    def restored(self) -> None:
        """From a backup of now."""
        with connect(self.admin.url) as nc:
            nc.jetstream().backup_stream(self.name, self.place / "backup")
            self.deleted()
            nc.jetstream().restore_stream(self.place / "backup")

    def write_table(self, format_: Format, place: Path) -> None:
        """What a run has left: all rows of the stream."""
        options = parse_options({"servers": self.admin.url, "stream": self.name})
        facts = self.admin.facts(self.name)
        [part] = plan_partitions(
            options, [SequenceRange(self.name, 1, facts.last_seq + 1, facts.created)]
        )
        batches = list(read_partition(options, part))
        table = open_or_create_table(format_, TableName(path=str(place)), batches[0].schema, ())
        files = FileWriter(table.layout(1 << 20, "zstd"), table.storage, "part")
        for batch in batches:
            files.write(batch)
        table.append(files.close(), {})

    def ingest(
        self, to: Path | str, options: Mapping[str, str] | None = None, **more: Any
    ) -> Ingest:
        source = {"servers": self.admin.url, "stream": self.name, "startingOffsets": "earliest"}
        given = {"keys": ["subject"], **more}
        return ingest_job(options={**source, **(options or {})}, to=str(to), **given)


@pytest.fixture
def changes(admin: Admin, unique: Callable[[str], str], tmp_path: Path) -> Changes:
    return Changes(admin, unique("ORDER"), tmp_path)


@pytest.mark.parametrize("format_", Format)
def test_a_table_of_an_earlier_stream_is_refused_unless_time_orders_it(
    changes: Changes, tmp_path: Path, format_: Format
) -> None:
    places = [tmp_path / "lake" / "x", tmp_path / "routed" / "one"]
    for place in places:
        changes.write_table(format_, place)

    def check_preconditions(to: Path | str = places[0], **more: Any) -> None:
        changes.ingest(to, format=format_, adopt=True, **more).check_preconditions()

    check_preconditions()
    changes.restored()
    check_preconditions()
    changes.add(3)
    check_preconditions()
    changes.admin.purge(changes.name)
    check_preconditions()
    changes.deleted()
    changes.admin.create(changes.name, f"{changes.name}.>")
    for count in (0, 5, 20):  # shorter than the table, and longer
        if count:
            changes.add(count)
        for history in (False, True):
            with pytest.raises(ConfigError, match=r"up to sequence 8 .* or order by time"):
                check_preconditions(history=history)
    with pytest.raises(ConfigError, match=r"routed/one is ordered by seq, and has rows up to"):
        check_preconditions(f"{tmp_path}/routed/{{subject}}")
    by_time = {"sequenceBy": "timestamp"}
    check_preconditions(table_options=by_time)
    changes.admin.purge(changes.name, seq=20)
    check_preconditions()


def test_streams_share_a_table_only_with_the_stream_as_a_key(
    changes: Changes, unique: Callable[[str], str], tmp_path: Path
) -> None:
    changes.write_table(Format.DELTA, tmp_path / "t")
    other = Changes(changes.admin, unique("OTHER"), tmp_path)
    keys = ["stream", "subject"]
    for one in (changes, other):
        one.ingest(tmp_path / "t", adopt=True, keys=keys).check_preconditions()
    says = f"not of the stream {other.name}, .* but of the stream {changes.name}"
    with pytest.raises(ConfigError, match=says):
        other.ingest(tmp_path / "t", adopt=True).check_preconditions()
    several = {"streams": f"{changes.name},{other.name}"}
    options = {"servers": changes.admin.url, **several}
    job = ingest_job(options=options, to=str(tmp_path / "new"), keys=["subject"])
    with pytest.raises(ConfigError, match="new is ordered by seq, but has many streams"):
        job.check_preconditions()


def test_rows_that_show_no_message_are_of_no_other_stream(changes: Changes, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    changes.write_table(Format.DELTA, tmp_path / "t")
    table = open_table(Format.DELTA, TableName(path=path))
    row = {"seq": 100, "timestamp": datetime(2020, 1, 1, tzinfo=UTC), "subject": "x"}
    files = FileWriter(table.layout(1 << 20, "zstd"), table.storage, "part")
    files.write(pa.RecordBatch.from_pylist([row], table.schema))
    table.append(files.close(), {})
    changes.ingest(path, adopt=True).check_preconditions()


def test_a_mirror_has_the_sequences_of_its_origin(
    changes: Changes, unique: Callable[[str], str], tmp_path: Path
) -> None:
    changes.write_table(Format.DELTA, tmp_path / "t")
    mirror = unique("MIRROR")
    changes.admin.create(mirror, mirror={"name": changes.name})
    eventually(lambda: changes.admin.facts(mirror).messages == 8, within=60)
    changes.ingest(tmp_path / "t", adopt=True, options={"stream": mirror}).check_preconditions()


def test_a_running_query_stops_when_sequences_begin_anew_and_goes_on_when_restored(
    changes: Changes,
) -> None:
    query = DrivenQuery(changes.admin.url, changes.name, ordersBySeq="true", failOnDataLoss="false")
    query.run()
    changes.add(2)
    changes.restored()
    query.run()
    assert query.sequences[-10:] == list(range(1, 11))
    changes.deleted()
    changes.made(3)
    for more in (1, 19):  # shorter than it was, and longer
        changes.add(more)
        with pytest.raises(StreamRecreatedError, match="would be left out as older"):
            query.run()
    changes.admin.purge(changes.name, seq=20)
    query.run()
    assert query.sequences[-4:] == [20, 21, 22, 23]


@pytest.mark.full
@pytest.mark.tables
@pytest.mark.parametrize("format_", list(Format))
def test_the_sentence_of_the_refusal_helps(
    spark: SparkSession, changes: Changes, tmp_path: Path, format_: Format
) -> None:
    to = tmp_path / "lake"

    def run(lenient: bool = True, **more: Any) -> None:
        options = {"failOnDataLoss": str(not lenient).lower()}
        job = changes.ingest(to, options=options, format=format_, **more)
        job.start(spark).awaitTermination(120)

    run()
    changes.deleted()
    changes.made(2)
    with pytest.raises(ConfigError, match="has rows up to sequence 8"):
        run()
    run(table_options={"sequenceBy": "timestamp"})
    rows = by_duckdb(format_, to, "SELECT subject, data, seq FROM t ORDER BY subject")
    assert rows == [(f"{changes.name}.a", b"0", 1), (f"{changes.name}.b", b"1", 2)]


PIPELINE = """
checkpoint = "{place}/chk"
[sources.changes]
servers = "{url}"
stream = "{name}"
starting_offsets = "earliest"
[views.some]
sql = "SELECT * FROM changes WHERE seq > 0"
[sinks.whole]
from = "changes"
format = "jetspark-delta"
path = "{place}/whole"
keys = ["subject"]
sequence_by = "seq"
[sinks.viewed]
from = "some"
format = "jetspark-iceberg"
path = "{place}/viewed"
keys = ["subject"]
sequence_by = "seq"
"""


@pytest.mark.full
@pytest.mark.tables
@pytest.mark.parametrize("sink", ["whole", "viewed"])
def test_sinks_of_a_pipeline_are_checked_and_their_sources_told(
    spark: SparkSession, changes: Changes, tmp_path: Path, sink: str
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(PIPELINE.format(place=tmp_path, url=changes.admin.url, name=changes.name))
    flows = check_queries(read_pipeline(file), spark)
    assert [one.orders_by_seq for one in streaming_sources(flows[sink].rows)] == [True]
    format_ = Format.DELTA if sink == "whole" else Format.ICEBERG
    changes.write_table(format_, tmp_path / sink)
    changes.deleted()
    changes.made(2)
    with pytest.raises(PipelineError, match=f"sink {sink}: .*has rows up to sequence 8"):
        check_queries(read_pipeline(file), spark)
