"""Fetching: full, partial, empty and broken batches; time, cancel, outage."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.jetstream.eventually import eventually
from tests.jetstream.scripted import ScriptedConsumer
from tests.support.frame_proxy import FrameProxy

from jetspark.errors import (
    ConfigError,
    ConnectionClosedError,
    ConnectionLostError,
    ConsumerDeletedError,
    ConsumerIsPushError,
    ConsumerNotFoundError,
    JetsparkError,
    MissedHeartbeatError,
    PullError,
    RequestTimeoutError,
)
from jetspark.full_client import JetStream, connect
from jetspark.jetstream import fetch as pull

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeServer

    from jetspark.full_client import Client
    from jetspark.jetstream import FetchResult, PullConsumer
    from jetspark.server import NatsServer
    from jetspark.wire.kernel import MessageFrame


async def fill(js: JetStream, stream: str, count: int) -> None:
    async with js.publisher() as publisher:
        for number in range(count):
            await publisher.send(f"{stream}.a", b"%d" % number)


@pytest.fixture
def slow_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be late by half of a fetch's timeout, and not only by 10 ms."""
    monkeypatch.setattr(pull, "EXPIRES_EARLIER", 60)


def routes(nc: Client) -> int:
    return len(nc._link.routes)


# -- with a real server ------------------------------------------------------------------------


async def test_fetch_gives_a_full_batch_in_order(
    js: JetStream, stream: str, consumer: PullConsumer
) -> None:
    await fill(js, stream, 1000)
    first = await consumer.fetch(600, timeout=5)
    rest = await consumer.fetch(400, timeout=5)
    assert [int(msg.data) for msg in first + rest] == list(range(1000))
    assert (len(first), first.error, rest.error) == (600, None, None)
    assert [msg.seq for msg in first[:2]] == [1, 2]


async def test_fetch_without_timeout_gives_an_empty_list_when_nothing_is_pending(
    consumer: PullConsumer, nc: Client
) -> None:
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


async def test_fetch_gives_an_empty_list_when_nothing_came(
    consumer: PullConsumer, slow_server: None
) -> None:
    assert await consumer.fetch(10, timeout=1) == []


async def test_fetch_without_timeout_respects_max_ack_pending(js: JetStream, stream: str) -> None:
    await fill(js, stream, 20)  # first: a consumer hears of a message a moment after its ack
    consumer = await js.create_consumer(stream, durable_name="d", max_ack_pending=10)
    assert len(await consumer.fetch(6)) == 6
    assert len(await consumer.fetch(6)) == 4
    assert await consumer.fetch(6) == []


async def test_fetch_without_timeout_gets_nothing_from_a_paused_consumer(
    js: JetStream, stream: str, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.11")
    consumer = await js.create_consumer(
        stream, durable_name="d", pause_until=datetime.now(UTC) + timedelta(hours=1)
    )
    await fill(js, stream, 1)
    assert await consumer.fetch(6) == []


async def test_fetch_gets_messages_that_come_while_it_waits(
    js: JetStream, stream: str, consumer: PullConsumer
) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(consumer.fetch(2, timeout=5))
        await eventually(lambda: _waits(consumer))
        await fill(js, stream, 2)
    assert len(waiting.result()) == 2


async def _waits(consumer: PullConsumer) -> bool:
    return (await consumer.info()).num_waiting == 1


async def test_fetch_max_bytes_ends_a_batch_early(
    js: JetStream, stream: str, consumer: PullConsumer
) -> None:
    for _ in range(3):
        await js.publish(f"{stream}.a", b"x" * 1000)
    batch = await consumer.fetch(10, timeout=20, max_bytes=2500)
    assert (len(batch), batch.error) == (2, None)
    with pytest.raises(PullError, match="MaxBytes") as too_small:
        await consumer.fetch(10, timeout=20, max_bytes=100)
    assert too_small.value.status == 409


async def test_heartbeats_keep_an_idle_fetch_alive(
    consumer: PullConsumer, slow_server: None
) -> None:
    assert await consumer.fetch(1, timeout=4, heartbeat=1) == []


async def test_fetch_gives_messages_and_the_error_when_the_consumer_is_deleted(
    js: JetStream, stream: str, consumer: PullConsumer
) -> None:
    await fill(js, stream, 3)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(consumer.fetch(10, timeout=5))
        await eventually(lambda: _waits(consumer))
        await consumer.delete()
    batch = waiting.result()
    assert len(batch) == 3
    assert isinstance(batch.error, ConsumerDeletedError)
    # Before 2.10 the server says nothing at all to a pull on a consumer that is gone.
    with pytest.raises((ConsumerNotFoundError, RequestTimeoutError), match="c"):
        await consumer.fetch(10, timeout=1)
    with pytest.raises(ConsumerNotFoundError):
        await consumer.fetch(10)


async def test_fetch_raises_when_the_consumer_is_deleted_before_any_message(
    consumer: PullConsumer,
) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_error_of(consumer.fetch(10, timeout=5)))
        await eventually(lambda: _waits(consumer))
        await consumer.delete()
    assert isinstance(waiting.result(), ConsumerDeletedError)


