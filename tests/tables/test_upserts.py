"""Tables of present values: what batches of changes leave behind."""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from tests.support.together import together
from tests.tables import conftest
from tests.tables.conftest import Place

from jetspark.errors import ConfigError
from jetspark.tables.batches import commit_batch, last_batch
from jetspark.tables.formats import Format
from jetspark.tables.new_files import NewFile
from jetspark.tables.table import Table
from jetspark.tables.upserts import RowCondition, Upsert, remove_staged_files

SCHEMA = pa.schema(
    [
        ("Key of it", pa.string()),
        ("region", pa.string()),
        ("revision", pa.int64()),
        ("operation", pa.string()),
        ("value", pa.binary()),
        ("tags", pa.list_(pa.string())),
    ]
)
KEYS = ("Key of it", "region")
GONE = RowCondition.parse("operation IN ('DEL', 'PURGE')")
UPSERT = Upsert(KEYS, "revision", GONE)


def row(key: str, revision: int, operation: str = "PUT", region: str = "eu") -> dict[str, Any]:
    value = str(revision).encode() if operation == "PUT" else None
    return {
        "Key of it": key, "region": region, "revision": revision, "operation": operation,
        "value": value, "tags": ["a", key],
    }  # fmt: skip


def written(table: Table, *tasks: list[dict[str, Any]]) -> list[NewFile]:
    """The files of some tasks."""
    batches = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in tasks]
    return conftest.written(table, *batches, keyed=True)


def values(place: Place) -> list[dict[str, Any]]:
    """The table's rows by key, as DuckDB and Polars see them."""
    found = place.polars().sort(KEYS).collect().to_dicts()
    sql = 'SELECT "Key of it", region, revision FROM t ORDER BY ALL'
    assert place.duckdb(sql) == [
        (one["Key of it"], one["region"], one["revision"]) for one in found
    ]
    return found


@pytest.mark.full
@pytest.mark.parametrize("partition_by", [(), ("region",)])
def test_a_table_holds_the_last_value_of_each_key(
    place: Place, partition_by: tuple[str, ...]
) -> None:
    """Random batches, cut into tasks anyhow, against a dictionary."""
    chosen = random.Random(7)
    table = place.make(SCHEMA, *partition_by)
    model: dict[tuple[str, str], dict[str, Any]] = {}
    revision = 0
    for batch in range(8):
        rows = []
        for _ in range(chosen.randrange(9)):
            revision += 1
            operation = chosen.choice(["PUT", "PUT", "DEL", "PURGE"])
            rows.append(
                row(chosen.choice("aAbÖ"), revision, operation, chosen.choice(["eu", "u s"]))
            )
            key = (rows[-1]["Key of it"], rows[-1]["region"])
            model.pop(key, None)
            if operation == "PUT":
                model[key] = rows[-1]
        chosen.shuffle(rows)
        cut = chosen.randint(0, len(rows))
        files = written(table, rows[:cut], rows[cut:])
        assert commit_batch(table, "q", batch, files, change=UPSERT)
        remove_staged_files(table.storage, files)
        table.refresh()
        assert last_batch(table, "q") == batch
        assert values(place) == [model[key] for key in sorted(model)]


def test_a_batch_of_upserts_that_comes_again_changes_nothing(place: Place) -> None:
    table = place.make(SCHEMA)
    successor = place.open()
    late = written(table, [row("a", 1), row("b", 2)])
    assert commit_batch(successor, "q", 0, written(successor, [row("a", 1)]), change=UPSERT)
    assert commit_batch(successor, "q", 1, written(successor, [row("a", 3, "DEL")]), change=UPSERT)
    assert not commit_batch(table, "q", 0, late, change=UPSERT)  # by a driver thought dead
    assert values(place) == []


def test_an_older_row_does_not_replace_a_newer_one(place: Place) -> None:
    table = place.make(SCHEMA)
    commit_batch(table, "q", 0, written(table, [row("a", 5), row("b", 5)]), change=UPSERT)
    older = written(table, [row("a", 4), row("b", 4, "DEL"), row("c", 4)])
    commit_batch(table, "again", 0, older, change=UPSERT)
    assert [one["revision"] for one in values(place)] == [5, 5, 4]


