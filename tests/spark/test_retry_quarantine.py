"""Records that were put aside become rows once, wherever a run is killed; no Spark is started."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, StructType
from tests.support.table_readers import by_us

from jetspark.errors import ConfigError, SchemaGrown, TableError
from jetspark.lakehouse import quarantine
from jetspark.lakehouse.batches import commit_files
from jetspark.lakehouse.formats import Format, make_table, open_table
from jetspark.lakehouse.new_files import write_files
from jetspark.lakehouse.table import TableName
from jetspark.spark import retry_quarantine
from jetspark.spark.json_payloads import CORRUPT
from jetspark.spark.lakehouse import listed
from jetspark.spark.lakehouse.growth import NEW
from jetspark.spark.lakehouse.options import listed_option, parse_lakehouse_options
from jetspark.spark.lakehouse.target import prepare

pytestmark = pytest.mark.tables

BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)
HEADERS = ArrayType(StructType().add("key", "string").add("value", "string"))
ROWS = StructType().add("stream", "string").add("subject", "string").add("seq", "long")
ROWS = ROWS.add("timestamp", "timestamp").add("headers", HEADERS).add("data", "string")
ROWS = ROWS.add("n", "long").add("site", "string").add(CORRUPT, "string")


class Killed(BaseException):
    """At this place."""


class Place:
    """A table of records, and one or many of rows."""

    def __init__(self, folder: Path, format_: Format, to: str = "rows", **options: str) -> None:
        self.folder, self.format = folder, format_
        given = {"path": str(folder / to), "quarantineTable": str(folder / "aside"), **options}
        self.options = parse_lakehouse_options(format_, given)
        self._aside = TableName(path=str(folder / "aside"))
        make_table(format_, self._aside, quarantine.SCHEMA, ())

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

    def try_again(self, kind: type = int, between: Callable[[], None] = lambda: None) -> Any:
        """With a schema of which n has this type."""

        def decode(records: pa.Table) -> pa.Table:
            between()
            found = []
            for row in records.to_pylist():
                value = json.loads(row["data"])
                fits = type(value["n"]) is kind
                n = int(value["n"]) if fits else None
                corrupt = None if fits else row["data"].decode()
                found.append({**row, "n": n, "site": value.get("site"), CORRUPT: corrupt})
            fields = [("n", pa.int64()), ("site", pa.string()), (CORRUPT, pa.string())]
            schema = pa.schema([*records.schema, *(pa.field(*one) for one in fields)])
            return pa.Table.from_pylist(found, schema)

        return retry_quarantine.try_again(prepare(self.options, ROWS, numbered=True), decode)

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
    tried = place.try_again()
    assert (tried.added, tried.there, tried.left) == (2, 0, 1)
    assert place.rows() == Counter([1, 3])
    assert [(row["n"], row["site"]) for row in place.found("rows")] == [(1, None), (3, "é")]
    assert place.aside() == {2: 'n: "two" is not a BIGINT.'}
    (left,) = place.found("aside")
    assert (left["data"], left["column"], left["subject"]) == (b'{"n": "two"}', "n", "s")
    assert place.try_again() == retry_quarantine.Tried(0, 0, 1)
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
        lake.try_again()
    lake.put_aside({"n": 8, "site": "a"}, first=8)  # meanwhile, by the query
    lake.try_again(float)  # nothing fits
    lake.try_again()
    assert lake.rows("rows", "all/a", "all/b") == Counter([*range(1, 7), 8])
    assert lake.aside() == {7: 'n: "x" is not a BIGINT.'}
    assert lake.try_again() == retry_quarantine.Tried(0, 0, 1)


def test_of_two_runs_at_the_same_time_one_adds_the_rows(tmp_path: Path, format_: Format) -> None:
    place = Place(tmp_path, format_)
    place.put_aside({"n": 1}, {"n": 2})

    def other() -> None:
        assert place.try_again().added == 2

    with pytest.raises(TableError, match=r"Another run tries the records of .*aside"):
        place.try_again(between=other)
    assert place.rows() == Counter([1, 2])
    assert place.aside() == {}


def test_rows_with_keys_are_merged_in_their_order(tmp_path: Path, format_: Format) -> None:
    place = Place(tmp_path, format_, keys="n", sequenceBy="seq")
    place.put_aside({"n": 1}, {"n": 2})
    place.put_aside({"n": 1}, first=3)
    assert place.try_again().added == 3
    assert place.rows() == Counter([2, 3])
    place.put_aside({"n": 1}, first=1)
    assert place.try_again().added == 1
    assert place.rows() == Counter([2, 3])
    unordered = Place(tmp_path / "other", format_, keys="n")
    with pytest.raises(ConfigError, match="'keys' needs 'sequenceBy'"):
        unordered.try_again()


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
    place.try_again()
    plain = {"path": str(tmp_path / "rows"), "quarantineTable": str(tmp_path / "aside")}
    place.options = retry_quarantine.as_written(parse_lakehouse_options(format_, plain))
    place.put_aside({"n": 1, "site": "gone"}, {"n": 3}, first=10)
    assert place.try_again().added == 2
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
    place.try_again()
    keyed = place.options
    plain = {"path": str(tmp_path / "lake/{site}"), "quarantineTable": str(tmp_path / "aside")}
    place.options = parse_lakehouse_options(Format.DELTA, plain)
    place.put_aside({"n": 1, "site": "a"}, {"n": 5, "site": "b"}, first=10)
    with pytest.raises(ConfigError, match="keys=n --table-option sequenceBy=seq"):
        place.try_again()
    assert [row["seq"] for row in place.found("lake/a")] == [1]
    assert len(place.aside()) == 2
    place.options = keyed
    assert place.try_again().added == 2
    assert [row["seq"] for row in place.found("lake/a")] == [10]


def test_a_record_with_a_new_field_is_added_when_its_table_has_the_column(
    tmp_path: Path, format_: Format
) -> None:
    place = Place(tmp_path, format_, evolveSchema="true")
    place.put_aside({"n": 1, "new": True}, {"n": "x"})

    def try_again(*known: str) -> retry_quarantine.Tried:
        """With these fields, too."""
        added = [pa.field("n", pa.int64()), *(pa.field(one, pa.bool_()) for one in known)]
        added += [pa.field(CORRUPT, pa.string()), pa.field(NEW, pa.string())]

        def decode(records: pa.Table) -> pa.Table:
            found = []
            for row in records.to_pylist():
                fields = json.loads(row["data"])
                corrupt = row["data"].decode() if type(fields["n"]) is str else None
                fits = fields if corrupt is None else {}
                new = json.dumps(dict.fromkeys(fields.keys() - {"n", *known}, "BOOLEAN"))
                found.append({**row, **fits, CORRUPT: corrupt, NEW: new})
            return pa.Table.from_pylist(found, pa.schema([*records.schema, *added]))

        rows = StructType([one for one in ROWS if one.name not in ("site", CORRUPT)])
        for one in known:
            rows = rows.add(one, "boolean")
        rows = rows.add(CORRUPT, "string").add(NEW, "string")
        return retry_quarantine.try_again(prepare(place.options, rows, numbered=True), decode)

    with pytest.raises(SchemaGrown, match="/rows: the columns new were added to it"):
        try_again()
    assert (place.rows(), len(place.aside())) == (Counter(), 2)
    assert try_again("new") == retry_quarantine.Tried(added=1, there=0, left=1)
    assert [(row["seq"], row["n"], row["new"]) for row in place.found("rows")] == [(1, 1, True)]


def list_of(lake: Place, **tables: str) -> Callable[[pa.Table], pa.Table]:
    """A list of tables by subject, and what decodes messages for it."""
    options = {"quarantineTable": str(lake.folder / "aside")} | listed_option(
        [
            ([one], "n LONG", {"path": str(lake.folder / path)}, {}, {})
            for one, path in tables.items()
        ]
    )
    lake.options = parse_lakehouse_options(lake.format, options)

    def decode(records: pa.Table) -> pa.Table:
        numbers, fields = [], []
        for row in records.to_pylist():
            numbers.append(list(tables).index(row["subject"]) if row["subject"] in tables else None)
            n = json.loads(row["data"])["n"]
            fits = type(n) is int
            fields.append({"n": n if fits else None, CORRUPT: None if fits else str(n)})
        for at in range(len(tables)):
            own = [
                one if at == number else None for one, number in zip(fields, numbers, strict=True)
            ]
            records = records.append_column(listed.fields_column(at), pa.array(own, FIELDS))
        return records.append_column(listed.NUMBER, pa.array(numbers, pa.int32()))

    return decode


FIELDS = pa.struct([("n", pa.int64()), (CORRUPT, pa.string())])


def rows_of_list(tables: int) -> StructType:
    rows = StructType([one for one in ROWS if one.name in quarantine.MESSAGE])
    fields = StructType().add("n", "long").add(CORRUPT, "string")
    for at in range(tables):
        rows = rows.add(listed.fields_column(at), fields)
    return rows.add(listed.NUMBER, "integer")


@pytest.mark.full
@pytest.mark.parametrize("killed_at", range(4))
def test_records_of_a_list_become_rows_of_its_tables_also_when_it_was_mended_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: Format, killed_at: int
) -> None:
    lake = Place(tmp_path, format_)
    for first, subject in enumerate(("a", "b", "c")):
        lake.put_aside({"n": 1}, {"n": "x"}, first=2 * first + 1, subject=subject)

    def try_again(*paths: str) -> retry_quarantine.Tried:
        decode = list_of(lake, **dict(zip("abc", paths, strict=False)))
        target = prepare(lake.options, rows_of_list(len(paths)), numbered=True)
        return retry_quarantine.try_again(target, decode)

    with killed(monkeypatch, killed_at):
        try_again("one", "two")
    # The tables have changed places, and there is a third one.
    tried = try_again("two", "one", "c")
    assert tried.added + tried.there == 3
    assert lake.rows("one", "two", "c") == Counter([1, 3, 5])
    assert lake.aside() == dict.fromkeys((2, 4, 6), 'n: "x" is not a BIGINT.')
    assert try_again("two", "one", "c") == retry_quarantine.Tried(0, 0, 3)


def test_a_record_of_a_subject_that_the_list_lacks_stays(tmp_path: Path) -> None:
    lake = Place(tmp_path, Format.DELTA)
    lake.put_aside({"n": 1}, subject="other")
    decode = list_of(lake, a="a")
    target = prepare(lake.options, rows_of_list(1), numbered=True)
    assert retry_quarantine.try_again(target, decode) == retry_quarantine.Tried(0, 0, 1)
    assert lake.aside() == {1: "No table of the list takes the subject other."}


def test_a_table_of_other_columns_holds_no_records(tmp_path: Path) -> None:
    place = Place(tmp_path, Format.DELTA)
    other = TableName(path=str(tmp_path / "other"))
    make_table(Format.DELTA, other, pa.schema([("a", pa.int64())]), ())
    given = {"path": str(tmp_path / "rows"), "quarantineTable": str(tmp_path / "other")}
    place.options = parse_lakehouse_options(Format.DELTA, given)
    with pytest.raises(ConfigError, match="has the columns a: it is no table of records"):
        place.try_again()
