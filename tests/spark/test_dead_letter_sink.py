"""Dead letters of bad records: one for each, wherever a run is killed; without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.streams import Admin
from tests.support.table_readers import by_us
from tests.support.tasks import Task

from jetspark.blocking import connect
from jetspark.dead_letters import DeadLetter
from jetspark.errors import BrokenSocketError, ConfigError, TableError
from jetspark.letter_rules import subject_of_letter
from jetspark.payloads.tolerant import CORRUPT
from jetspark.ranges.arrow import SCHEMA
from jetspark.spark.source.options import parse_options
from jetspark.spark.table_sink import batch_commits, dead_letter_sink
from jetspark.spark.table_sink.option_texts import (
    ListedTable,
    parse_lakehouse_options,
    table_list_option,
)
from jetspark.spark.table_sink.table_preparation import prepare_for_query
from jetspark.spark.table_sink.task_files import TaskFiles
from jetspark.spark.table_sink.task_output import TaskCommit
from jetspark.spark.table_sink.writers import LakehouseStreamWriter
from jetspark.tables import batches
from jetspark.tables.formats import Format
from jetspark.wire import js_api

pytestmark = [pytest.mark.server, pytest.mark.tables]

QUERY = "5ae0ddf6-2a64-4b6f-b6b7-3d6e1a9b7a10"
ROWS = pa.schema([*SCHEMA, ("n", pa.int64()), (CORRUPT, pa.string())])
AT = 1_769_860_800_000_000
"""2026-01-31 12:00:00 UTC, in microseconds."""
SPAN = range(1, 7)
"""Sequences; every third one becomes no row."""


class Query:
    """What Spark does with a batch of messages."""

    def __init__(self, url: str, folder: Path, stream: str, **more: str) -> None:
        self.folder, self.stream, self.url = folder, stream, url
        self.aside = f"{stream}_BAD"
        given = {"path": str(folder / "t")} if not more.keys() & {"path", "tables"} else {}
        given |= {"quarantine": f"stream:{self.aside}", "quarantine.servers": url} | more
        format_ = Format(given.pop("format", "delta"))
        self.options = parse_lakehouse_options(format_, given).for_streaming()

    def batch(self, seqs: range = SPAN, data: bytes = b"{}") -> pa.RecordBatch:
        headers = [[{"key": "Trace", "value": "é"}, {"key": "Nats-Msg-Id", "value": "m"}]]
        columns: dict[str, Any] = {
            "stream": [self.stream] * len(seqs),
            "subject": [f"{self.stream}.{'ab'[seq % 2]}" for seq in seqs],
            "seq": seqs,
            "timestamp": pa.array([AT + seq for seq in seqs], pa.timestamp("us", tz="UTC")),
            "data": [data] * len(seqs),
            "headers": pa.array(headers * len(seqs), SCHEMA.field("headers").type),
        }
        if not self.options.tables:
            columns["n"] = pa.nulls(len(seqs), pa.int64())
            columns[CORRUPT] = [None if seq % 3 else "x" for seq in seqs]
        return pa.RecordBatch.from_pydict(columns)

    def run(self, number: int = 0, *rows: pa.RecordBatch) -> None:
        """A batch, as tasks and driver write it, as often as it is run."""
        if self.options.tables:
            task = Task(self.options)
            prepared, files = task.target, task.files
            write: Callable[[pa.RecordBatch], None] = task.write
        else:
            prepared = prepare_for_query(self.options, [ROWS])
            files = TaskFiles(prepared)
            write = files.write
        for one in rows or (self.batch(),):
            write(one)
        writer = LakehouseStreamWriter(self.options, prepared, replace=False)
        writer.commit([TaskCommit(QUERY, files.close())], number)

    def seqs(self, *names: str) -> Counter[int]:
        """Of rows of these tables."""
        rows = [by_us(self.options.format, self.folder / one) for one in names or ("t",)]
        return Counter(row["seq"] for table in rows for row in table)

    def letters(self, **which: str) -> list[DeadLetter]:
        with connect(self.url) as nc:
            return nc.jetstream().dead_letters(self.aside).letters(**which).all()

    def letter_seqs(self) -> Counter[int]:
        return Counter(one.stream_seq for one in self.letters())

    def subject(self, seq: int) -> str:
        return subject_of_letter(self.aside, self.stream, QUERY, f"{seq}-{(AT + seq) * 1000}")


@pytest.fixture
def query(admin: Admin, tmp_path: Path) -> Query:
    name = admin.stream(under=".>")
    return Query(admin.url, tmp_path, name)


def test_a_record_is_a_letter_that_is_listed_and_replayed(query: Query) -> None:
    query.run()
    assert query.seqs() == Counter([1, 2, 4, 5])
    first, second = query.letters(reason="quarantined", consumer=QUERY)
    assert (first.stream, first.stream_seq, second.stream_seq) == (query.stream, 3, 6)
    assert (first.subject, first.data, first.deliveries) == (f"{query.stream}.b", b"{}", 1)
    assert first.text == "The payload does not fit the schema."
    assert first.published == datetime.fromtimestamp((AT + 3) / 1e6, UTC)
    assert first.headers.to_dict() == {"Trace": ["é"], "Nats-Msg-Id": ["m"]}
    query.run(1, query.batch(range(9, 10), b'{"n": "x"}'))
    assert query.letters()[-1].column == "n"
    assert query.letters()[-1].text == 'n: "x" is not a BIGINT.'
    with connect(query.url) as nc:
        dead = nc.jetstream().dead_letters(query.aside)
        assert dead.replay(subject=f"{query.stream}.b") == (2, 0, 0, 0)
        again = nc.jetstream().stream(query.stream).get(1)
        assert (again.subject, again.data) == (f"{query.stream}.b", b"{}")
        assert again.headers is not None
        assert again.headers.to_dict().keys() == {"Trace", "Nats-Msg-Id"}
    assert query.letter_seqs() == Counter([6])
    # The table has this batch: what was replayed does not come back.
    query.run(1, query.batch(range(9, 10), b'{"n": "x"}'))
    query.run(1, query.batch(range(9, 10)))
    assert query.letter_seqs() == Counter([6])
    assert not [one for one in (query.folder / "t").rglob("*.parquet") if "aside" in one.name]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "template", "list"])
def test_a_batch_that_is_killed_anywhere_leaves_each_record_in_one_letter(
    query: Query, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = query.folder
    more: dict[str, dict[str, str]] = {
        "delta": {},
        "iceberg": {"format": "iceberg"},
        "template": {"path": f"{folder}/{{subject[1]}}"},
        "list": table_list_option(
            [ListedTable(subjects=(f"{query.stream}.a",), options={"path": f"{folder}/a"})]
        ),
    }
    query = Query(query.url, folder, query.stream, **more[kind])
    # Of the list no table takes what is on the other subject.
    good, bad = ([2, 4, 6], [1, 3, 5]) if kind == "list" else ([1, 2, 4, 5], [3, 6])
    killed_at: list[str] = []

    def die(where: str) -> None:
        if killed_at[-1] == where:
            raise BrokenSocketError("killed", server="s")

    store = dead_letter_sink.DeadLetterSink.store

    def half_stored(self: Any, writer: str, records: Any) -> None:
        found = list(records)
        store(self, writer, [one.slice(0, 1) for one in found])
        die("letters")
        store(self, writer, found)
        die("first")

    def commit_batch(*given: Any, **named: Any) -> bool:
        done = batches.commit_batch(*given, **named)
        die("table")
        return done

    monkeypatch.setattr(dead_letter_sink.DeadLetterSink, "store", half_stored)
    monkeypatch.setattr(batch_commits, "commit_batch", commit_batch)
    for where in ("letters", "first", "table", "", ""):
        killed_at.append(where)
        with suppress(BrokenSocketError):
            query.run()
        assert query.letter_seqs() <= Counter(bad)
    assert query.letter_seqs() == Counter(bad)
    assert query.seqs("t", "a", "b") == Counter(good)


def test_what_somebody_else_has_published_in_a_letters_place_stops_the_batch(
    query: Query, admin: Admin
) -> None:
    query.run()
    admin.api.call(js_api.STREAM_PURGE, {"filter": query.subject(6)}, stream=query.aside)
    admin.fill([(query.subject(9), b"?")])
    with pytest.raises(TableError, match=r"has a message of somebody else on _dead\..*message 3"):
        query.run(1, query.batch(range(7, 10)))
    assert query.seqs() == Counter([1, 2, 4, 5])


def test_a_letter_without_room_for_the_payload_has_none(query: Query, admin: Admin) -> None:
    admin.create(query.aside, f"_dead.{query.aside}.>", max_msg_size=1000)
    query.run(0, query.batch(range(3, 4), b"x" * 990))
    (letter,) = query.letters()
    assert (letter.missing, letter.data, letter.stream_seq) == ("too large", b"", 3)
    query.run(1, query.batch(range(3, 4), b"x" * 990))
    assert query.letter_seqs() == Counter([3])


def test_letters_go_to_a_stream_of_letters_that_nobody_reads_for_the_same_table(
    query: Query, admin: Admin
) -> None:
    assert query.options.dead_letter_sink is not None
    query.options.dead_letter_sink.check()
    admin.create(query.aside, "other.>")
    with pytest.raises(ConfigError, match="is not a stream of dead letters, whose only subject"):
        query.options.dead_letter_sink.check()
    admin.call(
        f"STREAM.UPDATE.{query.aside}",
        {"name": query.aside, "subjects": [f"_dead.{query.aside}.>"], "no_ack": True},
    )
    with pytest.raises(ConfigError, match="does not keep each letter"):
        query.options.dead_letter_sink.check()
    for read in ({"stream": query.aside}, {"streamPattern": f"{query.stream}.*"}):
        with pytest.raises(ConfigError, match="without an end"):
            query.options.dead_letter_sink.check_not_read(parse_options(read))


def test_options_of_a_stream_for_letters(tmp_path: Path) -> None:
    def parse(**given: str) -> object:
        return parse_lakehouse_options(Format.ICEBERG, given)

    place = {"path": str(tmp_path)}
    letters = {"quarantine": "stream:BAD"}
    parse(**place, **letters, **{"quarantine.password": "p", "quarantine.user": "u"})
    for given, says in (
        (place | letters | {"quarantine.pasword": "p"}, "of the stream for letters: Unknown opt"),
        (place | {"quarantine": "aside", "quarantine.user": "u"}, "go with quarantine stream:NAME"),
        ({"catalog": "c", "table": "n.{region}"} | letters, "a template of a catalog's tables"),
        (place | {"quarantine": "stream:BAD NAME"}, "BAD NAME"),
    ):
        with pytest.raises(ConfigError, match=says):
            parse(**given)
