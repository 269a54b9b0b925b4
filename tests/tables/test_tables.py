"""Delta and Iceberg tables: what one commit adds, and what other readers see of it."""

from __future__ import annotations

import pickle
import shutil
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.support.forked import forked_from
from tests.support.together import together
from tests.tables import conftest
from tests.tables.conftest import Place

from jetspark.errors import CommitConflict, ConfigError, TableError
from jetspark.tables import batches, formats
from jetspark.tables.batches import commit_batch, commit_files, last_batch, overwrite
from jetspark.tables.delta.table import OpenDelta
from jetspark.tables.iceberg.folder import IDENTIFIER, FolderCatalog
from jetspark.tables.new_files import NewFile
from jetspark.tables.table import Table, TableName

FORMATS = [formats.Format.DELTA, formats.Format.ICEBERG]
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("origin", pa.string()),
        ("moment", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("data", pa.binary()),
        ("headers", pa.list_(pa.struct([("k", pa.string()), ("v", pa.string())]))),
    ]
)
ORIGINS = ["EWR", "J F/K=ü", None]
START = datetime(2026, 1, 1, tzinfo=UTC)


def rows(start: int, end: int) -> pa.RecordBatch:
    every = range(start, end)
    return pa.RecordBatch.from_pylist(
        [
            {
                "seq": one,
                "origin": ORIGINS[one % 3],
                "moment": START + timedelta(seconds=one, microseconds=1),
                "day": date(2026, 1, 1 + one % 2),
                "data": b"x",
                "headers": [{"k": "a", "v": str(one)}],
            }
            for one in every
        ],
        schema=SCHEMA,
    )


def fill(table: Table, batches: int) -> None:
    """So many batches of the query q, of ten rows each."""
    for batch in range(batches):
        commit_batch(table, "q", batch, written(table, batch * 10, batch * 10 + 10))
        table.refresh()


def written(table: Table, start: int, end: int) -> list[NewFile]:
    return conftest.written(table, rows(start, end))


@pytest.mark.full
@pytest.mark.parametrize("column_name", ["a b", "Größe", "日本", "50%", "k+v", "a'b"])
def test_others_see_partitions_of_columns_with_odd_names(place: Place, column_name: str) -> None:
    schema = pa.schema([("n", pa.int64()), (column_name, pa.string())])
    table = place.make(schema, column_name)
    for start in (0, 2):
        texts = ["J F/K=ü%", None]
        batch = pa.record_batch([[start, start + 1], texts], schema=schema)
        commit_files(table, conftest.written(table, batch))
        table.refresh()
    quoted = f'"{column_name}"'
    for compacted in (False, True):
        if compacted:
            assert table.compact(10**8).removed == 4
        found = place.duckdb(f"SELECT n, {quoted} FROM t ORDER BY n")
        assert found == [(0, texts[0]), (1, None), (2, texts[0]), (3, None)]
        assert place.polars().sort("n").collect().rows() == found
        asked = place.duckdb(f"SELECT n FROM t WHERE {quoted} IS NULL ORDER BY n")
        assert asked == [(1,), (3,)]


def test_dates_that_python_does_not_have_are_stored(place: Place) -> None:
    kinds = {"on": pa.date32(), "at": pa.timestamp("us", "UTC"), "some": pa.list_(pa.date32())}
    numbers = [3_000_000, 10**18, [3_000_000, -1]]
    table = place.make(pa.schema([("n", pa.int64()), *kinds.items()]))
    widths = (pa.int32(), pa.int64(), pa.list_(pa.int32()))
    columns = [
        pa.array([number], width).cast(kind)
        for number, width, kind in zip(numbers, widths, kinds.values(), strict=True)
    ]
    for n in range(2):
        row = pa.record_batch([pa.array([n]), *columns], names=["n", *kinds])
        assert commit_batch(table, "q", n, conftest.written(table, row))
        table.refresh()
    assert place.duckdb("SELECT n FROM t WHERE n = 1") == [(1,)]
    assert place.duckdb('SELECT count(*) FROM t WHERE year("on") = 10183') == [(2,)]
    found = [one for piece in table.scan_tasks(["at"], None, 1) for one in piece.batches()]
    assert pa.Table.from_batches(found)["at"].cast(pa.int64()).to_pylist() == [10**18, 10**18]