async def _error_of(fetch: Any) -> JetsparkError | None:
    try:
        await fetch
    except JetsparkError as error:
        return error
    return None


async def test_fetching_more_than_the_consumer_allows_is_an_error(
    js: JetStream, stream: str
) -> None:
    consumer = await js.create_consumer(stream, durable_name="d", max_batch=5)
    with pytest.raises(PullError, match="MaxRequestBatch"):
        await consumer.fetch(6, timeout=20)


async def test_a_cancelled_fetch_leaves_nothing_behind(
    js: JetStream, stream: str, consumer: PullConsumer, nc: Client
) -> None:
    before = routes(nc)
    waiting = asyncio.create_task(consumer.fetch(10, timeout=60))
    await eventually(lambda: _waits(consumer))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await eventually(lambda: _has_routes(nc, before))  # closed behind what is on its way
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
        far = await other.jetstream().consumer(stream, consumer.name)
        waiting = asyncio.create_task(far.fetch(10, timeout=60))
        await eventually(lambda: _waits(consumer))
        fault = proxy.arm(1, "stalled", delay=0.5)
        await fill(js, stream, 1)
        await eventually(lambda: _is_out(consumer))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        again = await consumer.next(timeout=5)  # ack_wait is 30 s
    assert fault.hit is not None
    assert again.metadata.deliveries == 2


async def _has_routes(nc: Client, count: int) -> bool:
    return routes(nc) == count


async def _is_out(consumer: PullConsumer) -> bool:
    return (await consumer.info()).num_ack_pending == 1


async def test_every_end_of_a_fetch_leaves_nothing_behind(
    js: JetStream, stream: str, consumer: PullConsumer, nc: Client
) -> None:
    before = routes(nc)
    await consumer.fetch(1)
    await _error_of(consumer.fetch(1, timeout=0.05, heartbeat=0.01))
    await fill(js, stream, 1)
    await consumer.fetch(1, timeout=20)
    await consumer.delete()
    await _error_of(consumer.fetch(1))
    assert routes(nc) == before


async def test_closing_the_client_ends_a_fetch_at_once(consumer: PullConsumer, nc: Client) -> None:
    waiting = asyncio.create_task(consumer.fetch(10, timeout=60))
    await eventually(lambda: _waits(consumer))
    await nc.close()
    with pytest.raises(ConnectionClosedError):
        await waiting


async def test_a_shutdown_of_the_server_ends_a_fetch_that_has_messages(
    make_server: MakeServer,
) -> None:
    server = make_server()
    async with connect(server.url, reconnect_wait=0.05) as nc:
        js = JetStream(nc)
        await js.create_stream(name="S", subjects=["s"])
        await js.publish("s", b"0")
        consumer = await js.create_consumer("S", durable_name="c")
        waiting = asyncio.create_task(consumer.fetch(3, timeout=30))
        await eventually(lambda: _waits(consumer))
        await asyncio.to_thread(server.stop)
        batch = await waiting
    assert [msg.data for msg in batch] == [b"0"]
    assert isinstance(batch.error, PullError)


