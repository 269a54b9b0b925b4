"""Ordered consumers: everything once, in order, whatever happens to the consumer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conftest import MakeStream, NeedsServer, Reported, Unique
from tests.jetstream.conftest import Own, fill_thirds, has_consumers, routes
from tests.jetstream.eventually import eventually
from tests.support.cluster import Cluster

from jetspark import errors
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import OrderedMessages, ordered
from jetspark.jetstream.consumers import create_ephemeral


async def read(messages: OrderedMessages, count: int, within: float = 15) -> list[int]:
    """The sequences of the next messages."""
    async with asyncio.timeout(within):
        return [(await messages.next()).seq for _ in range(count)]


# -- what is read ----------------------------------------------------------------------------------


async def test_a_stream_is_read_in_order_from_start_to_end(js: JetStream, stream: str) -> None:
    await fill_thirds(js, stream, 5000)
    expected = 1
    async for msg in js.stream(stream).ordered():
        assert (msg.seq, msg.data) == (expected, b"%d" % expected)
        expected += 1
        if msg.metadata.pending == 0:
            break
    assert expected == 5001


async def test_an_ordered_consumer_gets_later_messages_too(js: JetStream, stream: str) -> None:
    await fill_thirds(js, stream, 3)
    async with js.stream(stream).ordered() as messages:
        assert await read(messages, 3) == [1, 2, 3]
        with pytest.raises(errors.RequestTimeoutError):
            await messages.next(0.01)
        await js.publish(f"{stream}.a")
        assert await read(messages, 1) == [4]
        await js.publish(f"{stream}.a")
        async for msg in messages:
            assert msg.seq == 5
            break
        await js.publish(f"{stream}.a")  # leaving the loop has not ended it
        assert await read(messages, 1) == [6]
        assert messages.active
    assert not messages.active
    with pytest.raises(errors.ClosedError):
        await messages.next()
    assert [msg async for msg in messages] == []


async def test_an_ordered_consumer_reads_parts_of_a_stream(
    js: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    await fill_thirds(js, stream, 30)

    async def first(count: int, **options: Any) -> list[int]:
        async with js.stream(stream).ordered(**options) as messages:
            return await read(messages, count)

    assert await first(3, subjects=f"{stream}.1") == [1, 4, 7]
    assert await first(3, subjects=[f"{stream}.*"], start_seq=20) == [20, 21, 22]
    tenth = await js.stream(stream).get(10)
    assert await first(2, start_time=tenth.time) == [10, 11]
    assert await first(1, deliver_policy="last") == [30]
    assert await first(3, deliver_policy="last_per_subject") == [28, 29, 30]
    assert await first(1, deliver_policy="last_per_subject", subjects=f"{stream}.1") == [28]
    for limits in ({"max_messages": 1}, {"max_messages": 3}, {"max_bytes": 500}):
        assert await first(30, **limits) == list(range(1, 31))
    async with js.stream(stream).ordered(headers_only=True) as messages:
        msg = await messages.next(30)
        assert msg.headers is not None
        assert (msg.data, msg.headers["Nats-Msg-Size"]) == (b"", "1")
    needs_server("2.10")
    assert await first(4, subjects=[f"{stream}.0", f"{stream}.1"]) == [1, 3, 4, 6]


async def test_ordered_consumer_with_deliver_new_skips_old_and_misses_no_new_messages(
    js: JetStream, stream: str, gate: asyncio.Event
) -> None:
    await fill_thirds(js, stream, 3)
    async with js.stream(stream).ordered(deliver_policy="new") as messages:
        with pytest.raises(errors.RequestTimeoutError):
            await messages.next(0.05)
        await js.publish(f"{stream}.a")
        assert await read(messages, 1) == [4]
    async with js.stream(stream).ordered(deliver_policy="new") as messages:
        with pytest.raises(errors.RequestTimeoutError):
            await messages.next(0.05)
        gate.clear()
        await js.stream(stream).delete_consumer(messages.name)
        await js.publish(f"{stream}.a")
        gate.set()
        assert await read(messages, 1) == [5]


async def test_ordered_consumer_has_name_info_and_configuration(js: JetStream, stream: str) -> None:
    await fill_thirds(js, stream, 2)
    messages = js.stream(stream).ordered(subjects=f"{stream}.>")
    assert (messages.name, messages.stream, messages.last_error) == ("", stream, None)
    with pytest.raises(errors.ConsumerNotFoundError, match="at the moment"):
        await messages.info()
    await read(messages, 1)
    info = await messages.info()
    assert info.name == messages.name != ""
    config = info.config
    assert (config.ack_policy, config.mem_storage, config.num_replicas) == ("none", True, 1)
    assert (config.durable_name, config.max_deliver) == (None, 1)
    assert config.filter_subject == f"{stream}.>"
    assert config.inactive_threshold == timedelta(minutes=5)
    assert messages.pending_msgs == 1
    assert stream in repr(messages)
    messages.stop()


@pytest.mark.parametrize("leave", ["break", "block", "stop", "drain", "exception"])
async def test_every_end_of_an_ordered_consumer_leaves_nothing_behind(
    js: JetStream, nc: Client, stream: str, leave: str
) -> None:
    await fill_thirds(js, stream, 5000)
    before, tasks = routes(nc), asyncio.all_tasks()
    messages = js.stream(stream).ordered(max_messages=100)
    if leave == "break":
        async for _ in messages:
            break
    elif leave == "exception":
        with pytest.raises(ValueError, match="mine"):
            async for _ in messages:
                raise ValueError("mine")
    elif leave == "block":
        async with messages:
            await messages.next(30)
    else:
        await messages.next(30)
        await messages.drain() if leave == "drain" else messages.stop()
    await eventually(lambda: not messages.active)
    await has_consumers(js, stream)
    assert routes(nc) == before
    assert asyncio.all_tasks() == tasks
    assert messages.error is None


async def test_draining_gives_out_buffered_messages(js: JetStream, stream: str) -> None:
    await fill_thirds(js, stream, 1000)
    messages = js.stream(stream).ordered(max_messages=100)
    await messages.next(30)
    await messages.drain()
    rest = [msg.seq async for msg in messages]
    assert rest == list(range(2, len(rest) + 2))
    assert 50 <= len(rest) <= 200


# -- what happens to the consumer ------------------------------------------------------------------


async def test_a_deleted_ordered_consumer_is_recreated(
    js: JetStream, stream: str, reported: Reported
) -> None:
    await fill_thirds(js, stream, 1000)
    # A pull in the moment of the deletion is swallowed: then the missing heartbeats tell.
    async with js.stream(stream).ordered(max_messages=50, heartbeat=0.5) as messages:
        got = await read(messages, 400)
        first = messages.name
        await js.stream(stream).delete_consumer(first)
        got += await read(messages, 600)
        assert got == list(range(1, 1001))
        assert messages.name not in ("", first)
        assert isinstance(messages.last_error, errors.JetsparkError)
        assert reported == [messages.last_error]

        async def a_pull_waits() -> bool:
            return (await messages.info()).num_waiting > 0

        await eventually(a_pull_waits)
        await js.stream(stream).delete_consumer(messages.name)
        await js.publish(f"{stream}.a")
        assert await read(messages, 1) == [1001]
        assert isinstance(messages.last_error, errors.ConsumerDeletedError)


async def test_consumers_of_an_ordered_reader_are_called_after_its_prefix(
    js: JetStream, stream: str
) -> None:
    await fill_thirds(js, stream, 10)
    async with js.stream(stream).ordered(
        name_prefix="audit", max_messages=4, heartbeat=0.5
    ) as messages:
        assert await read(messages, 1) == [1]
        first = messages.name
        assert [info.name async for info in js.stream(stream).consumers()] == [first]
        await js.stream(stream).delete_consumer(first)
        assert await read(messages, 9) == list(range(2, 11))
        second = messages.name
        assert second != first
        assert first.startswith("audit_")
        assert second.startswith("audit_")
    for wrong in ("a.b", "", "a b"):
        with pytest.raises(errors.BadNameError):
            js.stream(stream).ordered(name_prefix=wrong)


@pytest.mark.parametrize("places", [[], [0], [1], [0, 1, 60, 99], [30, 31, 99, 102], [99, 101]])
async def test_after_the_last_message_of_each_subject_come_all_later_ones(
    js: JetStream, stream: str, places: list[int]
) -> None:
    """However often the consumer is lost, and whatever is superseded in the meantime."""

    async def store(number: int) -> None:
        await js.publish(f"{stream}.{number % 100}", b"")

    for number in range(300):
        await store(number)
    async with js.stream(stream).ordered(
        deliver_policy="last_per_subject", max_messages=2, heartbeat=0.5
    ) as messages:
        got: list[int] = []

        async def it_is_deleted() -> bool:
            with suppress(errors.ConsumerNotFoundError):  # the one before was
                await js.stream(stream).delete_consumer(messages.name)
                return True
            return False

        for place in places:
            got += await read(messages, place - len(got))
            await eventually(it_is_deleted)
            for number in (1, 99, 1):
                await store(number)
        end = 300 + 3 * len(places)
        while (got or [0])[-1] < end:
            got += await read(messages, 1)
    superseded = {202, 300} if places else set()
    assert {*got} - superseded == {*range(201, end + 1)} - superseded
    assert got == sorted({*got})


async def test_an_ordered_consumer_is_recreated_before_the_first_message_and_after_a_purge(
    js: JetStream, stream: str
) -> None:
    async with js.stream(stream).ordered() as messages:
        with pytest.raises(errors.RequestTimeoutError):
            await messages.next(0.05)
        for seq in (1, 2):
            await js.stream(stream).delete_consumer(messages.name)
            await js.publish(f"{stream}.a")
            assert await read(messages, 1) == [seq]
            await js.stream(stream).purge()


@pytest.mark.parametrize("restart", [False, True])
async def test_an_ordered_consumer_goes_on_after_a_lost_link(own: Own, restart: bool) -> None:
    async with own.js.publisher() as publisher:
        for _ in range(2000):
            await publisher.publish("s")
    async with own.js.stream("S").ordered(max_messages=100) as messages:
        got = await read(messages, 500)
        if restart:
            own.server.kill()
            own.server.start()
        else:
            await own.nc.force_reconnect()
        got += await read(messages, 1500)
        assert got == list(range(1, 2001))
        assert isinstance(messages.last_error, errors.JetsparkError)
        await own.js.publish("s")
        assert await read(messages, 1) == [2001]


async def test_recreating_is_retried_until_it_works(
    js: JetStream, stream: str, reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One attempt is as when a server that stops has taken the request along."""
    outcomes = iter(["made", "failure 1", "failure 2", "made", "silence"])

    async def create(*arguments: Any) -> Any:
        outcome = next(outcomes, "made")
        if outcome.startswith("failure"):
            raise errors.RequestTimeoutError(outcome)
        if outcome == "silence":
            await asyncio.Event().wait()
        return await create_ephemeral(*arguments)

    monkeypatch.setattr(ordered, "create_ephemeral", create)
    await fill_thirds(js, stream, 10)
    async with js.stream(stream).ordered() as messages:
        got = await read(messages, 5)
        await js.stream(stream).delete_consumer(messages.name)
        await js.publish(f"{stream}.a")
        got += await read(messages, 6)
        assert got == list(range(1, 12))
        assert str(messages.last_error) == "failure 2"
        assert len(reported) == 3
        await js.stream(stream).delete_consumer(messages.name)
        await js.publish(f"{stream}.a")
        async with asyncio.timeout(js.timeout - 1):  # a lost request does not cost all of it
            assert await read(messages, 1) == [12]
        assert str(messages.last_error) == "No consumer was made within 1 s."


