"""Few large files in place of many small ones, old files removed, while others write and read."""

from __future__ import annotations

import importlib
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from deltalake import DeltaTable
from deltalake.schema import Schema
from hypothesis import given
from hypothesis import strategies as st
from tests.support.numbers_table import SCHEMA, written
from tests.support.table_readers import column
from tests.support.together import together
from tests.tables.conftest import Place

from jetspark.cli import app
from jetspark.errors import CommitConflict, ConfigError, TableError
from jetspark.tables import batches
from jetspark.tables.batches import commit_batch, commit_files, last_batch, overwrite
from jetspark.tables.delta import maintenance as delta_maintenance
from jetspark.tables.delta.maintenance import REWRITE_CLAIM
from jetspark.tables.delta.table import OpenDelta
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.iceberg import table as iceberg
from jetspark.tables.iceberg.folder import IDENTIFIER, FolderCatalog
from jetspark.tables.maintenance import group_small_files
from jetspark.tables.table import Table, TableName, Vacuum

of_delta = pytest.mark.parametrize("place", [Format.DELTA], indirect=True)
of_iceberg = pytest.mark.parametrize("place", [Format.ICEBERG], indirect=True)
HOUR = timedelta(hours=1)
MONTH = 30 * 24 * 3600 * 1000


@pytest.fixture
def ten(place: Place) -> Place:
    """A table of ten batches, in two partitions."""
    table = place.make(SCHEMA, "kind")
    for batch in range(10):
        commit_batch(table, "q", batch, written(table, batch * 10, batch * 10 + 10))
        table.refresh()
    return place


def grow_old(folder: Path) -> None:
    """Every file was written two hours ago."""
    then = time.time() - 7200
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


@pytest.mark.full
def test_small_files_of_a_partition_become_one_with_the_same_rows(ten: Place) -> None:
    table = ten.open()
    assert table.facts().files == 20
    done = table.compact(10**8)
    assert (done.removed, done.added) == (20, 2)
    table = ten.open()
    facts = table.facts()
    assert (facts.rows, facts.files) == (100, 2)
    assert last_batch(table, "q") == 9
    assert ten.column("n") == Counter(range(100))
    assert table.compact(10**8).removed == 0


@pytest.mark.full
def test_rows_that_come_while_a_table_is_compacted_are_kept(ten: Place) -> None:
    done = threading.Event()
    looks: list[int] = []

    def write() -> None:
        try:
            for batch in range(10, 25):
                mine = ten.open()
                commit_batch(mine, "q", batch, written(mine, batch * 10, batch * 10 + 10))
        finally:
            done.set()

    def look() -> None:
        while not done.is_set():
            sql = "SELECT count(*), count(DISTINCT n), max(n) FROM t"
            ((rows, distinct, last),) = ten.duckdb(sql)
            assert rows == distinct == last + 1
            looks.append(rows)

    def compact() -> None:
        while not done.is_set():
            ten.open().compact(10**8)

    together(lambda one: one(), (write, look, compact))
    assert looks
    assert ten.column("n") == Counter(range(250))
    assert last_batch(ten.open(), "q") == 24


@pytest.mark.full
def test_compactions_at_the_same_moment_do_not_double_rows(ten: Place) -> None:
    """deltalake by itself lets both commit. Each file is replaced once; the others are told."""
    tables = [ten.open() for _ in range(4)]
    barrier = threading.Barrier(4)
    said: list[str] = []

    def compact(table: Table) -> None:
        barrier.wait()
        try:
            said.append(f"{table.compact(10**8).removed}")
        except CommitConflict as error:
            said.append(str(error))

    together(compact, tables)
    assert sum(int(one) for one in said if one.isdigit()) == 20, said
    assert all(
        "is being compacted" in one or "was changed" in one for one in said if not one.isdigit()
    )
    assert ten.column("n") == Counter(range(100))