@pytest.mark.parametrize(("how", "before"), [("stop", 0), ("kill", 0), ("kill", 1)])
async def test_a_fetch_survives_a_server_restart(
    make_server: MakeServer, how: str, before: int
) -> None:
    server = make_server()
    async with connect(server.url, reconnect_wait=0.05) as nc:
        js = JetStream(nc, timeout=30)
        await js.create_stream(name="S", subjects=["s"])
        for number in range(before):
            await js.publish("s", b"%d" % number)
        consumer = await js.create_consumer("S", durable_name="c")
        waiting = asyncio.create_task(consumer.fetch(3, timeout=30, heartbeat=0.5))
        await eventually(lambda: _waits(consumer))
        await asyncio.to_thread(getattr(server, how))
        # Longer than twice the heartbeat: its clock stands still meanwhile.
        await asyncio.sleep(1.2)
        assert not waiting.done()
        await asyncio.to_thread(server.start)
        for number in range(before, 3):
            await js.publish("s", b"%d" % number)
        batch = await waiting
        # A killed server may not have written down what it delivered: a redelivery is right then.
        new = [msg.data for msg in batch if msg.metadata.deliveries == 1 or msg is batch[0]]
        distinct = list(dict.fromkeys(new))
        assert distinct == [b"0", b"1", b"2"][: len(distinct)]
        assert (len(batch), batch.error) == (3, None)
        assert how == "kill" or len(distinct) == 3


async def test_a_fetch_started_during_an_outage_is_requested_afterwards(
    make_server: MakeServer,
) -> None:
    server = make_server()
    async with connect(server.url, reconnect_wait=0.05) as nc:
        js = JetStream(nc)
        await js.create_stream(name="S", subjects=["s"])
        await js.publish("s", b"0")
        consumer = await js.create_consumer("S", durable_name="c")
        await asyncio.to_thread(server.stop)
        waiting = asyncio.create_task(consumer.fetch(1, timeout=20))
        await eventually(_is(lambda: not nc.is_connected))
        await asyncio.to_thread(server.start)
        assert [msg.data for msg in await waiting] == [b"0"]


async def test_a_fetch_times_out_in_an_outage_longer_than_its_timeout(
    make_server: MakeServer,
) -> None:
    server = make_server()
    async with connect(server.url, reconnect_wait=0.05) as nc:
        js = JetStream(nc)
        await js.create_stream(name="S", subjects=["s"])
        consumer = await js.create_consumer("S", durable_name="c")
        await asyncio.to_thread(server.stop)
        with pytest.raises(RequestTimeoutError):
            await consumer.fetch(1, timeout=0.2)


def _is(holds: Callable[[], bool]) -> Callable[[], Any]:
    async def asked() -> bool:
        return holds()

    return asked


# -- with a scripted consumer ------------------------------------------------------------------


async def test_fetch_sends_its_options_in_the_pull_request(
    scripted: Callable[..., ScriptedConsumer],
) -> None:
    full = [1]
    async with scripted(full, full, full) as peer:
        await peer.consumer.fetch(1)
        await peer.consumer.fetch(1, timeout=20, max_bytes=500, heartbeat=2.5)
        with suppress(RequestTimeoutError):
            await peer.consumer.fetch(1, timeout=0.01)
        await eventually(_is(lambda: len(peer.requests) == 3))
        now, waiting, short = peer.requests
    assert now == {"batch": 1, "no_wait": True}
    expires = waiting.pop("expires")
    assert 1.8e10 < expires <= 1.999e10
    assert waiting == {"batch": 1, "max_bytes": 500, "idle_heartbeat": 2_500_000_000}
    assert 0 < short["expires"] <= 5_000_000


