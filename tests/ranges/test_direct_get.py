"""Ranges of work queues, read by direct gets: all that a consumer would give, and none taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.ranges import table_of, whole
from tests.support.streams import Admin, numbered

from jetspark.connection.options import make_options
from jetspark.errors import DataLossError
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits
from jetspark.server import NatsServer


@pytest.fixture(autouse=True)
def _needs_batches(needs_server: Callable[[str], None]) -> None:
    needs_server("2.11")


@pytest.fixture
def queue(admin: Admin) -> str:
    return admin.stream(under=".>", retention="workqueue", allow_direct=True)


def read(
    server: NatsServer, admin: Admin, name: str, start: int = 1, end: int = 0, **more: Any
) -> pa.Table:
    wanted = whole(admin.facts(name), direct=True, **more)
    wanted = replace(wanted, start=start, end=end or wanted.end)
    batches = list(read_range(make_options(server.url), wanted, ReadLimits(max_rows=700)))
    assert all(batch.num_rows <= 700 for batch in batches)
    return table_of(batches)


def test_every_column_and_nothing_is_taken(
    shared_server: NatsServer, admin: Admin, queue: str
) -> None:
    rows = numbered(f"{queue}.a", 2500)
    rows += [(f"{queue}.b", b"x", [("A", "1"), ("Nats-Sequence", "999")]), (f"{queue}.a", b"y")]
    admin.fill(rows)
    for _ in range(2):
        table = read(shared_server, admin, queue)
        assert table["seq"].to_pylist() == list(range(1, 2503))
        assert table["data"].to_pylist() == [row[1] for row in rows]
    last = table.slice(2500).to_pylist()[0]
    assert (last["subject"], last["stream"]) == (f"{queue}.b", queue)
    assert {"key": "Nats-Sequence", "value": "999"} in last["headers"]
    stored = admin.call(f"STREAM.MSG.GET.{queue}", {"seq": 2501})["message"]["time"]
    assert last["timestamp"].isoformat()[:26] == stored[:26]
    assert admin.facts(queue).messages == 2502


def test_direct_reads_of_a_range_skip_deleted_messages(
    shared_server: NatsServer, admin: Admin, queue: str
) -> None:
    admin.fill(numbered(f"{queue}.a", 100))
    admin.delete_messages(queue, 10, 50, 59, 60)
    table = read(shared_server, admin, queue, 5, 61)
    assert table["seq"].to_pylist() == [n for n in range(5, 61) if n not in (10, 50, 59, 60)]


@pytest.mark.parametrize("chosen", ["b", "bc"])
def test_direct_reads_return_the_chosen_subjects(
    shared_server: NatsServer, admin: Admin, queue: str, chosen: str
) -> None:
    admin.fill((f"{queue}.{'abc'[n % 3]}", b"%d" % n) for n in range(3000))
    subjects = tuple(f"{queue}.{letter}" for letter in chosen)
    table = read(shared_server, admin, queue, subjects=subjects)
    assert table["data"].to_pylist() == [b"%d" % n for n in range(3000) if "abc"[n % 3] in chosen]


def test_messages_removed_by_another_reader_are_data_loss(
    shared_server: NatsServer, admin: Admin, queue: str
) -> None:
    admin.fill(numbered(f"{queue}.a", 50))
    admin.purge(queue, seq=11)
    with pytest.raises(DataLossError, match="1 to 10 were removed"):
        read(shared_server, admin, queue)
