"""Fetching: full, partial, empty and broken batches; time, cancel, outage."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.conftest import MakeServer
from tests.jetstream.conftest import Own, Scripted, fill, routes, waits
from tests.jetstream.eventually import eventually
from tests.support.frame_proxy import FrameProxy

from jetspark import errors
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import PullConsumer
from jetspark.jetstream import fetch as pull
from jetspark.server import NatsServer
from jetspark.wire.kernel import MessageFrame


@pytest.fixture
def slow_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be late by half of a fetch's timeout, and not only by 10 ms."""
    monkeypatch.setattr(pull, "EXPIRES_EARLIER", 60)


# -- with a real server ------------------------------------------------------------------------


async def test_fetch_gives_full_batches(js: JetStream, stream: str, consumer: PullConsumer) -> None:
    await fill(js, stream, 1000)
    first = await consumer.fetch(600, timeout=5)
    rest = await consumer.fetch(400, timeout=5)
    assert [int(msg.data) for msg in first + rest] == list(range(1000))
    assert (len(first), first.error, rest.error) == (600, None, None)
    assert [msg.seq for msg in first[:2]] == [1, 2]


async def test_fetch_without_timeout_gives_empty_lists(consumer: PullConsumer, nc: Client) -> None:
    begin = nc.loop.time()
    assert await consumer.fetch(10) == []
    assert nc.loop.time() - begin < 3  # not the context's timeout of 5 s


async def test_fetch_gives_a_partial_batch_at_the_timeout(
    js: JetStream, stream: str, consumer: PullConsumer, nc: Client
) -> None:
    await fill(js, stream, 3)
    begin = nc.loop.time()
    batch = await consumer.fetch(10, timeout=1)
    assert (len(batch), batch.error) == (3, None)
    # The server ends it, 10 ms before our own timer would.
    assert 0.98 < nc.loop.time() - begin < 10


async def test_fetch_without_timeout_respects_max_ack_pending(js: JetStream, stream: str) -> None:
    await fill(js, stream, 20)  # first: a consumer hears of a message a moment after its ack
    consumer = await js.stream(stream).create_consumer(durable_name="d", max_ack_pending=10)
    assert len(await consumer.fetch(6)) == 6
    assert len(await consumer.fetch(6)) == 4
    assert await consumer.fetch(6) == []


async def test_fetch_max_bytes_ends_a_batch_early(
    js: JetStream, stream: str, consumer: PullConsumer
) -> None:
    for _ in range(3):
        await js.publish(f"{stream}.a", b"x" * 1000)
    batch = await consumer.fetch(10, timeout=20, max_bytes=2500)
    assert (len(batch), batch.error) == (2, None)
    with pytest.raises(errors.PullError, match="MaxBytes") as too_small:
        await consumer.fetch(10, timeout=20, max_bytes=100)
    assert too_small.value.status == 409


async def test_heartbeats_keep_a_fetch_alive(consumer: PullConsumer, slow_server: None) -> None:
    assert await consumer.fetch(1, timeout=2, heartbeat=0.5) == []


@pytest.mark.parametrize("count", [0, 3])
async def test_fetch_gives_messages_and_the_error_when_the_consumer_is_deleted(
    js: JetStream, stream: str, consumer: PullConsumer, count: int
) -> None:
    await fill(js, stream, count)
    waiting = asyncio.create_task(consumer.fetch(10, timeout=5))
    await waits(consumer)
    await consumer.delete()
    if count:
        batch = await waiting
        assert len(batch) == 3
        assert isinstance(batch.error, errors.ConsumerDeletedError)
    else:
        with pytest.raises(errors.ConsumerDeletedError):
            await waiting
    # Before 2.10 the server says nothing at all to a pull on a consumer that is gone.
    with pytest.raises((errors.ConsumerNotFoundError, errors.RequestTimeoutError), match="c"):
        await consumer.fetch(10, timeout=1)
    with pytest.raises(errors.ConsumerNotFoundError):
        await consumer.fetch(10)


async def test_fetching_more_than_a_consumer_allows_raises(js: JetStream, stream: str) -> None:
    consumer = await js.stream(stream).create_consumer(durable_name="d", max_batch=5)
    with pytest.raises(errors.PullError, match="MaxRequestBatch"):
        await consumer.fetch(6, timeout=20)


