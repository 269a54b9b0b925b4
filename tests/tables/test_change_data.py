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
from tests.support.debezium import (
    ENVELOPE_SCHEMA,
    Change,
    Database,
    replay,
    replay_history,
    with_repeats,
)
from tests.tables import conftest
from tests.tables.conftest import Place

from jetspark.errors import ConfigError
from jetspark.payloads.debezium import DebeziumDecoder
from jetspark.payloads.debezium_events import POSITION, TIME
from jetspark.payloads.debezium_schema import row_columns
from jetspark.tables.batches import commit_batch
from jetspark.tables.formats import Format
from jetspark.tables.history import History
from jetspark.tables.new_files import NewFile
from jetspark.tables.table import Table
from jetspark.tables.upserts import RowCondition, Upsert, remove_staged_files

COLUMNS = row_columns(json.dumps(ENVELOPE_SCHEMA).encode())
FIELDS = DebeziumDecoder(COLUMNS)
_RULES = ("id",), POSITION, RowCondition("__op", ("d",)), RowCondition("__op", ("t",))
UPSERT = Upsert(*_RULES)
HISTORY = History(*_RULES, TIME)
SCHEMA = pa.schema([("seq", pa.int64()), *FIELDS.fields])


def written(table: Table, tasks: Sequence[Sequence[tuple[int, bytes]]]) -> list[NewFile]:
    """The files of some tasks, of numbered messages."""
    batches = []
    for task in tasks:
        seqs, payloads = [seq for seq, _ in task], [payload for _, payload in task]
        columns = [pa.array(seqs, pa.int64()), pa.array(payloads, pa.binary())]
        messages = pa.RecordBatch.from_arrays(columns, ["seq", "data"])
        batches.append(FIELDS.decode_batch(messages).select(SCHEMA.names))
    return conftest.written(table, *batches, keyed=True)


def delivered(
    rng: random.Random, place: Place, log: Sequence[Change], change: Upsert, connector: str
) -> None:
    """Commit the log in some batches, of some tasks."""
    table = place.make(change.table_schema(SCHEMA))
    messages = list(enumerate((one.payload(connector) for one in log), 1))
    batch = 0
    while messages:
        count = rng.randint(1, 120)
        taken, messages = messages[:count], messages[count:]
        cut = rng.randint(0, len(taken))
        tasks = [one for one in (taken[cut:], taken[:cut]) if one]
        files = written(table, tasks)
        assert commit_batch(table, "q", batch, files, change=change)
        remove_staged_files(table.storage, files)
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


@pytest.mark.full
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


@pytest.mark.full
def test_the_history_is_all_that_the_database_was(place: Place) -> None:
    rng = random.Random(1)
    log = log_of(rng, 400)
    delivered(rng, place, list(with_repeats(rng, log, 0.03)), HISTORY, "postgresql")
    assert versions(place) == sorted(replay_history(log), key=_key)


def put(place: Place, change: Upsert, batch: int, *log: Change, first: int = 1) -> None:
    table = place.open() if batch else place.make(change.table_schema(SCHEMA))
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


def test_a_history_takes_late_changes_in_between_and_repeated_ones_not(place: Place) -> None:
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
    ended = [one for one in versions(place) if one[1] == "t"]
    assert ended == [(None, "t", 5, 5, None), (1, "t", 5, 5, None)]
    assert [one[0] for one in versions(place) if one[3] is None] == [2]
    put(place, HISTORY, 3, of("c", 4, 9), of("u", 7, 9), first=10)  # late, on both sides
    late = [one for one in versions(place) if one[0] == 9]
    assert late == [(9, "c", 4, 5, None), (9, "t", 5, 5, None), (9, "u", 7, None, None)]


def test_rows_that_a_table_of_changes_cannot_have_are_refused(place: Place) -> None:
    with pytest.raises(ConfigError, match="no value in 'id'"):
        put(place, UPSERT, 0, Change("u", 1, 1, None, {"amount": None}))
    with pytest.raises(ConfigError, match="history_by: 'id' has the type int64; name a timestamp"):
        History(*_RULES, "id").table_schema(SCHEMA)
    with pytest.raises(ConfigError, match="the rows have a column valid_to"):
        HISTORY.table_schema(pa.schema([*SCHEMA, pa.field("valid_to", pa.string())]))
    with pytest.raises(ConfigError, match="history_by: there is no column 'when'"):
        History(*_RULES, "when").check(SCHEMA)
    with pytest.raises(ConfigError, match="apply_as_truncates: 'id' has the type int64"):
        Upsert(("id",), POSITION, None, RowCondition("id", ("t",))).check(SCHEMA)


