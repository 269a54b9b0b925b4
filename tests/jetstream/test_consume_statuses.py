"""Consuming from a scripted consumer: what every status does, and what exactly is asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conftest import Reported
from tests.jetstream.conftest import Scripted
from tests.jetstream.eventually import eventually
from tests.jetstream.scripted import ScriptedConsumer

from jetspark import errors
from jetspark.full_client import Client
from jetspark.jetstream import ConsumerMessages


async def asked(peer: ScriptedConsumer, count: int) -> list[int]:
    """The sizes of the first pulls, when there are so many."""
    await eventually(lambda: len(peer.requests) >= count)
    return [request["batch"] for request in peer.requests]


async def take(messages: ConsumerMessages, count: int) -> list[bytes]:
    return [(await messages.next(30)).data for _ in range(count)]


def ended(status: str, messages: int, size: int = 0) -> str:
    return f"{status}\r\nNats-Pending-Messages: {messages}\r\nNats-Pending-Bytes: {size}"


# -- asking ------------------------------------------------------------------------------------


async def test_the_pull_request_has_the_options(scripted: Scripted) -> None:
    async with scripted() as peer:
        async with peer.consumer.consume():
            await asked(peer, 1)
        async with peer.consumer.consume(max_bytes=9000, expires=90):
            await asked(peer, 2)
        async with peer.consumer.consume(max_messages=3, expires=2, heartbeat=0.75):
            await asked(peer, 3)
    default, of_bytes, short = peer.requests
    assert default == {"batch": 500, "expires": 30 * 10**9, "idle_heartbeat": 15 * 10**9}
    assert (of_bytes.pop("batch"), of_bytes.pop("max_bytes")) == (1_000_000, 9000)
    assert of_bytes == {"expires": 90 * 10**9, "idle_heartbeat": 30 * 10**9}
    assert short == {"batch": 3, "expires": 2 * 10**9, "idle_heartbeat": 750_000_000}


async def test_at_the_threshold_a_request_fills_the_buffer(scripted: Scripted) -> None:
    async with (
        scripted([*range(10)], [*range(10, 17)]) as peer,
        peer.consumer.consume(max_messages=10, threshold_messages=3) as messages,
    ):
        await take(messages, 6)
        assert await asked(peer, 1) == [10]
        await take(messages, 1)
        assert await asked(peer, 2) == [10, 7]
        await take(messages, 10)
    assert await asked(peer, 3) == [10, 7, 7, 7][: len(peer.requests)]
    assert len({inbox.rpartition(".")[0] for inbox in peer.inboxes}) == 1


# -- statuses that it survives -----------------------------------------------------------------


@pytest.mark.parametrize(
    "status", ["408 Request Timeout", "408 Interest Expired", "423 Nats-Wrong-Pin-Id"]
)
async def test_exactly_the_undelivered_messages_are_requested_again(
    scripted: Scripted, status: str, reported: Reported
) -> None:
    async with (
        scripted([1, 2, 3, ended(status, 7)], [4, ended(status, 6)]) as peer,
        peer.consumer.consume(max_messages=10) as messages,
    ):
        assert (await asked(peer, 3))[:3] == [10, 7, 6]
        assert await take(messages, 4) == [b"1", b"2", b"3", b"4"]
    assert reported == []


async def test_exactly_the_undelivered_bytes_are_requested_again(scripted: Scripted) -> None:
    async with (
        scripted([ended("408 Request Timeout", 999_990, 700)], [ended("408 x", 1, 699)]) as peer,
        peer.consumer.consume(max_bytes=1000, threshold_bytes=1000),
    ):
        await asked(peer, 3)
    assert [request["max_bytes"] for request in peer.requests[:3]] == [1000, 700, 699]
    assert {request["batch"] for request in peer.requests} == {1_000_000}


async def test_batch_completed_is_no_error(scripted: Scripted, reported: Reported) -> None:
    async with (
        scripted([1, ended("409 Batch Completed", 0, 900)]) as peer,
        peer.consumer.consume(max_bytes=1000, threshold_bytes=1000),
    ):
        await asked(peer, 2)
    assert peer.requests[1]["max_bytes"] <= 1000 - len("acked.1")
    assert reported == []


async def test_a_message_too_large_for_the_rest_of_the_buffer_waits_until_one_is_taken(
    scripted: Scripted, reported: Reported
) -> None:
    too_large = ended("409 Message Size Exceeds MaxBytes", 999_998, 900)
    async with (
        scripted([1, 2, too_large], [3]) as peer,
        peer.consumer.consume(max_bytes=1000) as messages,
    ):
        await eventually(lambda: messages.pending_msgs == 2)
        await asyncio.sleep(0.3)
        assert len(peer.requests) == 1
        assert await take(messages, 3) == [b"1", b"2", b"3"]
    assert reported == []


async def test_a_message_too_large_for_the_rest_is_no_error_when_all_were_taken(
    scripted: Scripted, reported: Reported
) -> None:
    async with scripted([1]) as peer, peer.consumer.consume(max_bytes=1000) as messages:
        await take(messages, 1)
        peer.say(peer.inboxes[0], ended("409 Message Size Exceeds MaxBytes", 999_999, 950))
        await asked(peer, 2)
        assert peer.requests[1]["max_bytes"] > 900
    assert reported == []


@pytest.mark.parametrize("status", ["404 No Messages", "423 Nats-Pin-Id mismatch"])
async def test_a_status_without_a_number_says_all_is_owed(scripted: Scripted, status: str) -> None:
    # Of two pulls the second one fails: what is still owed by the first one is not forgotten.
    async with (
        scripted([1, 2, 3, 4], [status]) as peer,
        peer.consumer.consume(max_messages=10, threshold_messages=7) as messages,
    ):
        await take(messages, 3)
        assert (await asked(peer, 3))[:3] == [10, 3, 3]


@pytest.mark.parametrize(
    "status",
    ["409 Exceeded MaxWaiting", "409 A sentence of a newer server", "408 Requests Pending"],
)
async def test_a_refused_request_is_reported_once_and_sent_again(
    scripted: Scripted, status: str, reported: Reported
) -> None:
    async with (
        scripted([status], [status], [7]) as peer,
        peer.consumer.consume(max_messages=10) as messages,
    ):
        assert await take(messages, 1) == [b"7"]
        assert (await asked(peer, 3))[:3] == [10, 10, 10]
    if status.startswith("408"):
        assert reported == []
    else:
        (error,) = reported
        assert isinstance(error, errors.PullError)
        assert f"{error.status} {error.description}" == status


@pytest.mark.parametrize(
    ("options", "status", "refused", "served"),
    [
        ({"max_messages": 10}, "Batch of 4", {"batch": 10}, [{"batch": n} for n in (4, 4, 2)]),
        ({"max_bytes": 1000}, "Batch of 4", {"batch": 1_000_000}, [{"batch": 4}]),
        ({"max_bytes": 1000}, "MaxBytes of 600", {"max_bytes": 1000}, [{"max_bytes": 600}]),
        ({}, "Expires of 1m2s", {}, [{"expires": 62 * 10**9, "idle_heartbeat": 30 * 10**9}]),
        ({}, "Expires of 5s", {}, [{"expires": 5 * 10**9, "idle_heartbeat": 25 * 10**8}]),
    ],
)
async def test_a_request_beyond_a_limit_of_the_consumer_is_followed_by_smaller_ones(
    scripted: Scripted, reported: Reported, options: Any, status: str, refused: Any, served: Any
) -> None:
    async with (
        scripted([f"409 Exceeded MaxRequest{status}"], [7]) as peer,
        peer.consumer.consume(expires=90, **options) as messages,
    ):
        assert await take(messages, 1) == [b"7"]
        await asked(peer, 1 + len(served))
    for request, fields in zip(peer.requests, [refused, *served], strict=False):
        assert request | fields == request
    assert reported == []


async def test_a_server_that_contradicts_its_own_limit_is_asked_again_after_a_pause(
    scripted: Scripted, reported: Reported
) -> None:
    status = "409 Exceeded MaxRequestBatch of 10"
    async with (
        scripted([status], [status], [7]) as peer,
        peer.consumer.consume(max_messages=10) as messages,
    ):
        assert await take(messages, 1) == [b"7"]
    assert [str(error) for error in reported] == [str(errors.PullError(409, status[4:]))]


@pytest.mark.parametrize("status", ["409 Leadership Change", "409 Server Shutdown", "503"])
async def test_without_a_leader_consume_pulls_again_on_a_new_inbox(
    scripted: Scripted, status: str, reported: Reported
) -> None:
    async with (
        scripted([1, status], [status], [2]) as peer,
        peer.consumer.consume(max_messages=10) as messages,
    ):
        assert await take(messages, 2) == [b"1", b"2"]
        sizes = [request["batch"] for request in peer.requests]
        assert sizes[:3] in ([10, 10, 10], [10, 9, 9])  # as "1" was taken, or was not, before
        assert len({inbox.rpartition(".")[0] for inbox in peer.inboxes[:3]}) == 3
    assert reported == []


async def test_messages_of_the_old_leader_still_arrive(scripted: Scripted) -> None:
    change = "409 Leadership Change"
    async with (
        scripted([1, change, 2, change, 3], [4]) as peer,
        peer.consumer.consume(max_messages=10) as messages,
    ):
        assert await take(messages, 4) == [b"1", b"2", b"3", b"4"]
        assert len(peer.requests) == 2


# -- statuses that end it ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad Request - invalid json", errors.PullError),
        ("409 Exceeded MaxRequestWhatever of 5", errors.PullError),
        ("409 Consumer Deleted", errors.ConsumerDeletedError),
        ("409 Consumer is push based", errors.ConsumerIsPushError),
    ],
)
async def test_statuses_that_end_consume_with_an_error(
    scripted: Scripted, status: str, kind: type[errors.PullError]
) -> None:
    async with scripted([1, status]) as peer:
        messages = peer.consumer.consume()
        assert await take(messages, 1) == [b"1"]
        with pytest.raises(kind) as raised:
            await messages.next(30)
        assert type(raised.value) is kind
        assert not messages.active
        await asyncio.sleep(0.3)
        assert len(peer.requests) == 1


async def test_503_of_a_deleted_consumer_ends_consume(scripted: Scripted) -> None:
    async with scripted(["503"]) as peer:
        peer.exists = False
        with pytest.raises(errors.ConsumerNotFoundError):
            await peer.consumer.consume().next(30)


async def test_stopping_while_there_is_no_leader_leaves_no_task(scripted: Scripted) -> None:
    async with scripted(["503"]) as peer:
        tasks = asyncio.all_tasks()
        messages = peer.consumer.consume()
        await asked(peer, 1)
        await eventually(lambda: bool(asyncio.all_tasks() - tasks))
        messages.stop()
        await asyncio.sleep(0.3)
        assert asyncio.all_tasks() - tasks == set()
        assert len(peer.requests) == 1


# -- silence -----------------------------------------------------------------------------------


async def test_a_silent_server_is_reported_after_two_heartbeats_and_consume_goes_on(
    scripted: Scripted, nc: Client, reported: Reported
) -> None:
    async with (
        scripted([1], [2]) as peer,
        peer.consumer.consume(max_messages=10, heartbeat=0.5) as messages,
    ):
        await take(messages, 1)
        begin = nc.loop.time()
        await eventually(lambda: bool(reported))
        assert 0.6 <= nc.loop.time() - begin < 10
        assert await take(messages, 1) == [b"2"]
    assert [type(error) for error in reported] == [errors.MissedHeartbeatError]
    # All of the buffer is asked for again: what was owed will never come.
    assert [request["batch"] for request in peer.requests[:2]] == [10, 10]
    assert peer.inboxes[0] != peer.inboxes[1]


async def test_heartbeats_are_signs_of_life(scripted: Scripted, reported: Reported) -> None:
    async with scripted([]) as peer, peer.consumer.consume(heartbeat=0.5):
        await asked(peer, 1)
        for _ in range(3):
            await asyncio.sleep(0.6)
            peer.say(peer.inboxes[0], "100 Idle Heartbeat")
        assert len(peer.requests) == 1
    assert reported == []


async def test_garbage_on_the_inbox_is_ignored(scripted: Scripted, nc: Client) -> None:
    async with scripted([]) as peer, peer.consumer.consume() as messages:
        await asked(peer, 1)
        await nc.publish(peer.inboxes[0], b"neither message nor status")
        peer.say(peer.inboxes[0].rpartition(".")[0] + ".x", "408 x", "409 MaxWaiting")
        peer.say(peer.inboxes[0], "408 x\r\nNats-Pending-Messages: many", 5)
        assert await take(messages, 1) == [b"5"]
