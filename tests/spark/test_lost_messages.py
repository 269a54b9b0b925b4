"""What a query says of messages that were removed before it read them, and what it cannot know."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.driven_query import DrivenQuery
from tests.support.streams import Admin, Row, numbered

from jetspark.errors import DataLossError
from jetspark.server import NatsServer


def keys(name: str, count: int) -> list[Row]:
    """A message for each of so many subjects."""
    return [(f"{name}.{number}", b"%d" % number) for number in range(1, count + 1)]


@pytest.fixture
def stream(admin: Admin) -> str:
    """Newer messages of a subject replace older ones, as in a bucket."""
    return admin.stream(under=".*", max_msgs_per_subject=1, allow_rollup_hdrs=True)


@pytest.fixture
def query(shared_server: NatsServer, stream: str) -> DrivenQuery:
    return DrivenQuery(shared_server.url, stream)


def purge_all(admin: Admin, name: str) -> None:
    admin.purge(name)


def purge_up_to(admin: Admin, name: str) -> None:
    admin.purge(name, seq=81)


def purge_but_some(admin: Admin, name: str) -> None:
    admin.purge(name, keep=20)


def replace_all(admin: Admin, name: str) -> None:
    admin.link.request(f"{name}.new", b"", 10, b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n")


def lower_a_limit(admin: Admin, name: str) -> None:
    before = admin.api.config(name)
    admin.api.update({**before, "max_msgs": 20})
    admin.api.update(before)


WAYS = [purge_all, purge_up_to, purge_but_some, replace_all, lower_a_limit]


@pytest.mark.parametrize("way", WAYS)
def test_messages_that_no_newer_ones_replaced_are_a_loss_where_newer_ones_replace_older_ones(
    admin: Admin,
    stream: str,
    query: DrivenQuery,
    caplog: pytest.LogCaptureFixture,
    way: Callable[[Admin, str], None],
) -> None:
    admin.fill(keys(stream, 100))
    query.run(limit=30)
    assert query.sequences == list(range(1, 31))
    way(admin, stream)
    with pytest.raises(DataLossError, match="not all by newer messages") as caught:
        query.run()
    assert caught.value.first == 31
    query.run(failOnDataLoss="false")
    assert "not all by newer messages" in caplog.text
    left = admin.facts(stream)
    assert query.sequences[30:] == (
        list(range(left.first_seq, left.last_seq + 1)) if left.messages else []
    )


@pytest.mark.parametrize("way", [purge_all, replace_all])
def test_a_query_that_had_read_everything_notices_what_came_and_went_meanwhile(
    admin: Admin, stream: str, query: DrivenQuery, way: Callable[[Admin, str], None]
) -> None:
    admin.fill(keys(stream, 10))
    query.run()
    admin.fill(keys(stream, 100))
    way(admin, stream)
    with pytest.raises(DataLossError, match="not all by newer messages"):
        query.run()


def test_a_query_that_had_read_everything_warns_where_a_purge_cannot_be_proven(
    admin: Admin, stream: str, query: DrivenQuery, caplog: pytest.LogCaptureFixture
) -> None:
    admin.fill(keys(stream, 10))
    query.run()
    admin.fill([(f"{stream}.new-{number}", b"") for number in range(90)])
    admin.purge(stream, seq=81)
    with caplog.at_level(logging.WARNING):
        query.run()
    assert query.sequences == [*range(1, 11), *range(81, 101)]
    assert f"message 10 ('{stream}.10') is gone without a newer one" in caplog.text
    assert "a purge may also have removed unread ones from 11 on" in caplog.text


@pytest.mark.parametrize("limit", [30, 1000])
def test_messages_that_newer_ones_replaced_are_no_loss(
    admin: Admin, stream: str, query: DrivenQuery, caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    admin.fill(keys(stream, 100))
    query.run(limit=limit)
    admin.fill(keys(stream, 100))
    admin.fill(keys(stream, 100))
    with caplog.at_level(logging.WARNING):
        query.run()
    assert query.sequences[min(limit, 100) :] == list(range(201, 301))
    assert not caplog.messages


@pytest.mark.parametrize("config", [{}, {"max_msgs_per_subject": 1}])
def test_a_deleted_message_is_a_gap_also_where_it_was_the_oldest(
    admin: Admin, config: dict[str, Any]
) -> None:
    name = admin.stream(under=".*", **config)
    query = DrivenQuery(admin.url, name)
    query.run()
    admin.fill(keys(name, 10))
    admin.delete_messages(name, 1)
    query.run(limit=4)
    admin.delete_messages(name, 10)
    query.run()
    assert query.sequences == list(range(2, 10))


def test_a_first_message_that_a_limit_may_have_removed_is_a_loss(admin: Admin) -> None:
    name = admin.stream(max_msgs=9)
    query = DrivenQuery(admin.url, name)
    query.run()
    admin.fill(numbered(name, 10))
    with pytest.raises(DataLossError, match="sequences 1 to 1 were removed by its limits"):
        query.run()