# -- events of one place in the log, and of none --------------------------------------------------


def event(op: str, source: dict[str, Any], customer: str = "", key: int = 1) -> bytes:
    row = {"id": key, "customer": customer, "amount": None, "changed": None}
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    if op == "t":
        sides = {"before": None, "after": None}
    source = {"ts_ms": 1_790_000_000_000, "table": "orders"} | source
    return json.dumps({"op": op, **sides, "source": source}).encode()


def put_events(place: Place, change: Upsert, batch: int, *events: bytes, first: int = 1) -> None:
    table = place.open() if batch else place.make(change.table_schema(SCHEMA))
    messages = list(enumerate(events, first))
    cut = len(messages) // 2  # of two tasks, the later messages first
    files = written(table, [one for one in (messages[cut:], messages[:cut]) if one])
    commit_batch(table, f"q{batch}", 0, files, change=change)


def customers(place: Place) -> dict[int, str]:
    return {key: row["customer"] for key, row in stored(place).items()}


COMPRESSED = {"file": "binlog.000002", "pos": 400}


def test_changes_of_one_place_in_the_log_have_the_order_of_the_stream(place: Place) -> None:
    rows = [{**COMPRESSED, "row": row} for row in (1, 0, 0)]
    put_events(
        place, UPSERT, 0,
        event("c", rows[0], "a"), event("u", rows[1], "b"), event("d", rows[2]),
        event("c", rows[0], "a", 2), event("u", rows[1], "b", 2),
    )  # fmt: skip
    assert customers(place) == {2: "b"}
    put_events(place, UPSERT, 1, event("u", rows[0], "c", 2), first=6)
    put_events(place, UPSERT, 2, event("d", rows[0], key=2), first=7)
    assert customers(place) == {}


def test_a_history_keeps_all_changes_of_one_place_and_none_twice(place: Place) -> None:
    rows = [{**COMPRESSED, "row": row} for row in (1, 0, 0)]
    log = [event("c", rows[0], "a"), event("u", rows[1], "b"), event("u", rows[2], "a")]
    put_events(place, HISTORY, 0, *log[:2])
    put_events(place, HISTORY, 1, *log, first=3)  # Debezium begins again
    query = "SELECT __op, customer, valid_to IS NULL FROM t ORDER BY __position"
    wanted = [("c", "a", False), ("u", "b", False), ("u", "a", True)]
    assert place.duckdb(query) == wanted
    put_events(place, HISTORY, 2, *log, first=6)
    put_events(place, HISTORY, 3, *log[:2], first=9)
    put_events(place, HISTORY, 4, log[2], first=11)
    assert place.duckdb(query) == wanted
    put_events(place, HISTORY, 5, event("d", rows[2]), first=12)
    assert place.duckdb(query)[-2:] == [("u", "a", False), ("d", "", False)]


