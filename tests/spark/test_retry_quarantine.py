"""Quarantined records become rows once, wherever a run is killed; no Spark is started."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from tests.support.table_readers import by_us

from jetspark.errors import ConfigError, TableError
from jetspark.spark.pipelines import retry_quarantine, table_rows
from jetspark.spark.pipelines.retry_quarantine import ReprocessResult
from jetspark.spark.pipelines.table_rows import RowSpec
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.table_sink.option_texts import (
    ListedTable,
    parse_lakehouse_options,
    table_list_option,
)
from jetspark.spark.table_sink.table_preparation import prepare
from jetspark.tables import quarantine
from jetspark.tables.batches import commit_files
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.table import TableName

pytestmark = pytest.mark.tables

BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)


SCHEMA = "n BIGINT, site STRING"


class Killed(BaseException):
    """At this place."""


class Place:
    """A table of records, and one or many of rows."""

    def __init__(self, folder: Path, format_: Format, to: str = "rows", **options: str) -> None:
        self.folder, self.format = folder, format_
        given = {"path": str(folder / to), "quarantine": str(folder / "aside"), **options}
        self.options = parse_lakehouse_options(format_, given)
        self._aside = TableName(path=str(folder / "aside"))
        open_or_create_table(format_, self._aside, quarantine.SCHEMA, ())
        source, how = self._how()
        prepare(self.options, how.schemas(source))

    def put_aside(self, *payloads: Any, first: int = 1, subject: str = "s") -> None:
        """As messages from this sequence on."""
        table = open_table(self.format, self._aside)
        rows = [
            {
                "stream": "S", "subject": subject, "seq": seq,
                "timestamp": BEGIN + timedelta(seconds=seq),
                "data": json.dumps(one).encode(), "column": "n", "reason": "It did not fit.",
            }
            for seq, one in enumerate(payloads, first)
        ]  # fmt: skip
        batch = pa.RecordBatch.from_pylist(rows, quarantine.SCHEMA)
        commit_files(
            table, write_files(table.layout(10**8, "zstd"), table.storage, "part-1", [batch])
        )

    def reprocess(
        self, between: Callable[[], None] = lambda: None, **decode: str
    ) -> ReprocessResult:
        """`between`: while records are read; `decode`: further options of the source."""
        source, how = self._how(**decode)

        def build_rows(*of: Any) -> Iterator[tuple[int | None, pa.RecordBatch]]:
            between()
            yield from table_rows.build_rows(*of)

        with patch.object(retry_quarantine, "build_rows", build_rows):
            return retry_quarantine.reprocess(self.options, source, how)

    def _how(self, **decode: str) -> tuple[SourceOptions, RowSpec]:
        """How payloads become rows, in a list as each of its tables says."""
        given = {
            "stream": "retried",
            "decode": "json",
            "schema": SCHEMA,
            "keepPayload": "true",
        } | decode
        if self.options.tables:
            given = {"stream": "retried"}
        return parse_options(given), RowSpec("json", given.get("schema"))

    def found(self, name: str) -> list[dict[str, Any]]:
        return by_us(self.format, self.folder / name)

    def rows(self, *names: str) -> Counter[int]:
        """The sequences."""
        return Counter(row["seq"] for name in names or ("rows",) for row in self.found(name))

    def aside(self) -> dict[int, str]:
        found = self.found("aside")
        assert len({row["seq"] for row in found}) == len(found)
        return {row["seq"]: row["reason"] for row in found}


@pytest.fixture(params=list(Format))
def format_(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


def test_what_fits_becomes_rows_and_the_rest_stays_with_its_new_reason(
    tmp_path: Path, format_: Format
) -> None:
    place = Place(tmp_path, format_)
    place.put_aside({"n": 1}, {"n": "two"}, {"n": 3, "site": "é"})
    place.put_aside({"n": 1})  # the same message, of another query
    tried = place.reprocess()
    assert (tried.added, tried.already_present, tried.remaining) == (2, 0, 1)
    assert place.rows() == Counter([1, 3])
    assert [(row["n"], row["site"]) for row in place.found("rows")] == [(1, None), (3, "é")]
    assert place.aside() == {2: 'n: "two" is not a BIGINT.'}
    (left,) = place.found("aside")
    assert (left["data"], left["column"], left["subject"]) == (b'{"n": "two"}', "n", "s")
    assert place.reprocess() == ReprocessResult(0, 0, 1)
    assert place.rows() == Counter([1, 3])


@contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool = False) -> Iterator[None]:
    """The block ends before or after its commit of this number."""
    numbers = itertools.count()

    def commit_or_end(*given: Any) -> None:
        ends = next(numbers) == at
        if ends and not after:
            raise Killed
        commit_files(*given)
        if ends:
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(retry_quarantine, "commit_files", commit_or_end)
        yield


ONE, MANY = ("rows", 3), ("all/{site}", 4)  # with the number of commits
KILLS = [(Format.DELTA, to, at) for to, commits in (ONE, MANY) for at in range(2 * commits)]
KILLS += [(Format.ICEBERG, ONE[0], at) for at in (3, 4)]


@pytest.mark.full
@pytest.mark.parametrize(("format_", "to", "at"), KILLS)
def test_a_run_that_is_killed_at_a_commit_adds_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: Format, to: str, at: int
) -> None:
    killed_at, after = divmod(at, 2)
    lake = Place(tmp_path, format_, to)
    lake.put_aside(*({"n": index, "site": "ab"[index % 2]} for index in range(6)), {"n": "x"})
    with killed(monkeypatch, killed_at, after=bool(after)):
        lake.reprocess()
    lake.put_aside({"n": 8, "site": "a"}, first=8)  # meanwhile, by the query
    lake.reprocess(framing="confluent")  # nothing fits
    lake.reprocess()
    assert lake.rows("rows", "all/a", "all/b") == Counter([*range(1, 7), 8])
    assert lake.aside() == {7: 'n: "x" is not a BIGINT.'}
    assert lake.reprocess() == ReprocessResult(0, 0, 1)


def test_of_two_runs_at_the_same_time_one_adds_the_rows(tmp_path: Path, format_: Format) -> None:
    place = Place(tmp_path, format_)
    place.put_aside({"n": 1}, {"n": 2})

    def other() -> None:
        assert place.reprocess().added == 2

    with pytest.raises(TableError, match=r"Another run reprocesses the records of .*aside"):
        place.reprocess(between=other)
    assert place.rows() == Counter([1, 2])
    assert place.aside() == {}


def test_rows_with_keys_are_merged_in_their_order(tmp_path: Path, format_: Format) -> None:
    place = Place(tmp_path, format_, keys="n", sequenceBy="seq")
    place.put_aside({"n": 1}, {"n": 2})
    place.put_aside({"n": 1}, first=3)
    assert place.reprocess().added == 3
    assert place.rows() == Counter([2, 3])
    place.put_aside({"n": 1}, first=1)
    assert place.reprocess().added == 1
    assert place.rows() == Counter([2, 3])
    unordered = Place(tmp_path / "other", format_, keys="n")
    with pytest.raises(ConfigError, match="keys needs sequence_by"):
        unordered.reprocess()


KEYED: dict[str, dict[str, str]] = {
    "keys": {"keys": "n", "sequenceBy": "seq"},
    "deletes": {"keys": "n", "sequenceBy": "seq", "applyAsDeletes": "site = 'gone'"},
    "history": {"keys": "n", "sequenceBy": "seq", "historyBy": "timestamp"},
}


@pytest.mark.full
@pytest.mark.parametrize("format_", list(Format))
@pytest.mark.parametrize("how", KEYED)
def test_records_are_written_as_the_table_says_that_its_rows_are(
    tmp_path: Path, how: str, format_: Format
) -> None:
    place = Place(tmp_path, format_, **KEYED[how])
    place.put_aside({"n": 1, "site": "here"}, {"n": 2, "site": "here"})
    place.reprocess()
    plain = {"path": str(tmp_path / "rows"), "quarantine": str(tmp_path / "aside")}
    place.options = retry_quarantine.as_written(parse_lakehouse_options(format_, plain))
    place.put_aside({"n": 1, "site": "gone"}, {"n": 3}, first=10)
    assert place.reprocess().added == 2
    found = sorted((row["n"], row["seq"], row.get("valid_from")) for row in place.found("rows"))
    first, last, third = (BEGIN + timedelta(seconds=seq) for seq in (1, 10, 11))
    second = first + timedelta(seconds=1)
    history = [(1, 1, first), (1, 10, last), (2, 2, second), (3, 11, third)]
    assert (
        found
        == {
            "keys": [(1, 10, None), (2, 2, None), (3, 11, None)],
            "deletes": [(2, 2, None), (3, 11, None)],
            "history": history,
        }[how]
    )


def test_records_are_not_added_to_tables_of_a_template_whose_rows_replace_others(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, Format.DELTA, "lake/{site}", keys="n", sequenceBy="seq")
    place.put_aside({"n": 1, "site": "a"})
    place.reprocess()
    keyed = place.options
    plain = {"path": str(tmp_path / "lake/{site}"), "quarantine": str(tmp_path / "aside")}
    place.options = parse_lakehouse_options(Format.DELTA, plain)
    place.put_aside({"n": 1, "site": "a"}, {"n": 5, "site": "b"}, first=10)
    with pytest.raises(ConfigError, match="keys n, sequence_by seq"):
        place.reprocess()
    assert [row["seq"] for row in place.found("lake/a")] == [1]
    assert len(place.aside()) == 2
    place.options = keyed
    assert place.reprocess().added == 2
    assert [row["seq"] for row in place.found("lake/a")] == [10]


def test_a_record_with_a_new_field_is_added_when_its_table_has_the_column(
    tmp_path: Path, format_: Format
) -> None:
    place = Place(tmp_path, format_, evolve="true")
    place.put_aside({"n": 1, "new": True}, {"n": "x"})
    assert place.reprocess() == ReprocessResult(added=1, already_present=0, remaining=1)
    assert [(row["seq"], row["n"], row["new"]) for row in place.found("rows")] == [(1, 1, True)]


def list_of(lake: Place, **tables: str) -> None:
    """A list of tables by subject."""
    options = {"quarantine": str(lake.folder / "aside")} | table_list_option(
        ListedTable(
            subjects=(one,), options={"path": str(lake.folder / path)}, json_schema="n LONG"
        )
        for one, path in tables.items()
    )
    lake.options = parse_lakehouse_options(lake.format, options)


@pytest.mark.full
@pytest.mark.parametrize("killed_at", range(4))
def test_records_of_a_list_become_rows_of_its_tables_also_when_it_was_mended_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: Format, killed_at: int
) -> None:
    lake = Place(tmp_path, format_)
    for first, subject in enumerate(("a", "b", "c")):
        lake.put_aside({"n": 1}, {"n": "x"}, first=2 * first + 1, subject=subject)

    def reprocess(*paths: str) -> ReprocessResult:
        list_of(lake, **dict(zip("abc", paths, strict=False)))
        return lake.reprocess()

    with killed(monkeypatch, killed_at):
        reprocess("one", "two")
    # The tables have changed places, and there is a third one.
    tried = reprocess("two", "one", "c")
    assert tried.added + tried.already_present == 3
    assert lake.rows("one", "two", "c") == Counter([1, 3, 5])
    assert lake.aside() == dict.fromkeys((2, 4, 6), 'n: "x" is not a BIGINT.')
    assert reprocess("two", "one", "c") == ReprocessResult(0, 0, 3)


def test_a_record_of_a_subject_that_the_list_lacks_stays(tmp_path: Path) -> None:
    lake = Place(tmp_path, Format.DELTA)
    lake.put_aside({"n": 1}, subject="other")
    list_of(lake, a="a")
    assert lake.reprocess() == ReprocessResult(0, 0, 1)
    assert lake.aside() == {1: "No table of the list takes the subject other."}


def test_a_table_of_other_columns_holds_no_records(tmp_path: Path) -> None:
    place = Place(tmp_path, Format.DELTA)
    other = TableName(path=str(tmp_path / "other"))
    open_or_create_table(Format.DELTA, other, pa.schema([("a", pa.int64())]), ())
    given = {"path": str(tmp_path / "rows"), "quarantine": str(tmp_path / "other")}
    place.options = parse_lakehouse_options(Format.DELTA, given)
    with pytest.raises(ConfigError, match="has the columns a: it is no table of records"):
        place.reprocess()