@of_delta
def test_overwriting_while_compacting_leaves_no_old_row(
    ten: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "CONFLICT_TIMEOUT_SECONDS", 0.0)
    table = ten.open()
    overwriting = ten.open()
    table.compact(10**8)  # which a stale overwrite does not see, either
    commit_files(overwriting, written(overwriting, 500, 510), overwrite)
    assert ten.column("n") == Counter(range(500, 510))
    other = ten.open()
    assert isinstance(other, OpenDelta)
    now = int(time.time())
    other.append((), {REWRITE_CLAIM: now + 100})
    with pytest.raises(TableError, match=r"others have|other writers"):
        commit_files(other, written(other, 0, 10), overwrite)
    with pytest.raises(CommitConflict, match=r"is being compacted or overwritten .* after .* UTC"):
        other.compact(10**8)
    other.append((), {REWRITE_CLAIM: now - 1})  # of a program that was killed
    assert other.compact(10**8).removed == 0


def test_a_table_that_only_takes_rows_added_is_not_overwritten(tmp_path: Path) -> None:
    name = TableName(path=str(tmp_path / "table"))
    DeltaTable.create(
        str(name.path), Schema.from_arrow(SCHEMA), configuration={"delta.appendOnly": "true"}
    )
    table = open_table(Format.DELTA, name)
    with pytest.raises(ConfigError, match=r"is append-only \(delta.appendOnly=true\)"):
        commit_files(table, written(table, 0, 10), overwrite)


@of_delta
def test_a_claim_is_renewed_while_the_work_goes_on_and_its_loss_is_told(
    ten: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_maintenance, "_RENEW_INTERVAL_SECONDS", 0.01)
    table, other, third = (ten.open() for _ in range(3))
    assert isinstance(table, OpenDelta)
    assert isinstance(other, OpenDelta)
    with pytest.raises(TableError, match="another program has taken"):  # noqa: SIM117
        with delta_maintenance.claim_table(table, other):
            first = number = table.txn_version(REWRITE_CLAIM)
            deadline = time.monotonic() + 60
            while number == first and time.monotonic() < deadline:
                third.refresh()
                number = third.txn_version(REWRITE_CLAIM)
            assert number != first
            assert isinstance(third, OpenDelta)
            while True:
                third.refresh()
                try:
                    third.append((), {REWRITE_CLAIM: 7})
                    break
                except CommitConflict:
                    continue