@pytest.mark.parametrize("end", ["404 No Messages", "408 Request Timeout", "408 Interest Expired"])
async def test_statuses_that_end_a_fetch_without_an_error(
    scripted: Callable[..., ScriptedConsumer], end: str
) -> None:
    async with scripted([1, 2, end], [end]) as peer:
        assert len(await peer.consumer.fetch(10, timeout=5)) == 2
        assert await peer.consumer.fetch(10, timeout=5) == []


async def test_409_batch_completed_ends_a_fetch_without_an_error(
    scripted: Callable[..., ScriptedConsumer],
) -> None:
    async with scripted([1, "409 Batch Completed"]) as peer:
        batch = await peer.consumer.fetch(10, timeout=5)
    assert (len(batch), batch.error) == (1, None)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("409 Consumer Deleted", ConsumerDeletedError),
        ("409 Consumer is push based", ConsumerIsPushError),
        ("409 Exceeded MaxWaiting", PullError),
        ("409 Exceeded MaxRequestExpires of 5s", PullError),
        ("400 Bad Request", PullError),
        ("423 Nats-Wrong-Pin-Id", PullError),
        ("409 A sentence of a newer server", PullError),
    ],
)
async def test_statuses_that_end_a_fetch_with_an_error(
    scripted: Callable[..., ScriptedConsumer], status: str, error: type[PullError]
) -> None:
    async with scripted([1, status], [status]) as peer:
        batch = await peer.consumer.fetch(10, timeout=5)
        assert [msg.data for msg in batch] == [b"1"]
        assert type(batch.error) is error
        with pytest.raises(error) as raised:
            await peer.consumer.fetch(10, timeout=5)
    assert f"{raised.value.status} {raised.value.description}" == status


@pytest.mark.parametrize("status", ["409 Leadership Change", "409 Server Shutdown", "503"])
async def test_without_a_leader_a_fetch_is_requested_again(
    scripted: Callable[..., ScriptedConsumer], status: str
) -> None:
    async with scripted([status], [status], [7]) as peer:
        batch = await peer.consumer.fetch(1, timeout=5)
        assert [msg.data for msg in batch] == [b"7"]
        expiries = [request["expires"] for request in peer.requests]
    assert len(set(peer.inboxes)) == 3
    assert expiries == sorted(expiries, reverse=True)


async def test_503_of_a_deleted_consumer_ends_a_fetch(
    scripted: Callable[..., ScriptedConsumer],
) -> None:
    async with scripted(["503"]) as peer:
        peer.exists = False
        with pytest.raises(ConsumerNotFoundError):
            await peer.consumer.fetch(1, timeout=5)


