"""A query trims its stream: what the checkpoint has is removed, and never what somebody needs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.driven_query import DrivenQuery
from tests.support.lake import Lake
from tests.support.streams import Admin, numbered

from jetspark.errors import ConfigError, DataLossError
from jetspark.server import NatsServer
from jetspark.spark.source.claims import TRIMMER
from jetspark.spark.source.options import parse_options

pytestmark = [pytest.mark.server, pytest.mark.spark]

Driven = Callable[..., DrivenQuery]


@pytest.fixture(autouse=True)
def _needs(needs_server: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    needs_server("2.11")
    monkeypatch.setattr("jetspark.spark.source.stream_reader.TRIM_INTERVAL", 0.0)


@pytest.fixture
def stream(admin: Admin) -> str:
    return admin.stream(under=".>")


@pytest.fixture
def driven(shared_server: NatsServer, stream: str) -> Driven:
    def make(**options: str) -> DrivenQuery:
        return DrivenQuery(shared_server.url, stream, trim="true", **options)

    return make


def consumer(admin: Admin, stream: str, name: str = "other", **config: Any) -> None:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit"} | config
    admin.call(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})


def test_what_the_checkpoint_has_is_removed(driven: Driven, admin: Admin, stream: str) -> None:
    query = driven()
    admin.fill(numbered(f"{stream}.a", 30))
    query.run(batches=3, limit=10)
    assert admin.facts(stream).first_seq == 21  # the last batch is not in the checkpoint's log yet
    admin.fill(numbered(f"{stream}.a", 10))
    query.run()
    assert admin.facts(stream).first_seq == 31
    assert query.sequences == list(range(1, 41))


@pytest.mark.parametrize(("keep", "first"), [("15", 16), ("7d", 1), ("0", 21), ("1ms", 21)])
def test_what_is_to_be_kept_stays(
    driven: Driven, admin: Admin, stream: str, keep: str, first: int
) -> None:
    query = driven(keep=keep)
    admin.fill(numbered(f"{stream}.a", 30))
    query.run(batches=3, limit=10)
    assert admin.facts(stream).first_seq == first


def test_at_least_so_many_messages_stay_of_a_stream_with_gaps(
    driven: Driven, admin: Admin, stream: str
) -> None:
    query = driven(keep="10")
    admin.fill(numbered(f"{stream}.a", 30))
    admin.delete_messages(stream, *range(12, 28))
    query.run(batches=3, limit=10)
    assert admin.facts(stream).messages >= 10
    assert admin.facts(stream).first_seq == 5


def test_what_a_consumer_has_not_acknowledged_stays(
    driven: Driven, admin: Admin, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer(admin, stream)
    consumer(admin, stream, "filtered", filter_subject=f"{stream}.none")
    query = driven()
    admin.fill(numbered(f"{stream}.a", 30))
    with caplog.at_level(logging.WARNING, "jetspark.spark"):
        query.run(batches=3, limit=10)
    assert admin.facts(stream).first_seq == 1
    assert "The consumer 'other' has not read" in caplog.text
    query.options["trimUnread"] = "true"
    admin.fill(numbered(f"{stream}.a", 1))
    query.run()
    assert admin.facts(stream).first_seq == 31


def test_a_consumer_holds_from_its_first_unacknowledged_message_on(
    driven: Driven, admin: Admin, stream: str
) -> None:
    admin.fill(numbered(f"{stream}.a", 30))
    consumer(admin, stream, deliver_policy="by_start_sequence", opt_start_seq=15)
    query = driven()
    query.run(batches=3, limit=10)
    assert admin.facts(stream).first_seq == 15


def test_a_stream_that_copies_this_one_keeps_what_it_may_need(
    driven: Driven, admin: Admin, stream: str
) -> None:
    copy = admin.stream()
    admin.call(f"STREAM.DELETE.{copy}")
    admin.create(copy, sources=[{"name": stream}])
    query = driven()
    admin.fill(numbered(f"{stream}.a", 30))
    query.run(batches=3, limit=10)
    assert admin.facts(stream).first_seq == 1
    admin.call(f"STREAM.DELETE.{copy}")
    admin.fill(numbered(f"{stream}.a", 1))
    query.run()
    assert admin.facts(stream).first_seq == 31


def test_only_one_query_trims_a_stream(driven: Driven, admin: Admin, stream: str) -> None:
    admin.fill(numbered(f"{stream}.a", 30))
    driven().run(limit=10)
    with pytest.raises(ConfigError, match=f"trims the stream .*{TRIMMER}"):
        driven().run(limit=10)


def test_messages_before_the_start_are_not_removed(
    driven: Driven, admin: Admin, stream: str
) -> None:
    admin.fill(numbered(f"{stream}.a", 30))
    with pytest.raises(ConfigError, match="would remove them unread"):
        driven(startingOffsets="20").run()
    assert admin.facts(stream).messages == 30


def test_only_messages_of_the_subjects_are_removed(
    driven: Driven, admin: Admin, stream: str
) -> None:
    query = driven(subjects=f"{stream}.b")
    admin.fill((f"{stream}.{'ab'[n % 2]}", b"") for n in range(20))
    query.run(batches=2, limit=10)
    facts = admin.facts(stream)
    assert (facts.messages, facts.first_seq) == (15, 1)
    assert query.sequences == list(range(2, 21, 2))


def test_of_a_stream_made_anew_nothing_is_removed(
    driven: Driven, admin: Admin, stream: str
) -> None:
    query = driven()
    admin.fill(numbered(f"{stream}.a", 10))
    query.run()
    admin.call(f"STREAM.DELETE.{stream}")
    admin.create(stream, f"{stream}.>")
    admin.fill(numbered(f"{stream}.a", 20))
    query.run(batches=2, limit=10, failOnDataLoss="false")
    assert query.sequences == [*range(1, 11), *range(1, 21)]
    assert admin.facts(stream).first_seq == 11


def test_an_older_checkpoint_misses_what_was_removed(
    driven: Driven, admin: Admin, stream: str
) -> None:
    query = driven()
    admin.fill(numbered(f"{stream}.a", 30))
    query.run(limit=10)
    older = query.checkpoint
    query.run(batches=2, limit=10)
    query.checkpoint = older
    with pytest.raises(DataLossError, match="11 to 20"):
        query.run()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"keep": "7d"}, "goes with"),
        ({"trimUnread": "true"}, "goes with"),
        ({"trim": "true", "keep": "week"}, "a time such as 7d"),
        ({"trim": "true", "keep": "7.5"}, "a time such as 7d"),
        ({"trim": "true", "soleReader": "true"}, "retention 'limits'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_options({"stream": "S", **options})


def test_a_stream_from_which_nothing_can_be_removed_is_refused(
    shared_server: NatsServer, admin: Admin
) -> None:
    stream = admin.stream(deny_purge=True)
    with pytest.raises(ConfigError, match="has deny_purge"):
        DrivenQuery(shared_server.url, stream, trim="true").run()
    stream = admin.stream(retention="workqueue")
    with pytest.raises(ConfigError, match="retention 'limits'"):
        DrivenQuery(shared_server.url, stream, trim="true").run()


@pytest.mark.tables
def test_a_run_of_ingest_leaves_nothing_that_its_table_has(lake: Lake) -> None:
    lake.fill(*[("a", b"{}")] * 10)
    for expected in (11, 14):
        job = lake.job("orders", {"trim": "true"})
        job.start(lake.spark).awaitTermination(120)
        job.trim()
        assert lake.admin.facts(lake.stream).first_seq == expected
        lake.fill(*[("a", b"{}")] * 3)
    assert sorted(row["seq"] for row in lake.rows("orders")) == list(range(1, 14))
