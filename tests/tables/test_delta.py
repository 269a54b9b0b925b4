"""Delta tables with features and properties of other writers, and the length of their log."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.numbers_table import SCHEMA, rows, written

from jetspark.cli import app
from jetspark.errors import ConfigError, TableError
from jetspark.tables import batches
from jetspark.tables.changes import Changes
from jetspark.tables.delta import table as delta
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.table import Table, TableName
from jetspark.tables.upserts import Upsert

HOUR = timedelta(hours=1)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return open_or_create_table(Format.DELTA, TableName(path=str(tmp_path / "t")), SCHEMA, ())


def log_of(table: Table) -> Path:
    return Path(str(table.name.path), "_delta_log")


def _set(table: Table, properties: dict[str, str]) -> None:
    DeltaTable(str(table.name.path)).alter.set_table_properties(
        properties, raise_if_not_exists=False
    )
    table.refresh()


def _require(table: Table, *features: str) -> None:
    """Another writer lets the table have writer features."""
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    path = log_of(table) / f"{table.version + 1:020}.json"
    path.write_text(json.dumps({"protocol": protocol}) + "\n", "utf-8")


@pytest.mark.parametrize("change", [batches.append, batches.overwrite, Upsert(("n",))])
def test_a_feature_that_cannot_be_written_is_named_at_once(table: Table, change: Any) -> None:
    files = written(table, 0, 10)
    _require(table, "appendOnly", "rowTracking", "domainMetadata")
    began = time.monotonic()
    with pytest.raises(TableError, match=r"cannot be written: Unsupported table features.*RowTra"):
        batches.commit_batch(table, "q", 0, files, change=change)
    with pytest.raises(TableError, match="cannot be written"):
        batches.commit_files(open_table(Format.DELTA, table.name), files, change)
    assert time.monotonic() - began < 20


def test_a_column_for_a_table_that_cannot_be_written_is_not_tried_for_ever(table: Table) -> None:
    _require(table, "appendOnly", "inCommitTimestamp")
    table = open_table(Format.DELTA, table.name)
    with pytest.raises(TableError, match=r"cannot be written: .*InCommitTimestamp"):
        table.add_columns([SCHEMA.field("n").with_name("more")])
    with pytest.raises(TableError, match=r"cannot be written: .*InCommitTimestamp"):
        table.keep_versions(HOUR)


def test_a_commit_whose_answer_was_lost_is_found_and_not_made_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DeltaTable.create_write_transaction

    def lost(table: DeltaTable, files: list[Any], *given: Any, **options: Any) -> None:
        commit(table, files, *given, **options)
        if files:
            raise OSError("connection reset")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    for change in (batches.append, batches.overwrite):
        batches.commit_files(table, written(table, 0, 10), change)
    monkeypatch.undo()
    assert rows(open_table(Format.DELTA, table.name)) == Counter(range(10))


def test_a_table_that_forgets_batches_is_refused(table: Table) -> None:
    batches.commit_batch(table, "q", 0, written(table, 0, 10), name="flow")
    _set(table, {"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    for writer in ("q", "another checkpoint's"):
        with pytest.raises(ConfigError, match=r"setTransactionRetention.* written twice: remove"):
            batches.commit_batch(table, writer, 1, written(table, 0, 10), name="flow")
    batches.commit_files(table, written(table, 10, 20))  # has no number
    assert rows(open_table(Format.DELTA, table.name)) == Counter(range(20))


def _grow_old(folder: Path, span: timedelta, newest: int) -> None:
    """All files but those of the newest versions were written so long ago."""
    then = time.time() - span.total_seconds()
    for path in folder.iterdir():
        found = re.match(r"\d{20}", path.name)
        if found and int(found[0]) <= newest:
            os.utime(path, (then, then))


def _versions(table: Table) -> list[int]:
    return sorted(int(path.stem) for path in log_of(table).glob("*.json"))


def test_the_log_is_trimmed_now_and_then_by_the_retention_of_the_table(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "_COMMITS_PER_LOG_CLEANUP", 40)
    _set(table, {"delta.checkpointInterval": "10"})
    for batch in range(35):
        batches.commit_batch(table, "q", batch, written(table, batch, batch + 1))
        table.refresh()
    _grow_old(log_of(table), 40 * HOUR, newest=table.version)
    batches.commit_batch(table, "q", 35, ())
    assert _versions(table) == list(range(38))  # deltalake itself would have trimmed it now
    for batch in range(36, 40):
        batches.commit_batch(table, "q", batch, ())
        table.refresh()
    assert _versions(table) == list(range(29, 42))  # from a checkpoint on
    batches.check_earlier_batches(table, "q", 40)
    assert rows(open_table(Format.DELTA, table.name)) == Counter(range(35))


@pytest.mark.parametrize(
    ("keeps", "trims", "first"), [(48, "true", 0), (24, "false", 0), (24, "true", 19)]
)
def test_vacuum_trims_the_log_by_the_retention_of_the_table(
    table: Table, keeps: int, trims: str, first: int
) -> None:
    _set(table, {"delta.checkpointInterval": "10", "delta.enableExpiredLogCleanup": trims})
    table.keep_versions(keeps * HOUR)
    for batch in range(18):
        batches.commit_batch(table, "q", batch, written(table, batch, batch + 1))
        table.refresh()
    _grow_old(log_of(table), 40 * HOUR, newest=table.version)
    vacuum = ["table", "vacuum", str(table.name.path), "--keep", "1h"]
    assert app.run([*vacuum, "--dry-run"]) == 0
    assert _versions(table)[0] == 0
    assert app.run(vacuum) == 0
    assert _versions(table)[0] == first
    assert rows(open_table(Format.DELTA, table.name)) == Counter(range(18))


@pytest.mark.parametrize("name", ["kind=c", "_kind=c", "_change_data", "deep/kind=c"])
@pytest.mark.parametrize("act", ["merge", "compact"])
def test_nothing_is_written_behind_a_link_of_a_folder(tmp_path: Path, name: str, act: str) -> None:
    """Though no file of the table is behind it yet."""
    column = name.rpartition("=")[0] or "kind"
    schema = pa.schema([("n", pa.int64()), (column, pa.string())])
    place = TableName(path=str(tmp_path / "t"))
    partitions = [] if name == "_change_data" else [PartitionBy(column)]
    if "/" in name:  # only deltalake makes such a table
        rows = pa.table({"n": [1], column: ["a"]}, schema)
        write_deltalake(place.path or "", rows, partition_by=[column])
    table = open_or_create_table(Format.DELTA, place, schema, partitions)
    table.set_property("delta.enableChangeDataFeed", "true")
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "t" / (name if "/" not in name else "deep")
    if link.is_dir():
        link.rename(tmp_path / "t" / "_old")
    link.symlink_to(tmp_path / "elsewhere")
    table = open_table(Format.DELTA, place)
    rows = pa.table({"n": [1], column: ["c"]}, schema)
    changes = Changes(rows, pa.chunked_array([[False]]), ("n",), None)
    with pytest.raises(ConfigError, match="symbolic link"):
        table.compact(10**8) if act == "compact" else table.merge(changes, {})
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_checkpoint_beside_the_files_may_be_a_link(tmp_path: Path) -> None:
    table = open_or_create_table(Format.DELTA, TableName(path=str(tmp_path / "t")), SCHEMA, ())
    (tmp_path / "t" / "_checkpoint").symlink_to(tmp_path)
    table.compact(10**8)


def test_a_log_with_a_link_in_it_is_refused(tmp_path: Path) -> None:
    for name in ("t", "other"):
        open_or_create_table(Format.DELTA, TableName(path=str(tmp_path / name)), SCHEMA, ())
    first = f"_delta_log/{0:020}.json"
    (tmp_path / "t" / f"_delta_log/{1:020}.json").symlink_to(tmp_path / "other" / first)
    with pytest.raises(ConfigError, match="symbolic link"):
        open_table(Format.DELTA, TableName(path=str(tmp_path / "t")))


@pytest.mark.parametrize("text", [" " * 100_000 + "`x", "`" * 99_999, "a`" * 50_000, ",`" * 50_000])
def test_no_list_of_columns_keeps_a_writer_busy(table: Table, text: str) -> None:
    """Whoever may write the log says which columns have statistics."""
    _set(table, {"delta.dataSkippingStatsColumns": text})
    before = time.process_time()
    batches.commit_files(table, written(table, 0, 10))
    assert time.process_time() - before < 3
    table.refresh()
    assert rows(table) == Counter(range(10))