async def test_a_late_status_after_the_timeout_is_no_error(
    scripted: Callable[..., ScriptedConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "GRACE", 20)
    async with scripted() as peer:
        fetching = asyncio.create_task(peer.consumer.fetch(1, timeout=0.1))
        await eventually(_is(lambda: bool(peer.inboxes)))
        # The server's answer is behind our own timeout by the time that it needs.
        await asyncio.wait({fetching}, timeout=0.3)
        peer.say(peer.inboxes[0], "408 Request Timeout")
        assert await fetching == []


async def test_a_fetch_without_a_leader_times_out(
    scripted: Callable[..., ScriptedConsumer],
) -> None:
    async with scripted(*[["503"]] * 9) as peer:
        with pytest.raises(RequestTimeoutError):
            await peer.consumer.fetch(1, timeout=0.4)
        assert len(peer.requests) == 2


async def test_a_silent_consumer_is_reported_after_two_heartbeats(
    scripted: Callable[..., ScriptedConsumer], nc: Client
) -> None:
    async with scripted([], [1, 2]) as peer:
        begin = nc.loop.time()
        with pytest.raises(MissedHeartbeatError):
            await peer.consumer.fetch(10, timeout=30, heartbeat=0.3)
        assert 0.6 <= nc.loop.time() - begin < 10
        batch = await peer.consumer.fetch(10, timeout=30, heartbeat=0.3)
    assert len(batch) == 2
    assert isinstance(batch.error, MissedHeartbeatError)


async def test_heartbeats_restart_the_wait_of_a_fetch(
    scripted: Callable[..., ScriptedConsumer], nc: Client
) -> None:
    async with scripted([]) as peer:
        waiting = asyncio.create_task(peer.consumer.fetch(10, timeout=30, heartbeat=0.8))
        begin = nc.loop.time()
        for _ in range(4):
            await asyncio.sleep(0.5)  # the wait is 1.6 s
            peer.say(peer.inboxes[0], "100 Idle Heartbeat")
        with pytest.raises(MissedHeartbeatError):
            await waiting
    assert nc.loop.time() - begin > 3.5


async def test_a_fetch_without_any_answer_times_out(
    scripted: Callable[..., ScriptedConsumer], nc: Client
) -> None:
    async with scripted([], [1]) as peer:
        begin = nc.loop.time()
        with pytest.raises(RequestTimeoutError):
            await peer.consumer.fetch(10, timeout=0.2)
        assert 0.2 <= nc.loop.time() - begin < 5
        # A server ends every fetch in time: without its word something was lost on the way.
        batch = await peer.consumer.fetch(10, timeout=1)
    assert len(batch) == 1
    assert isinstance(batch.error, RequestTimeoutError)


async def test_messages_after_the_end_of_a_fetch_are_not_taken(
    scripted: Callable[..., ScriptedConsumer],
) -> None:
    async with scripted([1, 2, 3, "409 Consumer Deleted", 4]) as peer:
        batch = await peer.consumer.fetch(2, timeout=20)
    assert ([msg.data for msg in batch], batch.error) == ([b"1", b"2"], None)


async def test_a_user_message_that_looks_like_a_status_is_a_message(
    js: JetStream, stream: str, consumer: PullConsumer
) -> None:
    await js.publish(f"{stream}.a", b"x", headers={"Status": "409", "Description": "no"})
    batch = await consumer.fetch(1, timeout=20)
    assert [msg.data for msg in batch] == [b"x"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch": 0},
        {"batch": 1, "timeout": 0},
        {"batch": 1, "max_bytes": 0},
        {"batch": 1, "heartbeat": 1},
        {"batch": 1, "timeout": 1, "heartbeat": 0},
        {"batch": 1, "timeout": 1, "heartbeat": 0.6},
    ],
)
async def test_impossible_fetch_options_are_refused(
    scripted: Callable[..., ScriptedConsumer], arguments: dict[str, Any]
) -> None:
    peer = scripted()
    with pytest.raises(ConfigError):
        await peer.consumer.fetch(**arguments)


async def test_fetch_uses_the_inbox_prefix(shared_server: NatsServer, stream: str) -> None:
    async with connect(shared_server.url, inbox_prefix="_MINE") as nc:
        prefixes = set()
        listen = nc.listen

        def watched(subject: str, *args: Any, **options: Any) -> Any:
            prefixes.add(subject.partition(".")[0])
            return listen(subject, *args, **options)

        nc.listen = watched  # type: ignore[method-assign]
        js = JetStream(nc)
        consumer = await js.create_consumer(stream, name="c")
        await fill(js, stream, 1)
        result: FetchResult = await consumer.fetch(1, timeout=5)
        assert len(result) == 1
    assert prefixes == {"_MINE"}


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_server_that_does_not_come_back_ends_a_fetch_as_a_lost_connection(
    make_server: MakeServer, end: str
) -> None:
    server = make_server()
    async with connect(server.url, reconnect_wait=0.05, max_reconnect_attempts=2) as nc:
        js = JetStream(nc)
        await js.create_stream(name="S", subjects=["s"])
        consumer = await js.create_consumer("S", name="c")
        fetching = asyncio.create_task(consumer.fetch(10, timeout=60))
        await eventually(partial(_waits, consumer))
        await asyncio.to_thread(getattr(server, end))
        with pytest.raises(ConnectionLostError):
            await fetching
