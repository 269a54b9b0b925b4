"""Iceberg tables of a catalog, here one in SQLite, and folders without one."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ServiceUnavailableError
from pyiceberg.table import StaticTable
from tests.support.numbers_table import SCHEMA, written
from tests.support.table_readers import by_duckdb, newest_metadata
from tests.support.together import together

from jetspark.errors import CommitConflict, ConfigError, TableError
from jetspark.tables import arguments, formats
from jetspark.tables.batches import CommitAction, append, commit_batch, overwrite
from jetspark.tables.iceberg.folder import FolderCatalog
from jetspark.tables.table import TableName
from jetspark.tables.upserts import Upsert


@pytest.fixture
def name(tmp_path: Path) -> TableName:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    (tmp_path / "warehouse").mkdir()
    load_catalog("mine", **properties).create_namespace("lake")
    return TableName(catalog="mine", identifier="lake.numbers", properties=properties)


def rows(name: TableName) -> Counter[int]:
    table = load_catalog("mine", **name.properties).load_table(str(name.identifier))
    return Counter(table.scan().to_arrow()["n"].to_pylist())


def test_a_missing_namespace_is_reported(name: TableName) -> None:
    other = TableName(catalog="mine", identifier="no.table", properties=name.properties)
    with pytest.raises(ConfigError, match=r"mine:no\.table: the catalog has no such namespace"):
        formats.open_or_create_table(formats.Format.ICEBERG, other, SCHEMA, ())


def test_an_object_store_needs_a_catalog() -> None:
    with pytest.raises(ConfigError, match="s3://lake/x needs a catalog"):
        formats.open_or_create_table(
            formats.Format.ICEBERG, TableName(path="s3://lake/x"), SCHEMA, ()
        )


def test_the_newest_version_of_a_folder_is_found_whatever_its_hint_says(tmp_path: Path) -> None:
    """A kill between two steps of a commit leaves the hint behind, or no hint."""
    name = TableName(path=str(tmp_path / "table"))
    table = formats.open_or_create_table(formats.Format.ICEBERG, name, SCHEMA, ())
    commit_batch(table, "q", 0, written(table, 0, 10))
    hint = tmp_path / "table" / "metadata" / "version-hint.text"
    assert hint.read_text("utf-8") == "2"
    for text in ("1", "", "7"):
        hint.write_text(text, "utf-8")
        assert formats.open_table(formats.Format.ICEBERG, name).txn_version("jetspark.batch.q") == 0
    hint.unlink()
    found = formats.open_table(formats.Format.ICEBERG, name)
    assert commit_batch(found, "q", 1, written(found, 10, 20))
    assert hint.read_text("utf-8") == "3"


def test_a_batch_whose_writer_was_killed_before_the_hint_is_found_by_others(tmp_path: Path) -> None:
    name = TableName(path=str(tmp_path / "table"))
    table = formats.open_or_create_table(formats.Format.ICEBERG, name, SCHEMA, ())
    files = written(table, 0, 10)
    commit_batch(table, "q", 0, files)
    hint = tmp_path / "table" / "metadata" / "version-hint.text"
    hint.write_text("1", "utf-8")
    again = formats.open_table(formats.Format.ICEBERG, name)
    assert not commit_batch(again, "q", 0, files)
    assert by_duckdb("iceberg", tmp_path / "table", "SELECT count(*) FROM t") == [(10,)]


def test_a_folder_with_a_catalog_s_table_gets_no_other(name: TableName, tmp_path: Path) -> None:
    folder = tmp_path / "warehouse" / "lake" / "numbers"
    formats.open_or_create_table(formats.Format.ICEBERG, name, SCHEMA, ())
    assert formats.format_of(folder) is formats.Format.ICEBERG
    place = TableName(path=str(folder))
    with pytest.raises(ConfigError, match=r"whose metadata is 0000.* it belongs to a catalog"):
        formats.open_or_create_table(formats.Format.ICEBERG, place, SCHEMA, ())
    (found,) = folder.glob("metadata/*.metadata.json")
    for other in ("v1.gz.metadata.json", "v1.metadata.json.gz"):
        found = found.rename(found.with_name(other))
        with pytest.raises(ConfigError, match=rf"{other}: compressed metadata is not supported"):
            formats.open_or_create_table(formats.Format.ICEBERG, place, SCHEMA, ())
        with pytest.raises(ConfigError, match="is a table in iceberg, not in delta"):
            formats.open_or_create_table(formats.Format.DELTA, place, SCHEMA, ())


def test_two_that_make_the_same_version_conflict(tmp_path: Path) -> None:
    name = TableName(path=str(tmp_path / "table"))
    formats.open_or_create_table(formats.Format.ICEBERG, name, SCHEMA, ())
    tables = [formats.open_table(formats.Format.ICEBERG, name) for _ in range(6)]
    barrier = threading.Barrier(len(tables))
    outcomes: list[str] = []

    def commit(number: int) -> None:
        table = tables[number]
        files = written(table, number, number + 1)
        barrier.wait()
        try:
            table.append(files, {})
            outcomes.append("done")
        except CommitConflict:
            outcomes.append("conflict")

    together(commit, range(len(tables)))
    # Who starts later may have based its commit on the version that an earlier one made.
    found = formats.open_table(formats.Format.ICEBERG, name)
    stored = sum(
        batch.num_rows for piece in found.scan_tasks(["n"], None, 1) for batch in piece.batches()
    )
    assert stored == outcomes.count("done") >= 1


def test_old_metadata_of_a_folder_is_removed(tmp_path: Path) -> None:
    name = TableName(path=str(tmp_path / "table"))
    table = formats.open_or_create_table(formats.Format.ICEBERG, name, SCHEMA, ())
    for batch in range(25):
        commit_batch(table, "q", batch, ())
        table.refresh()
    versions = list((tmp_path / "table" / "metadata").glob("v*.metadata.json"))
    assert len(versions) == 21  # the newest, and as many as the table's property says


def test_a_catalog_that_is_not_configured_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no configuration of a catalog 'nobody': describe it"):
        formats.find_table(formats.Format.ICEBERG, TableName(catalog="nobody", identifier="a.b"))


def test_a_catalog_out_of_reach_is_told_in_one_sentence(tmp_path: Path) -> None:
    name = TableName(
        catalog="mine", identifier="a.b", properties={"uri": "http://127.0.0.1:9", "type": "rest"}
    )
    with pytest.raises(TableError, match=r"^mine:a\.b cannot be reached: .* Check the st") as error:
        formats.find_table(formats.Format.ICEBERG, name)
    assert "\n" not in str(error.value)


def test_missing_package_is_no_damage(name: TableName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)
    with pytest.raises(ConfigError, match=r"needs another package: .*pip install 'py.*'\.$"):
        formats.find_table(formats.Format.ICEBERG, name)


def test_a_name_without_namespace_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"write mine:namespace\.x .*, or \./mine:x for a folder"):
        arguments.parse_catalog_name("mine:x")
    assert arguments.parse_catalog_name("mine:a.b") == ("mine", "a.b")
    assert arguments.parse_catalog_name("file:a.b") is None


LOST: list[type[Exception]] = [ServiceUnavailableError, CommitFailedException, OSError]


@pytest.fixture(params=["a catalog", "a folder"])
def anywhere(request: pytest.FixtureRequest, name: TableName, tmp_path: Path) -> TableName:
    return name if request.param == "a catalog" else TableName(path=str(tmp_path / "table"))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


class Answers:
    """What a catalog says to the next commit."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.applied = False
        for kind in (SqlCatalog, FolderCatalog):
            patch.setattr(kind, "commit_table", self._instead_of(kind.commit_table))

    def _instead_of(self, method: Any) -> Any:
        def commit_table(*arguments: Any) -> Any:
            if self.error is None:
                return method(*arguments)
            error, self.error = self.error, None
            if self.applied:
                method(*arguments)
            raise error

        return commit_table