@of_delta
def test_another_compaction_meanwhile_is_told(ten: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ten.open()
    foreign = DeltaTable(str(table.name.path))
    claim = OpenDelta._claim

    @contextmanager
    def meanwhile(self: OpenDelta) -> Iterator[None]:
        with claim(self):
            foreign.update_incremental()
            foreign.optimize.compact()
            yield

    monkeypatch.setattr(OpenDelta, "_claim", meanwhile)
    with pytest.raises(TableError, match=r"compacted by another program .* restore version"):
        table.compact(10**8)


@pytest.mark.full
def test_files_that_no_version_needs_are_removed_and_young_ones_stay(ten: Place) -> None:
    table = ten.open()
    written(table, 500, 510)  # of a task that failed
    table.compact(10**8)
    table = ten.open()
    assert table.vacuum(HOUR, dry_run=False) == Vacuum([], [])
    ours = [ten.folder / one for one in ("_jetspark/note-1.json", "_checkpoint/offsets/0")]
    for one in ours:  # a run keeps these beside the rows
        one.parent.mkdir(parents=True)
        one.write_text("{}", "utf-8")
    grow_old(ten.folder)
    late = written(table, 100, 110)  # of a batch that is about to be committed
    found = table.vacuum(HOUR, dry_run=True).removed
    # Delta remembers when a file was replaced, which was now.
    assert len(found) == 2
    table.vacuum(HOUR, dry_run=False)
    table = ten.open()
    commit_batch(table, "q", 10, late)
    assert [one.exists() for one in ours] == [True, True]
    assert ten.column("n") == Counter(range(110))


def test_what_is_not_known_to_be_the_table_s_is_kept_and_named(
    ten: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ten.open()
    data = table.layout(1, "zstd").folder
    inner = TableName(path=str(ten.folder / f"{data}inner"))
    within = open_or_create_table(ten.format, inner, SCHEMA, ())
    files = written(within, 0, 10)
    commit_files(within, files)
    (failed,) = {one.path for one in written(table, 500, 502)[:1]}
    (ten.folder / f"{data}mine.parquet").write_bytes(b"mine")
    grow_old(tmp_path)
    found = table.vacuum(HOUR, dry_run=False)
    assert failed in found.removed
    assert found.unproven == [f"{data}inner/", f"{data}mine.parquet"]
    assert (ten.folder / f"{data}mine.parquet").exists()
    assert column(ten.format, Path(str(inner.path)), "n") == Counter(range(10))
    assert app.run(["table", "vacuum", str(ten.folder), "--keep", "1h"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    kept = f"Kept, since it may not be this table's: {data}inner/, {data}mine.parquet"
    assert said == f"0 files removed. {kept}"


def test_a_table_that_keeps_its_old_files_for_longer_is_obeyed(tmp_path: Path) -> None:
    name = TableName(path=str(tmp_path / "table"))
    properties = {"delta.deletedFileRetentionDuration": "interval 30 days"}
    DeltaTable.create(str(name.path), Schema.from_arrow(SCHEMA), configuration=properties)
    table = open_table(Format.DELTA, name)
    with pytest.raises(ConfigError, match=r"deletedFileRetentionDuration: give at least that time"):
        table.vacuum(timedelta(days=7), dry_run=False)
    table.vacuum(timedelta(days=31), dry_run=False)


@of_delta
@pytest.mark.parametrize(
    ("feature", "act"),
    [
        ("rowTracking", lambda table: table.compact(10**8)),
        ("new", lambda table: table.vacuum(HOUR, dry_run=False)),
    ],
)
def test_a_table_with_features_that_are_not_known_is_refused(
    ten: Place, feature: str, act: Callable[[Table], object]
) -> None:
    table = ten.open()
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    action = msgspec.json.encode({"protocol": protocol})
    log = ten.folder / "_delta_log"
    (log / f"{table.version + 1:020}.json").write_bytes(action)
    with pytest.raises(ConfigError, match=rf"has the table feature {feature}, which is not"):
        act(ten.open())


@of_iceberg
def test_old_snapshots_go_with_their_files(ten: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Iceberg: Delta's log has the time of its own."""
    module: Any = importlib.import_module("jetspark.tables.iceberg.table")
    table = ten.open()
    table.compact(10**8)
    grow_old(ten.folder)

    class Later(module.datetime):  # type: ignore[misc]
        @classmethod
        def now(cls, tz: object = None) -> object:
            return module.datetime.fromtimestamp(time.time() + 7200, module.UTC)

    monkeypatch.setattr(module, "datetime", Later)
    table.vacuum(HOUR, dry_run=False)
    table = ten.open()
    assert table.facts().version == 1
    assert len(list((ten.folder / "data").rglob("*.parquet"))) == 2
    assert ten.column("n") == Counter(range(100))
    assert last_batch(table, "q") == 9


def grow_up(folder: Path) -> None:
    """The files of an Iceberg table, and its snapshots, were made 30 days ago."""
    for path in (folder / "metadata").glob("*.metadata.json"):
        text = re.sub(
            r'(-ms": ?)(1[67]\d{11})', lambda at: f"{at[1]}{int(at[2]) - MONTH}", path.read_text()
        )
        path.write_text(text)
    grow_old(folder)


@of_iceberg
def test_an_old_snapshot_that_was_just_replaced_is_kept_for_its_readers(ten: Place) -> None:
    grow_up(ten.folder)
    catalog = FolderCatalog(ten.folder)
    planned = catalog.load_table(IDENTIFIER).scan()
    table = ten.open()
    table.compact(10**8)
    table.refresh()
    before = table.facts().version
    table.vacuum(timedelta(days=7), dry_run=False)
    assert table.facts().version == before - 9  # one of ten was the present one
    assert planned.to_arrow().num_rows == 100


@of_iceberg
def test_manifests_that_a_kept_snapshot_shares_with_one_beside_its_line_stay(
    ten: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ten.open()
    beside = FolderCatalog(ten.folder).load_table(IDENTIFIER)
    present = beside.metadata.current_snapshot()
    assert present is not None
    beside.manage_snapshots().rollback_to_snapshot(present.parent_snapshot_id or 0).commit()
    with beside.transaction() as making:
        making.set_properties({"history.expire.min-snapshots-to-keep": "15"})
    monkeypatch.setattr(iceberg, "_COMMITS_PER_EXPIRY", 1)
    table.refresh()
    table.keep_versions(timedelta(0))
    commit_batch(table, "q", 10, written(table, 100, 110), adopt=True)
    assert _manifest_lists(ten.folder)


def test_less_than_an_hour_is_not_kept(ten: Place) -> None:
    with pytest.raises(ConfigError, match="keep at least 1h"):
        ten.open().vacuum(timedelta(minutes=59), dry_run=False)


@given(st.lists(st.integers(1, 200), max_size=30))
def test_groups_have_small_files_only_and_each_once(sizes: list[int]) -> None:
    groups = group_small_files(range(len(sizes)), sizes.__getitem__, 100)
    used = [one for group in groups for one in group]
    assert len(set(used)) == len(used)
    assert all(sizes[one] < 75 for one in used)
    assert all(len(group) > 1 for group in groups)
    assert all(sum(sizes[one] for one in group) <= 100 for group in groups)


@pytest.mark.full
def test_commands_info_compact_and_vacuum(ten: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(ten.folder)

    def said(*arguments: str) -> tuple[int, str]:
        code = app.run(["table", *arguments])
        found = capsys.readouterr()
        return code, found.out + found.err

    code, out = said("info", place)
    assert code == 0
    assert str(ten.format) in out
    assert "100" in out
    assert said("compact", place) == (0, "20 files replaced by 2.\n")
    assert said("compact", place) == (0, "There are no small files to merge.\n")
    assert said("vacuum", place) == (0, "0 files removed.\n")
    assert said("vacuum", place, "--keep", "1m") == (
        1,
        "--keep must be hours, days or weeks, such as 12h, 7d or 2w, not '1m'.\n",
    )
    assert said("vacuum", place, "--keep", "0h")[0] == 1
    assert said("info", place + "-none") == (
        1,
        f"There is no Delta or Iceberg table at '{place}-none'.\n",
    )
    assert said("compact", place, "--target-size", "x")[1].startswith("--target-size must be")
    assert said("info", place, "--region", "x")[1].startswith("Unknown option")
    other = "iceberg" if ten.format is Format.DELTA else "delta"
    assert (
        f"is a table in {ten.format}, not in {other}: take"
        in said("info", place, "--format", other)[1]
    )


@pytest.mark.full
@of_iceberg
def test_iceberg_removes_snapshots_at_times(ten: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "_COMMITS_PER_EXPIRY", 10)
    table = ten.open()
    table.keep_versions(timedelta(0))  # but the last ten stay

    def versions(batch: int) -> int:
        commit_batch(table, "q", batch, written(table, batch * 10, batch * 10 + 10))
        table.refresh()
        return table.facts().version

    assert [versions(batch) for batch in range(10, 21)] == [10, *range(11, 20), 10]
    lists = {Path(urlsplit(one).path) for one in _manifest_lists(ten.folder)}
    assert set(ten.folder.glob("metadata/snap-*")) == lists
    assert len(list(ten.folder.glob("metadata/v*.metadata.json"))) == 21
    assert ten.column("n") == Counter(range(210))
    assert last_batch(table, "q") == 20
    tagged = FolderCatalog(ten.folder).load_table(IDENTIFIER)
    tagged.manage_snapshots().create_tag(tagged.metadata.current_snapshot_id or 0, "mine").commit()
    table.refresh()
    assert [versions(batch) for batch in range(21, 31)] == [*range(11, 21)]


def _manifest_lists(folder: Path) -> list[str]:
    """Of all snapshots, whose manifests are all there."""
    table = FolderCatalog(folder).load_table(IDENTIFIER)
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            assert Path(urlsplit(manifest.manifest_path).path).exists()
    return [one.manifest_list for one in table.metadata.snapshots]