def test_a_query_does_not_go_on_in_a_table_that_has_lost_its_batches(place: Place) -> None:
    table = place.make(SCHEMA)
    commit_batch(table, "q", 0, written(table, 0, 10))
    shutil.rmtree(place.folder)
    table = place.make(SCHEMA)
    with pytest.raises(
        TableError, match="does not have this query's batches 0 to 2: it was removed"
    ):
        commit_batch(table, "q", 3, written(table, 30, 40))
    assert commit_batch(table, "q", 3, written(table, 30, 40), adopt=True)
    assert commit_batch(table, "q", 4, ())


def test_a_query_does_not_go_on_in_an_older_copy_of_its_table(place: Place) -> None:
    table = place.make(SCHEMA)
    fill(table, 2)
    shutil.copytree(place.folder, place.folder.with_name("copy"))
    fill(table, 3)
    shutil.rmtree(place.folder)
    place.folder.with_name("copy").rename(place.folder)
    table = place.open()
    with pytest.raises(
        TableError, match=r"has only this query's batches 0 to 1, .*batch 2.* older copy"
    ):
        commit_batch(table, "q", 3, written(table, 30, 40))
    assert commit_batch(table, "q", 2, written(table, 20, 30))
    assert commit_batch(table, "q", 4, written(table, 40, 50), adopt=True)
    assert commit_batch(table, "q", 5, ())
    assert place.column("seq") == Counter([*range(30), *range(40, 50)])


def _set_back(format_: formats.Format, folder: Path, version: int) -> None:
    if format_ is formats.Format.DELTA:
        DeltaTable(folder).restore(version)
    else:
        found = FolderCatalog(folder).load_table(IDENTIFIER)
        log = found.metadata.snapshot_log
        found.manage_snapshots().rollback_to_snapshot(log[version - 1].snapshot_id).commit()


def test_a_query_does_not_go_on_in_a_table_set_back_before_its_batch(place: Place) -> None:
    table = place.make(SCHEMA)
    fill(table, 3)
    commit_batch(table, "other", 0, written(table, 50, 60))
    _set_back(place.format, place.folder, 3)  # only the other one's batch is lost
    table = place.open()
    assert commit_batch(table, "q", 3, written(table, 30, 40))
    with pytest.raises(TableError, match="set back to a version before this query's batch 0"):
        commit_batch(table, "other", 1, written(table, 60, 70))
    _set_back(place.format, place.folder, 2)
    table = place.open()
    commit_files(table, written(table, 80, 90))
    table.refresh()
    with pytest.raises(TableError, match="set back to a version before this query's batch 3"):
        commit_batch(table, "q", 4, written(table, 40, 50))
    assert commit_batch(table, "q", 4, written(table, 40, 50), adopt=True)
    table.refresh()
    assert commit_batch(table, "q", 5, ())
    assert place.column("seq") == Counter([*range(20), *range(40, 50), *range(80, 90)])