def test_without_an_order_the_later_batch_wins(place: Place) -> None:
    counts = Upsert(KEYS)
    table = place.make(SCHEMA)
    commit_batch(table, "q", 0, written(table, [row("a", 5), row("b", 5)]), change=counts)
    commit_batch(table, "q", 1, written(table, [row("a", 4)]), change=counts)
    assert [one["revision"] for one in values(place)] == [4, 5]
    with pytest.raises(ConfigError, match=r"Two rows of a batch .* sequence_by"):
        commit_batch(table, "q", 2, written(table, [row("a", 1), row("a", 2)]), change=counts)


@pytest.mark.full
def test_upserts_and_other_writers_at_once(place: Place) -> None:
    """Four writers with keys of their own, and all with one in common."""
    place.make(SCHEMA)

    def work(writer: int) -> None:
        table = place.open()
        for batch in range(4):
            rows = [row(f"k{writer}", batch), row("common", 10 * batch + writer)]
            commit_batch(table, f"q{writer}", batch, written(table, rows), change=UPSERT)

    together(work, range(4))
    found = {one["Key of it"]: one["revision"] for one in values(place)}
    assert found == {"common": 33} | {f"k{writer}": 3 for writer in range(4)}


@pytest.mark.parametrize("missing", ["Key of it", "revision"])
def test_a_row_without_key_or_order_is_refused(place: Place, missing: str) -> None:
    table = place.make(SCHEMA)
    with pytest.raises(ConfigError, match=f"no value in '{missing}'"):
        commit_batch(table, "q", 0, written(table, [row("a", 1) | {missing: None}]), change=UPSERT)
    assert last_batch(place.open(), "q") is None


@pytest.mark.parametrize(
    ("text", "column", "texts"),
    [
        ("gone", "gone", ()),
        ("`is gone`", "is gone", ()),
        ("operation = 'DEL'", "operation", ("DEL",)),
        (" operation in('DEL' , 'PURGE') ", "operation", ("DEL", "PURGE")),
        ("`what it is` IN ('it''s, gone', '')", "what it is", ("it's, gone", "")),
    ],
)
def test_conditions_of_deletes(text: str, column: str, texts: tuple[str, ...]) -> None:
    assert RowCondition.parse(text) == RowCondition(column, texts)


@pytest.mark.parametrize(
    "text",
    ["", "a = 1", "a IN ()", "a IN ('x', 2)", "a = 'x' OR b = 'y'", "lower(a) = 'x'", "a = ''x"],
)
def test_other_conditions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="add a boolean column"):
        RowCondition.parse(text)