UNPLACED = [
    ({"lsn": 10}, {"lsn": 20}, {"lsn": None, "snapshot": "incremental"}),
    ({"file": "b.9", "pos": 10}, {"file": "b.10", "pos": 4}, {"file": "", "pos": 0, "row": 0}),
    ({"scn": "9", "commit_scn": "9"}, {"scn": "10", "commit_scn": "10"}, {"scn": None}),
    ({"commit_lsn": "1:1", "change_lsn": "1:1"}, {"commit_lsn": "2:1", "change_lsn": "1:1"},
     {"commit_lsn": None, "change_lsn": None}),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize(("first", "second", "none"), UNPLACED)
def test_a_row_of_an_incremental_snapshot_comes_after_what_was_before_it_and_no_more(
    place: Place, first: dict[str, Any], second: dict[str, Any], none: dict[str, Any], batches: int
) -> None:
    log = [
        event("c", first, "old"), event("r", none, "read"), event("r", none, "read", 2),
        event("r", none, "read", 3), event("u", second, "new", 3), event("u", first, "old"),
        event("d", second, key=2), event("r", none, "again", 4),
    ]  # fmt: skip
    size = len(log) // batches
    for batch in range(batches):
        taken = log[batch * size : batch * size + size]
        put_events(place, UPSERT, batch, *taken, first=1 + batch * size)
    # The old change of the first row is delivered once more, at the place that the snapshot took.
    assert customers(place) == {1: "old", 3: "new", 4: "again"}
    put_events(place, UPSERT, batches, event("r", none, "mended"), first=9)
    put_events(place, UPSERT, batches + 1, event("u", second, "newest"), first=10)
    put_events(place, UPSERT, batches + 2, event("u", first, "old"), first=11)
    assert customers(place) == {1: "newest", 3: "new", 4: "again"}


def test_a_row_of_an_incremental_snapshot_after_a_truncate_stays(place: Place) -> None:
    none = {"lsn": None}
    put_events(
        place, UPSERT, 0, event("r", none, "before"), event("t", {"lsn": 5}),
        event("r", none, "after", 2),
    )  # fmt: skip
    assert customers(place) == {2: "after"}
    put_events(place, UPSERT, 1, event("r", none, "later", 3), event("t", {"lsn": 6}), first=4)
    assert customers(place) == {}


def test_a_history_has_rows_of_an_incremental_snapshot_between_changes(place: Place) -> None:
    none = {"lsn": None}
    put_events(place, HISTORY, 0, event("c", {"lsn": 5}, "a"), event("r", none, "b"))
    put_events(place, HISTORY, 1, event("u", {"lsn": 7}, "c"), event("r", none, "d"), first=3)
    repeated = event("u", {"lsn": 7}, "c"), event("r", none, "d")
    put_events(place, HISTORY, 2, *repeated, event("d", {"lsn": 9}), first=5)
    query = "SELECT __op || customer, valid_to IS NULL FROM t ORDER BY __position"
    assert place.duckdb(query) == [
        ("ca", False), ("rb", False), ("uc", False), ("rd", False), ("d", False),
    ]  # fmt: skip


def test_of_each_moment_a_history_has_the_last_change_that_was_not_later(place: Place) -> None:
    """Though times do not have the order of the log, as where a clock is set back."""
    rng = random.Random(9)
    times = [rng.randrange(1, 40) for _ in range(40)]
    log = [
        event(rng.choice("cuuud"), {"lsn": lsn, "ts_ms": None, "ts_us": time}, str(lsn))
        for lsn, time in enumerate(times, 1)
    ]
    first = 1
    for batch, size in enumerate((7, 1, 20, 12)):
        put_events(place, HISTORY, batch, *log[first - 1 : first - 1 + size], first=first)
        first += size
    query = "SELECT customer, epoch_us(valid_from), epoch_us(valid_to), __op FROM t"
    versions = place.duckdb(query)
    assert all(end is None or begin <= end for _, begin, end, _ in versions)
    for moment in range(1, 41):
        valid = [
            one for one in versions if one[1] <= moment and (one[2] is None or moment < one[2])
        ]
        known = [lsn for lsn, time in enumerate(times, 1) if time <= moment]
        last = [json.loads(log[known[-1] - 1])] if known else []
        wanted = [one["after"]["customer"] for one in last if one["op"] != "d"]
        assert [one[0] for one in valid] == wanted


def test_a_history_ordered_by_another_column_has_truncates_and_late_changes(place: Place) -> None:
    """Also in a batch of nothing but a truncate."""
    history = History(("id",), "seq", *_RULES[2:], TIME)
    source = {"lsn": 5}
    put_events(place, history, 0, event("t", source), first=3)
    put_events(place, history, 1, event("c", source, "a"), event("c", source, "b", 2), first=1)
    put_events(place, history, 2, event("u", source, "c"), event("d", source, key=2), first=4)
    put_events(place, history, 3, event("u", source, "c"), first=4)
    query = "SELECT id, __op, valid_to IS NULL FROM t ORDER BY id, seq"
    assert place.duckdb(query) == [
        (1, "c", False), (1, "t", False), (1, "u", True), (2, "c", False), (2, "t", False),
        (2, "d", False), (None, "t", False),
    ]  # fmt: skip


def test_a_history_begins_with_a_truncate(place: Place) -> None:
    put(place, HISTORY, 0, of("t", 5))
    put(place, HISTORY, 1, of("c", 4), first=2)
    assert versions(place) == [(None, "t", 5, 5, None), (1, "c", 4, 5, None), (1, "t", 5, 5, None)]
