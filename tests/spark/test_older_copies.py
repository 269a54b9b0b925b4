"""A stream's store is replaced by an older copy of itself: same name, same creation time."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.blocking.eventually import eventually
from tests.conftest import MakeServer
from tests.support.driven_query import DrivenQuery
from tests.support.streams import Admin, numbered

from jetspark.blocking import connect
from jetspark.errors import DataLossError
from jetspark.server import NatsServer
from jetspark.spark.source.batch_reader import JetStreamBatchReader
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.stream_reader import JetStreamStreamReader

REPLACED = "was replaced by an older copy of itself"


class Disk:
    """A server whose disk can be copied and put back."""

    def __init__(self, server: NatsServer, copy: Path) -> None:
        self.server, self._copy = server, copy

    def fill(self, *subjects: str, count: int) -> None:
        with Admin(self.server.url) as admin:
            for subject in subjects:
                admin.fill(numbered(subject, count))

    def save(self) -> None:
        self.server.stop()
        shutil.copytree(self.server.store_dir, self._copy)
        self.server.start()

    def put_back(self) -> None:
        self.server.stop()
        shutil.rmtree(self.server.store_dir)
        shutil.copytree(self._copy, self.server.store_dir)
        self.server.start()


@pytest.fixture
def disk(make_server: MakeServer, tmp_path: Path) -> Disk:
    return Disk(make_server(store_dir=tmp_path / "store"), tmp_path / "copy")


def _query(disk: Disk, **options: str) -> DrivenQuery:
    return DrivenQuery(disk.server.url, "S", **options)


def _begun(disk: Disk) -> None:
    """Stream S has ten messages."""
    with Admin(disk.server.url) as admin:
        admin.create("S", "s")
    disk.fill("s", count=10)


def _copied(disk: Disk) -> None:
    """The stream has five messages more than its copy."""
    disk.save()
    disk.fill("s", count=5)


def _replaced(disk: Disk, query: DrivenQuery) -> None:
    """The query has read fifteen messages, and only ten of them are on the disk now."""
    disk.fill("s", count=10)
    _copied(disk)
    query.run()
    assert query.sequences == list(range(1, 16))
    disk.put_back()


@pytest.fixture
def query(disk: Disk) -> DrivenQuery:
    with Admin(disk.server.url) as admin:
        admin.create("S", "s")
    query = _query(disk)
    _replaced(disk, query)
    return query


def test_a_copy_that_is_shorter_or_has_grown_stops_the_query(
    disk: Disk, query: DrivenQuery
) -> None:
    with pytest.raises(DataLossError, match="ends at sequence 10, but 15 was read before"):
        query.run()
    disk.fill("s", count=9)
    with pytest.raises(DataLossError, match=rf"'S' {REPLACED}.* sequence 15 was stored") as caught:
        query.run()
    assert "messages before sequence 16 may never have been read. Set 'failOn" in str(caught.value)
    assert (caught.value.first, caught.value.last) == (15, 15)


def test_without_failing_the_query_goes_on_with_one_warning(
    disk: Disk, query: DrivenQuery, caplog: pytest.LogCaptureFixture
) -> None:
    disk.fill("s", count=9)
    with caplog.at_level(logging.WARNING, "jetspark.spark"):
        query.run(failOnDataLoss="false", batches=3)
    assert query.sequences == list(range(1, 20))
    assert caplog.text.count(REPLACED) == 1
    assert "Set fail" not in caplog.text
    disk.fill("s", count=1)
    query.run()  # the offset knows the new copy
    assert query.sequences[-1] == 20


def test_a_batch_that_was_planned_before_is_not_read_from_a_copy(
    disk: Disk, query: DrivenQuery
) -> None:
    disk.fill("s", count=9)
    assert query.checkpoint is not None
    reader = JetStreamStreamReader(parse_options(query.options))
    with pytest.raises(DataLossError, match=REPLACED):
        reader.partitions(reader.initialOffset(), json.loads(query.checkpoint))


@pytest.mark.parametrize("backfill", ["consumer", "snapshot"])
def test_a_planned_batch_read_is_not_read_from_a_copy(
    disk: Disk, backfill: str, needs_server: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    needs_server("2.15")
    _begun(disk)
    if backfill == "snapshot":
        disk.fill("s", count=64_000)
    _copied(disk)
    options = _query(disk).options | {"backfill": backfill}
    reader = JetStreamBatchReader(parse_options(options))
    planned = reader.partitions()
    last = planned[-1].ranges[-1].end - 1

    def read(reader: JetStreamBatchReader) -> list[int]:
        batches = [batch for part in planned for batch in reader.read(part)]
        return [seq for batch in batches for seq in batch.column("seq").to_pylist()]

    assert read(reader) == list(range(1, last + 1))
    disk.put_back()
    disk.fill("s", count=9)
    with pytest.raises(DataLossError, match=rf"'S' {REPLACED}.* load the DataFrame again"):
        read(reader)
    lenient = JetStreamBatchReader(parse_options(options | {"failOnDataLoss": "false"}))
    assert read(lenient) == list(range(1, last + 1))
    assert caplog.text.count(REPLACED) == 1


def test_a_running_query_looks_again_when_the_server_was_started_anew(disk: Disk) -> None:
    _begun(disk)
    _copied(disk)
    reader = JetStreamStreamReader(parse_options(_query(disk).options))
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    disk.put_back()
    disk.fill("s", count=9)
    with pytest.raises(DataLossError, match=REPLACED):
        reader.latestOffset(end, limit)


def test_a_copy_that_lacks_only_what_was_not_read_yet_is_a_loss_too(disk: Disk) -> None:
    _begun(disk)
    _copied(disk)
    query = _query(disk)
    query.run(limit=12)
    disk.put_back()
    disk.fill("s", count=4)
    with pytest.raises(DataLossError, match="ends at sequence 14, but 15 was stored before"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.sequences == list(range(1, 15))


@pytest.mark.parametrize("kind", ["pattern", "mirror", "bucket", "soleReader"])
def test_all_kinds_of_sources_look(
    disk: Disk, kind: str, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.11")
    with connect(disk.server.url) as nc:
        js = nc.jetstream()
        if kind == "bucket":
            js.create_bucket("B", history=2)
        else:
            queue: dict[str, Any] = {"retention": "workqueue"} if kind == "soleReader" else {}
            js.create_stream(name="S", subjects=["s"], allow_direct=True, **queue)
        if kind == "mirror":
            js.create_stream(name="M", mirror={"name": "S"})
    query = _query(disk)
    del query.options["stream"]
    query.options |= {
        "pattern": {"streamPattern": "S.*"},
        "mirror": {"stream": "M"},
        "bucket": {"bucket": "B"},
        "soleReader": {"stream": "S", "soleReader": "true"},
    }[kind]
    subject = "$KV.B.key" if kind == "bucket" else "s"

    def mirrored(last: int) -> None:
        with Admin(disk.server.url) as admin:
            eventually(lambda: kind != "mirror" or admin.facts("M").last_seq >= last, within=60)

    disk.fill(subject, count=10)
    mirrored(10)
    disk.save()
    disk.fill(subject, count=5)
    mirrored(15)
    query.run()
    disk.put_back()
    disk.fill(subject, count=3)  # a bucket's history has sequence 15, but few others
    if kind == "soleReader":  # what came since the copy would be removed unread
        with pytest.raises(DataLossError, match=r"ends at .* would remove what came since then"):
            query.run(failOnDataLoss="false")
    disk.fill(subject, count=3)
    mirrored(16)
    with pytest.raises(DataLossError, match=REPLACED):
        query.run(failOnDataLoss="false" if kind == "soleReader" else "true")


def test_the_same_stream_goes_on_also_without_its_last_message(disk: Disk) -> None:
    _begun(disk)
    query = _query(disk)
    query.run()
    disk.server.stop()
    disk.server.start()
    disk.fill("s", count=1)
    query.run()
    with Admin(disk.server.url) as admin:
        admin.call("STREAM.MSG.DELETE.S", {"seq": 11})
    disk.fill("s", count=1)
    query.run()
    assert query.sequences == list(range(1, 13))


def test_checkpoints_of_before_are_read(disk: Disk) -> None:
    _begun(disk)
    query = _query(disk)
    query.run()
    assert query.checkpoint is not None
    document = json.loads(query.checkpoint)
    seq, ns = document["streams"]["S"].pop("last")
    assert seq == 10
    assert ns > 1_700_000_000 * 10**9
    query.checkpoint = before = json.dumps(document)
    query.run()
    assert query.checkpoint == before  # nothing to read: no batch
    disk.fill("s", count=1)
    query.run()
    assert json.loads(query.checkpoint)["streams"]["S"]["last"][0] == 11


def test_each_stream_is_asked_for_one_message_when_a_query_goes_on(disk: Disk) -> None:
    names = [f"S{number:02}" for number in range(30)]
    with Admin(disk.server.url) as admin:
        for name in names:
            admin.create(name, name)
    disk.fill(*names, count=2)
    query = _query(disk)
    del query.options["stream"]
    query.options["streamPattern"] = "S.*"
    query.run()
    assert query.checkpoint is not None
    start = json.loads(query.checkpoint)
    reader = JetStreamStreamReader(parse_options(query.options))
    with connect(disk.server.url) as nc:
        asked = nc.subscribe("$JS.API.STREAM.MSG.GET.*")
        nc.flush()
        for _ in range(3):
            assert reader.latestOffset(start, reader.getDefaultReadLimit()) is start
        nc.publish("$JS.API.STREAM.MSG.GET.last")
        subjects = [asked.next(timeout=30).subject.rpartition(".")[2] for _ in range(31)]
    assert sorted(subjects[:-1]) == names
    assert subjects[-1] == "last"


def test_who_may_not_get_messages_goes_on(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(
        "accounts { A { jetstream: enabled, users: [{ user: all, password: p }, "
        '{ user: few, password: p, permissions { publish { deny: "$JS.API.STREAM.MSG.GET.>" } } }'
        "] } }\n"
    )
    address = server.url.removeprefix("nats://")
    query = DrivenQuery(f"nats://{address}", "", user="few", password="p", streams="S1,S2")
    del query.options["stream"]
    with Admin(f"nats://all:p@{address}") as admin:
        for name in ("S1", "S2"):
            admin.create(name, name)
        for _ in range(2):
            for name in ("S1", "S2"):
                admin.fill(numbered(name, 3))
            with caplog.at_level(logging.INFO, "jetspark.spark"):
                query.run()
    assert sorted(query.sequences) == sorted([*range(1, 7)] * 2)
    assert caplog.text.count("is not known") == 1
