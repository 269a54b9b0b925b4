"""Small files of a query are merged by the query itself."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from deltalake import DeltaTable, TableFeatures
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.support.numbers_table import SCHEMA, written

from jetspark.errors import ConfigError, TableError
from jetspark.spark.table_sink.data_sources import written_schemas
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.options import default_compaction
from jetspark.spark.table_sink.table_preparation import prepare
from jetspark.spark.table_sink.task_output import TaskCommit, TaskOutput
from jetspark.spark.table_sink.writers import LakehouseStreamWriter
from jetspark.tables import maintenance
from jetspark.tables.batches import commit_batch, last_batch
from jetspark.tables.delta.maintenance import REWRITE_CLAIM
from jetspark.tables.formats import Format
from jetspark.tables.maintenance import due_file_size, merge_small_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tables.conftest import Place

    from jetspark.tables.table import Table

SIZE = 10**8


@pytest.fixture
def small(place: Place) -> Place:
    """A table of five batches, in two partitions: ten files."""
    table = place.make(SCHEMA, "kind")
    for batch in range(5):
        commit_batch(table, "q", batch, written(table, batch * 10, batch * 10 + 10))
        table.refresh()
    return place


def test_each_table_has_its_turn_after_so_many_commits_and_rarely_for_full_files() -> None:
    def table(name: str, commits: int) -> Table:
        return cast("Table", SimpleNamespace(name=name, commits=commits))

    turns: Counter[int] = Counter()
    for number in range(100):
        sizes = [
            due_file_size(table(f"lake/{number}", commits), 10, 1600) for commits in range(1600)
        ]
        at = [commits for commits, size in enumerate(sizes) if size is not None]
        assert at == list(range(at[0], 1600, 10))
        assert Counter(sizes) == {None: 1440, 100: 150, 1600: 10}
        turns[at[0]] += 1
    assert len(turns) == 10


def test_files_are_merged_to_the_size_that_is_due_and_rows_stay(small: Place) -> None:
    merge_small_files([(small.open(), SIZE)])
    table = small.open()
    assert table.facts().files == 2
    assert small.column("n") == Counter(range(50))
    assert last_batch(table, "q") == 4
    assert not commit_batch(table, "q", 4, written(table, 40, 50))
    before = table.version
    merge_small_files([(table, SIZE)])
    assert small.open().version == before


def test_too_much_and_too_many_are_left(small: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(maintenance, "_MAX_BYTES", 100)
        merge_small_files([(small.open(), SIZE)])
    monkeypatch.setattr(maintenance, "_MAX_SECONDS", 0.0)
    merge_small_files([(small.open(), SIZE)])
    assert small.open().facts().files == 10


@pytest.mark.parametrize("place", [Format.DELTA], indirect=True)
def test_it_gives_way_to_whoever_else_compacts_the_table(small: Place) -> None:
    table = small.open()
    table.append((), {REWRITE_CLAIM: 2**33})
    merge_small_files([(small.open(), SIZE)])
    assert small.open().facts().files == 10
    table.refresh()
    table.append((), {REWRITE_CLAIM: 0})
    DeltaTable(small.folder).optimize.compact()
    table = small.open()
    commit_batch(table, "q", 5, written(table, 50, 60))
    merge_small_files([(small.open(), SIZE)])
    assert small.open().facts().files == 4


@pytest.mark.parametrize("place", [Format.DELTA], indirect=True)
def test_a_table_that_cannot_be_compacted_does_not_end_the_query(small: Place) -> None:
    DeltaTable(small.folder).alter.add_feature(
        TableFeatures.RowTracking, allow_protocol_versions_increase=True
    )
    merge_small_files([(small.open(), SIZE)])
    assert small.open().facts().files == 10


def test_a_failure_is_for_the_next_turn_unless_rows_may_be_there_twice(
    small: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing_with(error: Exception) -> Table:
        def fail(_: int) -> None:
            raise error

        table = small.open()
        monkeypatch.setattr(table, "compact", fail)
        return table

    merge_small_files([(failing_with(OSError("no route")), SIZE)])
    with pytest.raises(TableError, match="twice"):
        merge_small_files([(failing_with(TableError("there twice")), SIZE)])


@pytest.mark.full
def test_a_query_merges_what_its_batches_have_added(place: Place, tmp_path: Path) -> None:
    given = {"path": str(place.folder), "compactEvery": "4", "partitionBy": "kind"}
    options = parse_lakehouse_options(place.format, given).for_streaming()
    rows = StructType([StructField("n", LongType()), StructField("kind", StringType())])
    target = prepare(options, written_schemas(options, rows))
    for batch in range(12):
        files = written(place.open(), batch * 10, batch * 10 + 10)
        for _ in range(2):  # the second time it is there
            writer = LakehouseStreamWriter(options, target, replace=False)
            writer.commit([TaskCommit("q", TaskOutput(tuple(files)))], batch)
    assert place.open().facts().files < 12
    assert place.column("n") == Counter(range(120))


def test_who_follows_a_stream_merges_unless_that_was_decided() -> None:
    def more(**given: str) -> dict[str, str]:
        return default_compaction(parse_lakehouse_options(Format.DELTA, {"path": "t", **given}))

    assert more() == {"compactEvery": "100"}
    assert more(keys="n") == more(compactEvery="0") == more(compactEvery="7") == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keys": "n", "compactEvery": "5"}, "is for tables to which rows are added"),
        ({"compactEvery": "-1"}, "must be a whole number of at least 0"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_lakehouse_options(Format.DELTA, {"path": "t", **given})
    with pytest.raises(ConfigError, match="compact_every is for streaming queries"):
        parse_lakehouse_options(Format.DELTA, {"path": "t", "compactEvery": "5"}).for_batch()