async def test_ordered_survives_leader_changes(nats_cluster: Cluster, unique: Unique) -> None:
    stream = unique("S")
    async with connect(nats_cluster.urls) as nc:
        js = nc.jetstream()
        await js.create_stream(name=stream, subjects=[f"{stream}.>"], num_replicas=3)
        await fill_thirds(js, stream, 1000)
        async with js.stream(stream).ordered(max_messages=50, heartbeat=0.5) as messages:
            got = await read(messages, 300)
            await js.stream(stream).step_down_leader()
            got += await read(messages, 700)
        # The stream stays: for seconds after the change nobody answers its deletion.
        assert got == list(range(1, 1001))


# -- how it ends -----------------------------------------------------------------------------------


async def test_a_deleted_stream_ends_the_ordered_consumer(
    js: JetStream, stream: str, unique: Unique, reported: Reported
) -> None:
    await fill_thirds(js, stream, 10)
    got: list[int] = []
    messages = js.stream(stream).ordered()
    with pytest.raises(errors.StreamNotFoundError, match=stream):
        async for msg in messages:
            got.append(msg.seq)
            if msg.seq == 5:
                await js.delete_stream(stream)
    assert got == list(range(1, 11))  # what was here is given out first
    assert isinstance(messages.error, errors.StreamNotFoundError)
    assert not messages.active
    reported.clear()
    called = js.stream(unique("S")).ordered(callback=lambda msg: None)
    await eventually(lambda: not called.active)
    assert isinstance(called.error, errors.StreamNotFoundError)
    assert called.error in reported