def test_a_folder_of_another_format_or_of_other_files_is_refused(place: Place) -> None:
    """A vacuum would take their files for nobody's."""
    other = next(one for one in FORMATS if one != place.format)
    formats.open_or_create_table(other, place.name, SCHEMA, ())
    said = f"is a table in {other}, not in {place.format}"
    with pytest.raises(ConfigError, match=said):
        place.make(SCHEMA)
    with pytest.raises(ConfigError, match=said):
        formats.find_table(place.format, place.name)
    shutil.rmtree(place.folder)
    place.folder.mkdir()
    (place.folder / "part-0.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"is no \w+ table and holds part-0.parquet"):
        place.make(SCHEMA)
    (place.folder / "part-0.parquet").unlink()
    (place.folder / "_spark_metadata").mkdir()
    with pytest.raises(ConfigError, match="is a table in parquet"):
        place.make(SCHEMA)


def test_a_damaged_table_is_told_in_a_sentence(place: Place) -> None:
    place.make(SCHEMA)
    for one in [*place.folder.glob("_delta_log/*.json"), *place.folder.glob("metadata/*.json")]:
        one.write_text('{"add": ', "utf-8")
    with pytest.raises(TableError, match=r"cannot be read: .* the table is damaged") as error:
        formats.find_table(place.format, place.name)
    assert "\n" not in str(error.value)


def test_a_backtrace_is_not_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RUST_BACKTRACE=1 adds it to what deltalake says."""
    said = "The log ends.\n   0: <unknown>\n   1: clone3\n             at ./clone3.S:81:0\n"

    def fail(_: TableName) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(OpenDelta, "find", fail)
    with pytest.raises(TableError, match="cannot be read: The log ends"):
        formats.find_table(formats.Format.DELTA, TableName(path=str(tmp_path / "t")))


def test_an_iceberg_table_that_was_moved_is_told(place: Place) -> None:
    table = place.make(SCHEMA)
    commit_batch(table, "q", 0, written(table, 0, 10))
    place.folder.rename(place.folder.with_name("moved"))
    moved = TableName(path=str(place.folder.with_name("moved")))
    if place.format is formats.Format.DELTA:
        assert formats.find_table(place.format, moved) is not None
        return
    with pytest.raises(ConfigError, match=r"was moved or copied from .*table, which an Iceberg"):
        formats.find_table(place.format, moved)


def test_a_late_batch_without_rows_does_not_set_the_number_back(place: Place) -> None:
    table = place.make(SCHEMA)
    zombie = place.open()
    for batch in range(2):
        commit_batch(table, "q", batch, written(table, batch * 10, batch * 10 + 10))
    assert not commit_batch(zombie, "q", 0, ())
    assert last_batch(place.open(), "q") == 1


def test_a_batch_that_comes_again_changes_nothing(place: Place) -> None:
    table = place.make(SCHEMA)
    assert commit_batch(table, "q", 0, written(table, 0, 10))
    again = place.open()
    assert not commit_batch(again, "q", 0, written(again, 0, 10))
    assert not commit_batch(table, "q", 0, written(table, 0, 10))  # as it was before the first
    assert commit_batch(again, "other", 0, written(again, 10, 20))
    assert last_batch(place.open(), "q") == 0
    assert place.column("seq") == Counter(range(20))


def test_a_driver_thought_dead_does_not_commit_after_its_successor(place: Place) -> None:
    place.make(SCHEMA)
    zombie, successor = place.open(), place.open()
    files = written(zombie, 0, 10)
    assert commit_batch(successor, "q", 0, written(successor, 0, 10))
    with pytest.raises(CommitConflict):
        zombie.append(files, {"jetspark.batch.q": 0})
    assert not commit_batch(zombie, "q", 0, files)
    assert place.column("seq") == Counter(range(10))


@pytest.mark.full
def test_writers_at_the_same_moment_all_succeed(place: Place) -> None:
    place.make(SCHEMA)

    def write(writer: int) -> None:
        for batch in range(5):
            table = place.open()
            start = writer * 100 + batch * 10
            commit_batch(table, f"q{writer}", batch, written(table, start, start + 10))

    together(write, range(4))
    assert place.column("seq") == Counter(
        writer * 100 + one for writer in range(4) for one in range(50)
    )


def _commit_in_process(format_: formats.Format, name: TableName) -> None:
    fill(formats.open_table(format_, name), 3)


@pytest.mark.full
def test_processes_with_the_same_batches_add_them_once(place: Place) -> None:
    place.make(SCHEMA)
    context = forked_from("jetspark.tables.delta.table", "jetspark.tables.iceberg.table", __name__)
    processes = [
        context.Process(target=_commit_in_process, args=(place.format, place.name))
        for _ in range(3)
    ]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    assert [one.exitcode for one in processes] == [0, 0, 0]
    assert place.column("seq") == Counter(range(30))


def test_a_query_whose_checkpoint_is_lost_is_refused(place: Place) -> None:
    table = place.make(SCHEMA)
    commit_batch(table, "first", 0, written(table, 0, 10), name="flow/lake")
    table.refresh()
    with pytest.raises(TableError, match=r"already has rows of flow/lake, .* set adopt"):
        commit_batch(table, "second", 0, written(table, 0, 10), name="flow/lake")
    assert commit_batch(table, "second", 0, written(table, 0, 10), name="flow/lake", adopt=True)
    table.refresh()
    assert commit_batch(table, "second", 1, written(table, 0, 10), name="flow/lake")
    assert commit_batch(table, "third", 0, (), name="other")


def test_files_in_place_of_all_that_was_there(place: Place) -> None:
    table = place.make(SCHEMA, "origin")
    for start in (0, 10):
        commit_files(table, written(table, start, start + 10))
        table.refresh()
    commit_files(table, written(table, 50, 60), overwrite)
    assert place.column("seq") == Counter(range(50, 60))


def test_a_new_column_is_null_in_the_rows_that_are_there(place: Place) -> None:
    table = place.make(SCHEMA)
    files = written(table, 0, 10)  # before the column, committed after it
    table.add_columns([pa.field("more", pa.string())])
    table = place.open()
    commit_files(table, files)
    assert place.column("more") == Counter([None] * 10)
    assert table.schema.names == [*SCHEMA.names, "more"]


def test_a_table_is_made_once_by_two_that_want_it(place: Place) -> None:
    first = place.make(SCHEMA, "day")
    assert place.make(SCHEMA, "day").location == first.location
    with pytest.raises(CommitConflict):
        type(first).create(place.name, SCHEMA, (), {})  # type: ignore[attr-defined]


def test_what_is_in_a_folder(place: Place) -> None:
    assert formats.format_of(place.folder) is None
    assert formats.find_table(place.format, place.name) is None
    with pytest.raises(ConfigError, match=f"no {place.format.capitalize()} table at"):
        place.open()
    place.make(SCHEMA)
    assert formats.format_of(place.folder) is place.format


@pytest.mark.parametrize(
    ("schema", "partition_by", "said"),
    [
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), (), "'a' and 'A'"),
        (pa.schema([("a", pa.int64())]), ("b",), "no column 'b'; there are a"),
        (pa.schema([("a", pa.int64())]), ("a",), "every column"),
        (pa.schema([("a", pa.int64()), ("b", pa.binary())]), ("b",), "binary"),
        (pa.schema([("a", pa.float64()), ("b", pa.int64())]), ("a",), "double"),
        (pa.schema([("a", pa.duration("us"))]), (), "does not support a column"),
    ],
)
def test_columns_that_no_table_has(
    place: Place, schema: pa.Schema, partition_by: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        place.make(schema, *partition_by)
    assert formats.find_table(place.format, place.name) is None


def test_commits_without_end_are_reported(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.make(SCHEMA)
    monkeypatch.setattr(batches, "CONFLICT_TIMEOUT_SECONDS", 0.0)

    def conflict(*_: Any) -> None:
        raise CommitConflict("again")

    monkeypatch.setattr(table, "append", conflict)
    with pytest.raises(TableError, match="without a break"):
        commit_batch(table, "q", 0, ())


def test_rows_are_read_in_pieces_of_the_files_that_are_wanted(place: Place) -> None:
    table = place.make(SCHEMA, "origin")
    for start in (0, 10):
        commit_files(table, written(table, start, start + 10))
        table.refresh()
    pieces = pickle.loads(pickle.dumps(table.scan_tasks(["seq", "origin"], None, at_least=2)))
    assert len(pieces) >= 2
    found = [row for one in pieces for batch in one.batches() for row in batch.to_pylist()]
    assert sorted(row["seq"] for row in found) == list(range(20))
    assert set(found[0]) == {"seq", "origin"}
    pruned = table.scan_tasks(["seq"], "origin = 'EWR' and seq < 5", at_least=1)
    assert {
        row["seq"] for one in pruned for batch in one.batches() for row in batch.to_pylist()
    } == {0, 3, 6, 9}
    with pytest.raises(ConfigError, match="prune"):
        table.scan_tasks(["seq"], "origin ==== 1", at_least=1)


def test_a_library_that_is_missing_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    library = {formats.Format.DELTA: "deltalake", formats.Format.ICEBERG: "pyiceberg"}[place.format]
    for name in [one for one in sys.modules if one.startswith(f"jetspark.tables.{place.format}")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [one for one in sys.modules if one.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ConfigError, match=rf"need {library}: pip install 'jetspark\[{place.format}\]'"
    ):
        formats.check_library(place.format)
