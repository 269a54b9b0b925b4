"""Priority groups (ADR-42) on fetch, next and consume: what is asked and refused, who is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import NeedsServer
from tests.jetstream.conftest import Scripted, fill, waits

from jetspark.documents.consumers import ConsumerConfig
from jetspark.errors import APIError, ConfigError, RequestTimeoutError, UnsupportedByServerError
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import PullConsumer
from jetspark.jetstream.fetch import Priority, make_priority
from jetspark.server import NatsServer
from jetspark.wire.documents import ServerInfo
from jetspark.wire.kernel import MessageFrame


@pytest.fixture
async def other(shared_server: NatsServer) -> AsyncIterator[JetStream]:
    """A second client."""
    async with connect(shared_server.url) as client:
        yield JetStream(client)


async def make(js: JetStream, stream: str, policy: str, **options: Any) -> PullConsumer:
    return await js.stream(stream).create_consumer(
        durable_name="c", priority_groups=["jobs"], priority_policy=policy, **options
    )


# -- pinned_client -----------------------------------------------------------------------------


@pytest.fixture
async def pinned(js: JetStream, stream: str, needs_server: NeedsServer) -> PullConsumer:
    needs_server("2.11")
    return await make(js, stream, "pinned_client")


async def test_only_the_pinned_client_is_served(
    js: JetStream, other: JetStream, stream: str, pinned: PullConsumer
) -> None:
    standby = await other.stream(stream).consumer("c")
    await fill(js, stream, 5)
    first = await pinned.fetch(2, timeout=5, group="jobs")
    assert [msg.data for msg in first] == [b"0", b"1"]
    with pytest.raises(RequestTimeoutError):
        await standby.next(0.3, group="jobs")
    # The pin is sent with every later pull of the same handle, of all kinds.
    assert (await pinned.next(5, group="jobs")).data == b"2"
    async with pinned.consume(group="jobs") as messages:
        assert [(await messages.next(30)).data for _ in range(2)] == [b"3", b"4"]
        await fill(js, stream, 1)
        assert (await messages.next(30)).data == b"0"


async def test_unpin_hands_over_to_a_waiting_client_and_back(
    js: JetStream, other: JetStream, stream: str, pinned: PullConsumer
) -> None:
    standby = await other.stream(stream).consumer("c")
    await fill(js, stream, 1)
    async with pinned.consume(group="jobs", max_messages=10) as one:
        assert (await one.next(30)).data == b"0"
        async with standby.consume(group="jobs", max_messages=10) as two:
            await waits(pinned, 2)
            for consumer, loser, winner in ((standby, one, two), (pinned, two, one)):
                await consumer.unpin("jobs")
                # The pull with the old pin is refused (423) when there is something to deliver;
                # it is asked again without one, and waits behind the other client's.
                await fill(js, stream, 3)
                assert [(await winner.next(30)).data for _ in range(3)] == [b"0", b"1", b"2"]
                assert (loser.pending_msgs, loser.active) == (0, True)
                await waits(pinned, 2)
            assert (one.error, two.error) == (None, None)


async def test_a_fetch_that_lost_its_pin_is_requested_again_without_it(
    js: JetStream, other: JetStream, stream: str, pinned: PullConsumer
) -> None:
    standby = await other.stream(stream).consumer("c")
    await fill(js, stream, 3)
    assert len(await pinned.fetch(1, timeout=5, group="jobs")) == 1
    await pinned.unpin("jobs")
    # Somebody else is pinned now.
    assert len(await standby.fetch(1, timeout=5, group="jobs")) == 1
    waiting = asyncio.create_task(pinned.fetch(1, timeout=5, group="jobs"))
    await waits(standby, 1)
    await standby.unpin("jobs")
    await fill(js, stream, 1)  # older servers look at the pulls again only when something happens
    assert [msg.data for msg in await waiting] == [b"2"]


async def test_max_bytes_without_the_pin(js: JetStream, stream: str, pinned: PullConsumer) -> None:
    for number in range(200):
        headers = {"k": "v"} if number % 2 else None
        await js.publish(f"{stream}.a", b"%d" % number, headers=headers)
    async with pinned.consume(group="jobs", max_bytes=2000) as messages:
        for number in range(200):
            message = await messages.next(30)
            assert message.data == b"%d" % number
            assert message.headers is not None
            assert message.headers["Nats-Pin-Id"]
            pull = messages._pull
            assert pull._buffered_amount() <= pull._pending <= 2000
        owed = pull._pending
    # Nothing is here: all that is counted is owed by pulls that wait at the server.
    assert 1000 < owed <= 2000


async def test_unpin_is_for_pinned_ones(js: JetStream, stream: str, pinned: PullConsumer) -> None:
    plain = await js.stream(stream).create_consumer(durable_name="plain")
    with pytest.raises(ConfigError, match="pinned_client"):
        await plain.unpin("jobs")
    with pytest.raises(APIError):
        await pinned.unpin("nobody")


# -- overflow ----------------------------------------------------------------------------------


async def test_overflow_has_limits(js: JetStream, stream: str, needs_server: NeedsServer) -> None:
    needs_server("2.11")
    consumer = await make(js, stream, "overflow")
    await fill(js, stream, 9)
    with pytest.raises(RequestTimeoutError):
        await consumer.next(0.2, group="jobs", min_pending=10)
    await fill(js, stream, 3)
    assert len(await consumer.fetch(2, timeout=5, group="jobs", min_pending=10)) == 2
    with pytest.raises(RequestTimeoutError):
        await consumer.next(0.2, group="jobs", min_ack_pending=4)
    assert len(await consumer.fetch(3, timeout=5, group="jobs")) == 3
    assert (await consumer.next(5, group="jobs", min_ack_pending=4)).data == b"5"
    async with consumer.consume(group="jobs", min_pending=3, max_messages=4) as messages:
        for number in (6, 7, 8, 0):
            assert (await messages.next(30)).data == b"%d" % number
        with pytest.raises(RequestTimeoutError):
            await messages.next(0.2)
    assert (await consumer.info()).num_pending == 2


# -- prioritized -------------------------------------------------------------------------------


async def test_lower_priorities_are_served_first(
    js: JetStream, other: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.12")
    near = await make(js, stream, "prioritized")
    far = await other.stream(stream).consumer("c")
    async with far.consume(group="jobs", priority=5, max_messages=10) as spare:
        await waits(near, 1)
        async with near.consume(group="jobs", max_messages=10) as first:
            await waits(near, 2)
            await fill(js, stream, 5)
            assert len([await first.next(30) for _ in range(5)]) == 5
            assert spare.pending_msgs == 0
        await waits(near, 1)
        await fill(js, stream, 2)
        assert len([await spare.next(30) for _ in range(2)]) == 2


# -- what is refused ---------------------------------------------------------------------------


GROUPS: dict[str, Any] = {"priority_groups": ["jobs", "b"]}
OVERFLOW = {"priority_policy": "overflow"}
_OPTIONS = ("group", "min_pending", "min_ack_pending", "priority")


@pytest.mark.parametrize(
    ("config", "options", "sentence"),
    [
        ({}, {"group": "jobs"}, "has no priority groups"),
        ({}, {"min_pending": 1}, "'overflow'"),
        ({}, {"priority": 1}, "'prioritized'"),
        (GROUPS, {}, "name one as group: 'jobs', 'b'"),
        (GROUPS, {"group": "job"}, "no priority group 'job'; it has 'jobs', 'b'"),
        (GROUPS | OVERFLOW, {"group": "b", "min_pending": 0}, "at least 1"),
        (GROUPS | OVERFLOW, {"group": "b", "min_ack_pending": -1}, "at least 1"),
        (GROUPS | OVERFLOW, {"group": "b", "priority": 1}, "prioritized"),
        (GROUPS | {"priority_policy": "pinned_client"}, {"group": "b", "min_pending": 1}, "'over"),
        (GROUPS | {"priority_policy": "prioritized"}, {"group": "b", "priority": 10}, "at most 9"),
    ],
)
def test_group_options_that_do_not_fit_the_consumer_are_refused(
    config: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    given_ = {name: options.get(name) for name in _OPTIONS}
    with pytest.raises(ConfigError, match=sentence):
        make_priority(ConsumerConfig(**config), None, {}, **given_)


@pytest.mark.parametrize(
    ("version", "options", "needs"),
    [("2.10.9", {"group": "jobs"}, "2.11"), ("2.11.3", {"group": "a", "priority": 1}, "2.12")],
)
def test_old_servers_have_no_priorities(version: str, options: dict[str, Any], needs: str) -> None:
    given_ = {name: options.get(name) for name in _OPTIONS}
    with pytest.raises(UnsupportedByServerError, match=needs):
        make_priority(ConsumerConfig(), ServerInfo(version=version), {}, **given_)


async def test_nothing_is_sent_when_an_option_does_not_fit(scripted: Scripted, nc: Client) -> None:
    async with scripted() as peer:
        with pytest.raises(ConfigError):
            await peer.consumer.fetch(1, group="jobs")
        with pytest.raises(ConfigError):
            peer.consumer.consume(group="jobs")
        with pytest.raises(ConfigError):
            await peer.consumer.next(group="jobs")
        await nc.flush()
        assert peer.requests == []


# -- the pin on the wire -----------------------------------------------------------------------


async def test_the_pin_is_sent_until_it_is_refused(scripted: Scripted) -> None:
    async with scripted([6], ["423 Nats-Pin-Id mismatch"], [7], [8]) as peer:
        config = ConsumerConfig(priority_groups=["jobs"], priority_policy="pinned_client")
        peer.consumer.cached_info = peer.consumer.cached_info.replace(config=config)
        await peer.consumer.fetch(1, timeout=5, group="jobs")
        peer.consumer._pins["jobs"] = b"old"
        batch = await peer.consumer.fetch(1, timeout=5, group="jobs")
        assert [msg.data for msg in batch] == [b"7"]
        await peer.consumer.next(5, group="jobs")
    said = [(request.get("group"), request.get("id")) for request in peer.requests]
    assert said == [("jobs", None), ("jobs", "old"), ("jobs", None), ("jobs", None)]


HEADERS = st.lists(
    st.tuples(st.sampled_from(["k", "Nats-Pin-Id", "x-Nats-Pin-Id"]), st.text("abc:-", max_size=5)),
    max_size=4,
)


@given(headers=HEADERS, pin=st.text("abcXYZ019", min_size=1, max_size=22), known=st.booleans())
def test_the_pin_is_the_last_header(headers: list[tuple[str, str]], pin: str, known: bool) -> None:
    own = "".join(f"{name}: {value}\r\n" for name, value in headers)
    before = f"NATS/1.0\r\n{own}\r\n" if own else ""
    block = f"NATS/1.0\r\n{own}Nats-Pin-Id: {pin}\r\n\r\n".encode()
    pins = {"jobs": pin.encode() if known else b"another"}
    priority = Priority({"group": "jobs"}, pins, pinned=True)
    frame = MessageFrame(1, b"s", b"$JS.ACK", block, b"")
    priority.notice(frame)
    assert pins == {"jobs": pin.encode()}
    assert priority.fields() == {"group": "jobs", "id": pin}
    assert priority.added(frame) == len(block) - len(before)
    priority.lost()
    assert priority.fields() == {"group": "jobs"}
    priority.notice(MessageFrame(1, b"s", b"$JS.ACK", None, b""))
    assert pins == {}