async def test_first_errors_raise(js: JetStream, make_stream: MakeStream, unique: Unique) -> None:
    with pytest.raises(errors.StreamNotFoundError):
        await js.stream(unique("S")).ordered().next()
    with pytest.raises(errors.APIError, match=r"(?i)ack|work"):
        await js.stream(await make_stream(retention="workqueue")).ordered().next()


async def test_wrong_ordered_options_are_not_sent(js: JetStream, nc: Client) -> None:
    before = nc.stats.out_msgs
    now = datetime.now(UTC)
    wrong: list[dict[str, Any]] = [
        *({"start_seq": 0}, {"start_seq": 1, "start_time": now}, {"subjects": []}),
        *({"start_seq": 1, "deliver_policy": "all"}, {"deliver_policy": "by_start_sequence"}),
        *({"start_time": now.replace(tzinfo=None)}, {"heartbeat": 0.1}, {"expires": 0.5}),
        *({"max_messages": 0}, {"max_messages": 1, "max_bytes": 1}),
    ]
    for options in wrong:
        with pytest.raises(errors.ConfigError):
            js.stream("S").ordered(**options)
    with pytest.raises(errors.ConfigError):
        js.stream("a.b").ordered()
    with pytest.raises(errors.BadSubjectError):
        js.stream("S").ordered(subjects=["a", "b..c"])
    js.stream("S").ordered()
    assert nc.stats.out_msgs == before


async def test_a_read_that_is_cancelled_leaves_no_consumer(js: JetStream, stream: str) -> None:
    await fill_thirds(js, stream, 1)
    for _ in range(200):  # of a DELETE just behind the CREATE, the server handled 2 in 100 first
        messages = js.stream(stream).ordered()
        reading = asyncio.create_task(messages.next())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait({reading})
        messages.stop()
    await has_consumers(js, stream)