def newest(name: TableName) -> dict[int, str]:
    """The rows, by PyIceberg."""
    if name.path is None:
        found = load_catalog("mine", **name.properties).load_table(str(name.identifier))
        return {one["n"]: one["kind"] for one in found.scan().to_arrow().to_pylist()}
    found = StaticTable.from_metadata(newest_metadata(Path(name.path)))
    return {one["n"]: one["kind"] for one in found.scan().to_arrow().to_pylist()}


@pytest.mark.full
@pytest.mark.parametrize("change", [append, Upsert(("n",)), overwrite])
@pytest.mark.parametrize("error", LOST)
def test_a_commit_whose_answer_was_lost_is_found_and_nothing_of_it_is_removed(
    anywhere: TableName, answers: Answers, error: type[Exception], change: CommitAction
) -> None:
    """An error, and a refusal, too: a request that was sent twice is in conflict with itself."""
    table = formats.open_or_create_table(formats.Format.ICEBERG, anywhere, SCHEMA, ())
    commit_batch(table, "q", 0, written(table, 0, 10), change=change)
    table.refresh()
    answers.error, answers.applied = error("lost"), True
    assert commit_batch(table, "q", 1, written(table, 5, 15), change=change)
    start = 5 if change is overwrite else 0
    assert newest(anywhere) == {n: str(n % 2) for n in range(start, 15)}
    table.refresh()
    assert not commit_batch(table, "q", 1, written(table, 5, 15), change=change)


@pytest.mark.parametrize("change", [append, Upsert(("n",))])
def test_a_commit_that_is_not_there_is_told_and_made_by_the_next_attempt(
    anywhere: TableName, answers: Answers, change: CommitAction
) -> None:
    table = formats.open_or_create_table(formats.Format.ICEBERG, anywhere, SCHEMA, ())
    answers.error = ServiceUnavailableError("out of order")
    with pytest.raises(TableError, match=r"did not confirm a commit .*out of order.* run it again"):
        commit_batch(table, "q", 0, written(table, 0, 10), change=change)
    assert commit_batch(table, "q", 0, written(table, 0, 10), change=change)
    assert newest(anywhere) == {n: str(n % 2) for n in range(10)}


def test_a_property_is_set_or_the_caller_is_told(anywhere: TableName, answers: Answers) -> None:
    """A refusal is passed on, and a lost answer is found."""
    table = formats.open_or_create_table(formats.Format.ICEBERG, anywhere, SCHEMA, ())
    answers.error = CommitFailedException("refused")
    with pytest.raises(TableError):
        table.set_property("jetspark.x", "1")
    assert formats.open_table(formats.Format.ICEBERG, anywhere).property("jetspark.x") is None
    answers.error, answers.applied = ServiceUnavailableError("lost"), True
    table.set_property("jetspark.x", "2")
    assert formats.open_table(formats.Format.ICEBERG, anywhere).property("jetspark.x") == "2"


def test_what_was_made_though_the_answer_was_lost_is_there(
    anywhere: TableName, answers: Answers
) -> None:
    answers.error, answers.applied = ServiceUnavailableError("lost"), True
    table = formats.open_or_create_table(formats.Format.ICEBERG, anywhere, SCHEMA, ())
    answers.error = ServiceUnavailableError("lost")
    table.add_columns([pa.field("more", pa.string())])
    assert formats.open_table(formats.Format.ICEBERG, anywhere).schema.names == [
        *SCHEMA.names,
        "more",
    ]