@pytest.mark.parametrize(
    ("upsert", "said"),
    [
        (Upsert(("nokey",)), "keys: there is no column 'nokey'; there are Key of it"),
        (Upsert(KEYS, "rev"), "sequence_by: there is no column 'rev'"),
        (Upsert(("tags",)), "keys: 'tags' has the nested type"),
        (Upsert(KEYS, None, RowCondition("value")), "'value' has the type binary; name a boolean"),
        (Upsert(KEYS, None, RowCondition("revision", ("1",))), "compare a text column"),
    ],
)
def test_columns_that_do_not_serve_are_refused(upsert: Upsert, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        upsert.check(SCHEMA)


def test_a_table_that_has_a_key_twice_is_refused_before_the_first_merge(place: Place) -> None:
    table = place.make(SCHEMA)
    twice = [row("a", 1), row("a", 2), row("b", 3)]
    table.append(written(table, twice), {})
    table = place.open()
    with pytest.raises(ConfigError, match="has 1 row with the same Key of it, region as another"):
        commit_batch(table, "w", 0, written(table, [row("a", 4)]), change=UPSERT)
    found = place.polars().select("revision").collect()
    assert sorted(found["revision"].to_list()) == [1, 2, 3]


def test_a_key_that_comes_twice_later_is_noticed_before_the_next_merge(place: Place) -> None:
    table = place.make(SCHEMA)
    commit_batch(table, "w", 0, written(table, [row("a", 1), row("b", 1)]), change=UPSERT)
    commit_batch(table, "w", 1, written(table, [row("b", 2)]), change=UPSERT)
    place.open().append(written(table, [row("a", 9)]), {})
    table = place.open()
    with pytest.raises(ConfigError, match="has 1 row with the same Key of it, region as another"):
        commit_batch(table, "w", 2, written(table, [row("a", 5)]), change=UPSERT)
    assert last_batch(table, "w") == 1


@pytest.mark.full
def test_keys_are_read_after_changes_only(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Upsert] = []
    monkeypatch.setattr(Upsert, "_check_unique", lambda upsert, *_: looks.append(upsert))
    place.make(SCHEMA)
    other_keys = Upsert(("Key of it",), "revision")
    batches = count()

    def write(upsert: Upsert) -> None:
        table, batch = place.open(), next(batches)
        commit_batch(table, "w", batch, written(table, [row("a", batch)]), change=upsert)

    for upsert in (UPSERT, other_keys, UPSERT):
        for _ in range(2):  # the first one also notes in the table how it is written
            write(upsert)
        assert looks.pop() == upsert
        looks.clear()
        write(upsert)
        assert looks == []
    place.open().append(written(place.open(), [row("b", 1)]), {})
    write(UPSERT)
    assert looks == [UPSERT]


def test_a_row_without_an_order_is_older_than_any(place: Place) -> None:
    table = place.make(SCHEMA)
    table.append(written(table, [{**row("a", 1), "revision": None}]), {})
    table = place.open()
    commit_batch(table, "w", 0, written(table, [row("a", 5)]), change=UPSERT)
    assert [one["revision"] for one in values(place)] == [5]


def test_a_key_may_order_its_own_rows(place: Place) -> None:
    table = place.make(SCHEMA)
    upsert = Upsert(("revision",), "revision")
    for batch in range(2):
        table = place.open()
        rows = [row(f"k{batch}", 1), row(f"k{batch}", 2)]
        commit_batch(table, "w", batch, written(table, rows), change=upsert)
    assert {one["Key of it"] for one in values(place)} == {"k1"}


def test_keys_without_exact_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="'x' has the type double, whose values are not exact"):
        Upsert(("x",)).check(pa.schema([("x", pa.float64())]))


def test_ten_thousand_rows_of_two_key_columns_are_replaced(place: Place) -> None:
    """An expression that names them all ends the process: its readers are recursive."""
    table = place.make(SCHEMA, "region")
    for batch in range(2):
        rows = [row(str(one), batch, region=f"r{one % 3}") for one in range(10_000)]
        assert commit_batch(table, "q", batch, written(table, rows), change=UPSERT)
        table.refresh()
    sql = 'SELECT count(*), count(DISTINCT "Key of it"), min(revision), max(revision) FROM t'
    assert place.duckdb(sql) == [(10_000, 10_000, 1, 1)]


def test_rows_with_other_keys_stay_in_files_that_are_written_anew(place: Place) -> None:
    """Files without a row to replace stay as they are."""
    table = place.make(SCHEMA)
    for batch, keys in enumerate([range(100), range(200, 300)]):
        rows = [row(f"{one:03}", batch) for one in keys]
        commit_batch(table, "q", batch, written(table, rows), change=UPSERT)
        table.refresh()
    files = set((place.folder).rglob("*.parquet"))
    changed = [row("007", 2), row("042", 2, "DEL"), row("250", 0), row("251", 0, "DEL")]
    commit_batch(table, "q", 2, written(table, changed), change=UPSERT)
    found = {one["Key of it"]: one["revision"] for one in values(place)}
    wanted = {f"{one:03}": 0 for one in range(100) if one != 42} | {"007": 2}
    assert found == wanted | {f"{one}": 1 for one in range(200, 300)}
    if place.format is Format.ICEBERG:
        assert len(set((place.folder).rglob("merged-*.parquet")) - files) == 1
