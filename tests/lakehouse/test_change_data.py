"""Debezium's events into tables: the table equals the database, and a history all that it was.

Random changes, delivered with the repeats of a restart, in batches and tasks that are cut anywhere,
against a replay in Python.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.lakehouse.conftest import Place
from tests.support.debezium import (
    ENVELOPE_SCHEMA,
    Change,
    Database,
    replay,
    replay_history,
    with_repeats,
)

from jetspark.codecs.debezium import POSITION, TIME, DebeziumFields, row_columns
from jetspark.errors import ConfigError
from jetspark.lakehouse.batches import commit_batch
from jetspark.lakehouse.formats import Format
from jetspark.lakehouse.history import History
from jetspark.lakehouse.new_files import NewFile, write_files
from jetspark.lakehouse.table import Table
from jetspark.lakehouse.upserts import Deletes, Upsert, remove, staged

COLUMNS = row_columns(json.dumps(ENVELOPE_SCHEMA).encode())
FIELDS = DebeziumFields(COLUMNS)
_RULES = ("id",), POSITION, Deletes("__op", ("d",)), Deletes("__op", ("t",))
UPSERT = Upsert(*_RULES)
HISTORY = History(*_RULES, TIME)
SCHEMA = pa.schema([("seq", pa.int64()), *FIELDS.fields])


def written(table: Table, tasks: Sequence[Sequence[tuple[int, bytes]]]) -> list[NewFile]:
    """The files of some tasks, of numbered messages."""
    layout = staged(table.layout(10**8, "zstd"))
    files = []
    for task in tasks:
        seqs, payloads = [seq for seq, _ in task], [payload for _, payload in task]
        columns = [pa.array(seqs, pa.int64()), pa.array(payloads, pa.binary())]
        messages = pa.RecordBatch.from_arrays(columns, ["seq", "data"])
        rows = FIELDS.of(messages).select(SCHEMA.names)
        files += write_files(layout, table.storage, "part-0", [rows])
    return files


def delivered(
    rng: random.Random, place: Place, log: Sequence[Change], change: Upsert, connector: str
) -> None:
    """Commit the log in some batches, of some tasks."""
    table = place.make(change.with_added(SCHEMA))
    messages = list(enumerate((one.payload(connector) for one in log), 1))
    batch = 0
    while messages:
        count = rng.randint(1, 120)
        taken, messages = messages[:count], messages[count:]
        cut = rng.randint(0, len(taken))
        tasks = [one for one in (taken[cut:], taken[:cut]) if one]
        files = written(table, tasks)
        assert commit_batch(table, "q", batch, files, change=change)
        remove(table.storage, files)
        table.refresh()
        batch += 1


def log_of(rng: random.Random, count: int) -> list[Change]:
    database = Database(rng)
    for at in range(count):
        database.change()
        if at == count // 3:
            database.snapshot()
    assert replay(database.log) == database.rows
    return database.log


def stored(place: Place) -> dict[int, dict[str, Any]]:
    """The rows by key, as the database has them."""
    columns = COLUMNS.names
    found = place.duckdb(f"SELECT {', '.join(columns[:3])}, epoch_us(changed) FROM t")
    assert len({row[0] for row in found}) == len(found)
    return {row[0]: dict(zip(columns, row, strict=True)) for row in found}


def versions(place: Place) -> list[tuple[Any, ...]]:
    query = "SELECT id, __op, epoch_us(valid_from), epoch_us(valid_to), amount FROM t ORDER BY ALL"
    return sorted(place.duckdb(query), key=_key)


def _key(version: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((one is not None, one) for one in version)


@pytest.mark.parametrize(
    ("place", "connector"),
    [
        (Format.ICEBERG, "postgresql"),
        *((Format.DELTA, one) for one in ("mysql", "sqlserver", "oracle", "another")),
    ],
    indirect=["place"],
)
def test_the_table_is_the_database_after_restarts(place: Place, connector: str) -> None:
    rng = random.Random(connector)
    log = log_of(rng, 400)
    delivered(rng, place, list(with_repeats(rng, log, 0.03)), UPSERT, connector)
    assert stored(place) == replay(log)


def test_the_history_is_all_that_the_database_was(place: Place) -> None:
    rng = random.Random(1)
    log = log_of(rng, 400)
    delivered(rng, place, list(with_repeats(rng, log, 0.03)), HISTORY, "postgresql")
    assert versions(place) == sorted(replay_history(log), key=_key)


def put(place: Place, change: Upsert, batch: int, *log: Change, first: int = 1) -> None:
    table = place.open() if batch else place.make(change.with_added(SCHEMA))
    messages = [(first + at, one.payload("postgresql")) for at, one in enumerate(log)]
    commit_batch(table, f"q{batch}", 0, written(table, [messages]), change=change)


def of(op: str, place: int, key: int = 1) -> Change:
    row = {"id": key, "customer": f"at {place}", "amount": None, "changed": place}
    if op == "t":
        return Change(op, place, place)
    return Change(op, place, place, row if op == "d" else None, None if op == "d" else row)


def test_a_repeated_event_does_not_bring_back_what_a_row_was(place: Place) -> None:
    put(place, UPSERT, 0, of("c", 1), of("u", 2), of("c", 3, 2))
    put(place, UPSERT, 1, of("u", 2), of("c", 1), first=4)
    assert {row["customer"] for row in stored(place).values()} == {"at 2", "at 3"}


def test_a_truncate_removes_what_came_before_it_and_no_more(place: Place) -> None:
    put(place, UPSERT, 0, of("c", 1), of("c", 2, 2))
    put(place, UPSERT, 1, of("u", 3, 2), of("t", 4), of("c", 5, 3))
    assert stored(place).keys() == {3}
    put(place, UPSERT, 2, of("t", 4), first=4)  # again
    assert stored(place).keys() == {3}
    put(place, UPSERT, 3, of("t", 6))
    assert stored(place) == {}


def test_a_batch_of_a_truncate_alone_leaves_other_rows_in_their_files(place: Place) -> None:
    put(place, UPSERT, 0, of("c", 1), of("c", 9, 2))
    put(place, UPSERT, 1, of("t", 5))
    assert stored(place).keys() == {2}


def test_a_history_takes_a_late_change_between_the_others_and_a_repeated_one_not_again(
    place: Place,
) -> None:
    put(place, HISTORY, 0, of("c", 1), of("u", 7))
    put(place, HISTORY, 1, of("u", 4), of("u", 7), of("c", 1), first=3)
    assert versions(place) == [(1, "c", 1, 4, None), (1, "u", 4, 7, None), (1, "u", 7, None, None)]
    put(place, HISTORY, 2, of("d", 9), of("d", 9), first=6)
    put(place, HISTORY, 3, of("u", 7), of("d", 9), first=8)
    assert versions(place)[0] == (1, "c", 1, 4, None)
    assert versions(place)[1:] == [(1, "d", 9, 9, None), (1, "u", 4, 7, None), (1, "u", 7, 9, None)]


def test_a_truncate_ends_each_key_of_a_history_once(place: Place) -> None:
    put(place, HISTORY, 0, of("c", 1), of("c", 2, 2), of("d", 3, 2))
    put(place, HISTORY, 1, of("t", 5), of("c", 6, 2))
    put(place, HISTORY, 2, of("t", 5), first=9)
    assert [one for one in versions(place) if one[1] == "t"] == [(1, "t", 5, 5, None)]
    assert [one[0] for one in versions(place) if one[3] is None] == [2]


def test_rows_that_a_table_of_changes_cannot_have_are_refused(place: Place) -> None:
    with pytest.raises(ConfigError, match="no value in 'id'"):
        put(place, UPSERT, 0, Change("u", 1, 1, None, {"amount": None}))
    with pytest.raises(ConfigError, match="'historyBy': 'id' has the type int64; name a timestamp"):
        History(*_RULES, "id").with_added(SCHEMA)
    with pytest.raises(ConfigError, match="the rows have a column valid_to"):
        HISTORY.with_added(pa.schema([*SCHEMA, pa.field("valid_to", pa.string())]))
    with pytest.raises(ConfigError, match="'historyBy': there is no column 'when'"):
        History(*_RULES, "when").check(SCHEMA)
    with pytest.raises(ConfigError, match="'applyAsTruncates': 'id' has the type int64"):
        Upsert(("id",), POSITION, None, Deletes("id", ("t",))).check(SCHEMA)