async def test_a_cancelled_fetch_leaves_nothing_behind(
    js: JetStream, stream: str, consumer: PullConsumer, nc: Client
) -> None:
    before = routes(nc)
    waiting = asyncio.create_task(consumer.fetch(10, timeout=60))
    await waits(consumer)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await eventually(lambda: routes(nc) == before)  # closed behind what is on its way
    await fill(js, stream, 5)
    # The pull is still at the server, but a delivery to it would be lost: none is.
    batch = await consumer.fetch(5, timeout=20)
    assert [msg.metadata.deliveries for msg in batch] == [1] * 5


@pytest.mark.parametrize("batch", [1, 10])
async def test_what_a_cancelled_fetch_has_received_goes_back_at_once(
    js: JetStream,
    stream: str,
    consumer: PullConsumer,
    nc: Client,
    batch: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fetch of one message is complete when it is cancelled, one of ten waits for more."""
    before = routes(nc)
    taking = pull.Pull._on_run

    def cancelled_then(self: pull.Pull, frames: list[MessageFrame], size: int) -> bool:
        taken = taking(self, frames, size)
        waiting.cancel()
        return taken

    monkeypatch.setattr(pull.Pull, "_on_run", cancelled_then)
    waiting = asyncio.create_task(consumer.fetch(batch, timeout=60))
    await fill(js, stream, 1)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    again = await consumer.next(timeout=5)  # ack_wait is 30 s
    assert again.metadata.deliveries == 2
    assert routes(nc) == before


async def test_what_is_on_its_way_to_a_cancelled_fetch_goes_back_at_once(
    js: JetStream, stream: str, consumer: PullConsumer, shared_server: NatsServer
) -> None:
    async with (
        FrameProxy(shared_server.port) as proxy,
        connect(f"nats://127.0.0.1:{proxy.port}") as other,
    ):
        far = await other.jetstream().stream(stream).consumer(consumer.name)
        waiting = asyncio.create_task(far.fetch(10, timeout=60))
        await waits(consumer)
        fault = proxy.arm(1, "stalled", delay=0.5)
        await fill(js, stream, 1)
        await eventually(lambda: _is_out(consumer))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        again = await consumer.next(timeout=5)  # ack_wait is 30 s
    assert fault.hit is not None
    assert again.metadata.deliveries == 2


async def _is_out(consumer: PullConsumer) -> bool:
    return (await consumer.info()).num_ack_pending == 1


async def test_every_end_of_a_fetch_leaves_nothing_behind(
    js: JetStream, stream: str, consumer: PullConsumer, nc: Client
) -> None:
    before = routes(nc)
    await consumer.fetch(1)
    with suppress(errors.JetsparkError):
        await consumer.fetch(1, timeout=0.05, heartbeat=0.01)
    await fill(js, stream, 1)
    await consumer.fetch(1, timeout=20)
    await consumer.delete()
    with pytest.raises(errors.ConsumerNotFoundError):
        await consumer.fetch(1)
    assert routes(nc) == before


async def test_a_shutdown_of_the_server_ends_a_fetch_that_has_messages(own: Own) -> None:
    await own.js.publish("s", b"0")
    consumer = await own.js.stream("S").create_consumer(durable_name="c")
    waiting = asyncio.create_task(consumer.fetch(3, timeout=30))
    await waits(consumer)
    await asyncio.to_thread(own.server.stop)
    batch = await waiting
    assert [msg.data for msg in batch] == [b"0"]
    assert isinstance(batch.error, errors.PullError)


@pytest.mark.parametrize(("how", "before"), [("stop", 0), ("kill", 0), ("kill", 1)])
async def test_a_fetch_survives_a_server_restart(own: Own, how: str, before: int) -> None:
    for number in range(before):
        await own.js.publish("s", b"%d" % number)
    consumer = await own.js.stream("S").create_consumer(durable_name="c")
    waiting = asyncio.create_task(consumer.fetch(3, timeout=30, heartbeat=0.5))
    await waits(consumer)
    await asyncio.to_thread(getattr(own.server, how))
    # Longer than twice the heartbeat: its clock stands still meanwhile.
    await asyncio.sleep(1.2)
    assert not waiting.done()
    await asyncio.to_thread(own.server.start)
    for number in range(before, 3):
        await own.js.publish("s", b"%d" % number)
    batch = await waiting
    # A killed server may not have written down what it delivered: a redelivery is right then.
    new = [msg.data for msg in batch if msg.metadata.deliveries == 1 or msg is batch[0]]
    distinct = list(dict.fromkeys(new))
    assert distinct == [b"0", b"1", b"2"][: len(distinct)]
    assert (len(batch), batch.error) == (3, None)
    assert how == "kill" or len(distinct) == 3


async def test_a_fetch_in_an_outage_times_out_or_is_requested_afterwards(own: Own) -> None:
    await own.js.publish("s", b"0")
    consumer = await own.js.stream("S").create_consumer(durable_name="c")
    await asyncio.to_thread(own.server.stop)
    with pytest.raises(errors.RequestTimeoutError):
        await consumer.fetch(1, timeout=0.2)
    waiting = asyncio.create_task(consumer.fetch(1, timeout=20))
    await eventually(lambda: not own.nc.is_connected)
    await asyncio.to_thread(own.server.start)
    assert [msg.data for msg in await waiting] == [b"0"]


# -- with a scripted consumer ------------------------------------------------------------------


async def test_fetch_sends_its_options_in_the_pull_request(scripted: Scripted) -> None:
    full = [1]
    async with scripted(full, full, full) as peer:
        await peer.consumer.fetch(1)
        await peer.consumer.fetch(1, timeout=20, max_bytes=500, heartbeat=2.5)
        with suppress(errors.RequestTimeoutError):
            await peer.consumer.fetch(1, timeout=0.01)
        await eventually(lambda: len(peer.requests) == 3)
        now, waiting, short = peer.requests
    assert now == {"batch": 1, "no_wait": True}
    expires = waiting.pop("expires")
    assert 1.8e10 < expires <= 1.999e10
    assert waiting == {"batch": 1, "max_bytes": 500, "idle_heartbeat": 2_500_000_000}
    assert 0 < short["expires"] <= 5_000_000


@pytest.mark.parametrize(
    "end",
    ["404 No Messages", "408 Request Timeout", "408 Interest Expired", "409 Batch Completed"],
)
async def test_statuses_that_end_a_fetch_without_an_error(scripted: Scripted, end: str) -> None:
    async with scripted([1, 2, end], [end]) as peer:
        batch = await peer.consumer.fetch(10, timeout=5)
        assert (len(batch), batch.error) == (2, None)
        assert await peer.consumer.fetch(10, timeout=5) == []


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("409 Consumer Deleted", errors.ConsumerDeletedError),
        ("409 Consumer is push based", errors.ConsumerIsPushError),
        ("409 Exceeded MaxWaiting", errors.PullError),
        ("409 Exceeded MaxRequestExpires of 5s", errors.PullError),
        ("400 Bad Request", errors.PullError),
        ("423 Nats-Wrong-Pin-Id", errors.PullError),
        ("409 A sentence of a newer server", errors.PullError),
    ],
)
async def test_statuses_that_end_a_fetch_with_an_error(
    scripted: Scripted, status: str, error: type[errors.PullError]
) -> None:
    async with scripted([1, status], [status]) as peer:
        batch = await peer.consumer.fetch(10, timeout=5)
        assert [msg.data for msg in batch] == [b"1"]
        assert type(batch.error) is error
        with pytest.raises(error) as raised:
            await peer.consumer.fetch(10, timeout=5)
    assert f"{raised.value.status} {raised.value.description}" == status


@pytest.mark.parametrize("status", ["409 Leadership Change", "409 Server Shutdown", "503"])
async def test_without_a_leader_a_fetch_is_requested_again(scripted: Scripted, status: str) -> None:
    async with scripted([status], [status], [7]) as peer:
        batch = await peer.consumer.fetch(1, timeout=5)
        assert [msg.data for msg in batch] == [b"7"]
        expiries = [request["expires"] for request in peer.requests]
    assert len(set(peer.inboxes)) == 3
    assert expiries == sorted(expiries, reverse=True)


async def test_503_ends_a_fetch_without_consumer_or_time(scripted: Scripted) -> None:
    async with scripted(*[["503"]] * 9) as peer:
        with pytest.raises(errors.RequestTimeoutError):
            await peer.consumer.fetch(1, timeout=0.4)
        assert len(peer.requests) == 2
        peer.exists = False
        with pytest.raises(errors.ConsumerNotFoundError):
            await peer.consumer.fetch(1, timeout=5)


async def test_a_late_status_is_fine(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "GRACE", 20)
    async with scripted() as peer:
        fetching = asyncio.create_task(peer.consumer.fetch(1, timeout=0.1))
        await eventually(lambda: bool(peer.inboxes))
        # The server's answer is behind our own timeout by the time that it needs.
        await asyncio.wait({fetching}, timeout=0.3)
        peer.say(peer.inboxes[0], "408 Request Timeout")
        assert await fetching == []


async def test_a_silent_consumer_is_told_after_two_beats(scripted: Scripted, nc: Client) -> None:
    async with scripted([], [1, 2]) as peer:
        begin = nc.loop.time()
        with pytest.raises(errors.MissedHeartbeatError):
            await peer.consumer.fetch(10, timeout=30, heartbeat=0.3)
        assert 0.6 <= nc.loop.time() - begin < 10
        batch = await peer.consumer.fetch(10, timeout=30, heartbeat=0.3)
    assert len(batch) == 2
    assert isinstance(batch.error, errors.MissedHeartbeatError)


async def test_heartbeats_restart_the_wait_of_a_fetch(scripted: Scripted, nc: Client) -> None:
    async with scripted([]) as peer:
        waiting = asyncio.create_task(peer.consumer.fetch(10, timeout=30, heartbeat=0.5))
        begin = nc.loop.time()
        for _ in range(3):
            await asyncio.sleep(0.4)  # the wait is 1 s
            peer.say(peer.inboxes[0], "100 Idle Heartbeat")
        with pytest.raises(errors.MissedHeartbeatError):
            await waiting
    assert nc.loop.time() - begin > 2.1


async def test_a_fetch_without_any_answer_times_out(scripted: Scripted, nc: Client) -> None:
    async with scripted([], [1]) as peer:
        begin = nc.loop.time()
        with pytest.raises(errors.RequestTimeoutError):
            await peer.consumer.fetch(10, timeout=0.2)
        assert 0.2 <= nc.loop.time() - begin < 5
        # A server ends every fetch in time: without its word something was lost on the way.
        batch = await peer.consumer.fetch(10, timeout=1)
    assert len(batch) == 1
    assert isinstance(batch.error, errors.RequestTimeoutError)


async def test_messages_after_the_end_of_a_fetch_are_not_taken(scripted: Scripted) -> None:
    async with scripted([1, 2, 3, "409 Consumer Deleted", 4]) as peer:
        batch = await peer.consumer.fetch(2, timeout=20)
    assert ([msg.data for msg in batch], batch.error) == ([b"1", b"2"], None)


async def test_a_user_message_that_looks_like_a_status_is_a_message(
    js: JetStream, stream: str, consumer: PullConsumer
) -> None:
    await js.publish(f"{stream}.a", b"x", headers={"Status": "409", "Description": "no"})
    batch = await consumer.fetch(1, timeout=20)
    assert [msg.data for msg in batch] == [b"x"]


async def test_impossible_fetch_options_are_refused(consumer: PullConsumer) -> None:
    wrong: list[dict[str, Any]] = [
        {"batch": 0},
        {"batch": 1, "timeout": 0},
        {"batch": 1, "max_bytes": 0},
        {"batch": 1, "heartbeat": 1},
        {"batch": 1, "timeout": 1, "heartbeat": 0},
        {"batch": 1, "timeout": 1, "heartbeat": 0.6},
    ]
    for arguments in wrong:
        with pytest.raises(errors.ConfigError):
            await consumer.fetch(**arguments)


async def test_readers_use_the_inbox_prefix(
    shared_server: NatsServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(shared_server.url, inbox_prefix="_MINE") as nc:
        subjects = []
        listen = nc.listen

        def watched(subject: str, *args: Any, **options: Any) -> Any:
            subjects.append(subject)
            return listen(subject, *args, **options)

        monkeypatch.setattr(nc, "listen", watched)
        js = JetStream(nc)
        consumer = await js.stream(stream).create_consumer(name="c")
        await fill(js, stream, 2)
        assert len(await consumer.fetch(1, timeout=5)) == 1
        async with consumer.consume() as messages:
            await messages.next(20)
        async with js.stream(stream).ordered() as ordered:
            await ordered.next(20)
            await js.stream(stream).delete_consumer(ordered.name)
            await fill(js, stream, 1)
            assert [(await ordered.next(20)).seq for _ in range(2)] == [2, 3]
    assert len(subjects) >= 4
    assert {subject.partition(".")[0] for subject in subjects} == {"_MINE"}


async def test_a_server_that_shuts_down_for_good_ends_a_fetch(make_server: MakeServer) -> None:
    server = make_server()
    async with connect(server.url, reconnect_wait=0.05, max_reconnect_attempts=2) as nc:
        js = JetStream(nc)
        await js.create_stream(name="S", subjects=["s"])
        consumer = await js.stream("S").create_consumer(name="c")
        fetching = asyncio.create_task(consumer.fetch(10, timeout=60))
        await waits(consumer)
        await asyncio.to_thread(server.stop)
        with pytest.raises(errors.ConnectionLostError):
            await fetching
