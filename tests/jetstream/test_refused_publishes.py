"""Publishes that no server takes, by permission or size: who waits for acks hears it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.conftest import MakeServer, NeedsServer, Reported, Unique
from tests.jetstream.eventually import eventually

from jetspark import errors
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream.in_flight import sender_of
from jetspark.jetstream.publisher import MessageRetry
from jetspark.server import NatsServer

PATIENCE = 600
"""Seconds: a time-out of this length is a hang here."""

USERS = """
authorization { users: [
  { user: all, password: p }
  { user: some, password: p, permissions { publish {
    deny: ["s.no", "t.>", "$JS.API.CONSUMER.MSG.NEXT.S.closed"]
  } } }
  { user: deaf, password: p, permissions { subscribe { deny: ["_INBOX.>"] } } }
] }
"""


async def _request(js: JetStream, subject: str, payload: bytes = b"1") -> None:
    await js.publish(subject, payload, timeout=PATIENCE)


async def _publisher(js: JetStream, subject: str, payload: bytes = b"1") -> None:
    async with js.publisher(timeout=PATIENCE) as publisher:
        await publisher.publish(subject, payload)


async def _publish_async(js: JetStream, subject: str, payload: bytes = b"1") -> None:
    async with js.publisher(timeout=PATIENCE) as publisher:
        await (await publisher.publish_async(subject, payload))


async def _atomic(js: JetStream, subject: str, payload: bytes = b"1") -> None:
    async with js.atomic_batch(timeout=PATIENCE) as batch:
        await batch.publish(subject, payload)
        await batch.publish(subject, b"2")


async def _fast(js: JetStream, subject: str, payload: bytes = b"1") -> None:
    async with js.fast_ingest(timeout=PATIENCE) as ingest:
        await ingest.publish(subject, payload)


WAYS: dict[str, Callable[..., Awaitable[None]]] = {
    "request": _request,
    "publisher": _publisher,
    "publish_async": _publish_async,
    "atomic": _atomic,
    "fast": _fast,
}


async def test_a_subject_without_a_stream_is_told_at_once_and_waited_for_once(
    js: JetStream, reported: Reported, unique: Unique
) -> None:
    nowhere = unique("nowhere")
    began = asyncio.get_running_loop().time()
    async with js.publisher(window=10, retry_for=1, raise_failures=False) as publisher:
        for number in range(200):
            await publisher.publish(nowhere, b"%d" % number)
            if number == 0:
                await eventually(lambda: reported)
    assert asyncio.get_running_loop().time() - began < 15  # each window for itself: 20 s
    kinds = [type(failure.error) for failure in publisher.failed]
    assert kinds == [errors.NoStreamResponseError] * 200
    assert [type(error) for error in reported] == [errors.NoStreamResponseError]


@pytest.fixture(autouse=True)
def _batches(needs_server: NeedsServer) -> None:
    needs_server("2.14")


@pytest.fixture
async def server(make_server: MakeServer) -> NatsServer:
    server = make_server(USERS)
    async with connect(server.url, user="all", password="p") as nc:
        await nc.jetstream().create_stream(
            name="S", subjects=["s.>"], allow_atomic=True, allow_batched=True
        )
    return server


@pytest.fixture
async def some(server: NatsServer) -> AsyncIterator[Client]:
    async with connect(server.url, user="some", password="p") as nc:
        yield nc


def reason(raised: BaseException) -> BaseException:
    return raised.failures[0].error if isinstance(raised, errors.PublishFailedError) else raised


async def test_publish_without_permission_fails_at_once(some: Client) -> None:
    for way in WAYS.values():
        with pytest.raises((errors.PermissionsError, errors.PublishFailedError)) as raised:
            await asyncio.wait_for(way(some.jetstream(), "s.no"), 60)
        error = reason(raised.value)
        assert isinstance(error, errors.PermissionsError)
        assert (error.operation, error.subject) == ("publish", "s.no")
        assert "may be stored" not in str(raised.value)


async def test_a_refused_message_may_be_stored_by_an_earlier_attempt(some: Client) -> None:
    with pytest.raises(errors.PublishFailedError, match=r"\(1 may be stored\)") as raised:
        async with some.jetstream().publisher(timeout=PATIENCE) as publisher:
            index = await publisher.publish("s.no")
            sender_of(publisher).window.retrying[index] = MessageRetry(PATIENCE, since=0.0)
    assert isinstance(raised.value.failures[0].error.__cause__, errors.PermissionsError)


async def test_publish_without_permission_for_its_inbox_fails_at_once(server: NatsServer) -> None:
    for way in WAYS.values():
        async with connect(server.url, user="deaf", password="p") as nc:
            with pytest.raises((errors.PermissionsError, errors.PublishFailedError)) as raised:
                await asyncio.wait_for(way(nc.jetstream(), "s.a"), 60)
        error = reason(raised.value)
        assert isinstance(error, errors.PermissionsError)
        assert error.operation == "subscription"
        assert "can be received" in str(error)
        assert error.sentence() == str(error)  # what commands show
        if isinstance(raised.value, errors.PublishFailedError):
            assert "(1 may be stored)" in str(raised.value)
        assert "closed" not in str(error)


async def test_a_publisher_without_its_inbox_takes_no_more(server: NatsServer) -> None:
    async with (
        connect(server.url, user="deaf", password="p") as nc,
        nc.jetstream().publisher(timeout=PATIENCE) as publisher,
    ):
        await publisher.publish("s.a")
        await publisher.flush()
        assert [type(each.error) for each in publisher.failed] == [errors.PermissionsError]
        with pytest.raises(errors.PermissionsError):
            await publisher.publish("s.a")


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_smaller_server_does_not_take_is_known_at_once(
    make_server: MakeServer, way: str
) -> None:
    server = make_server()
    async with connect(server.url, reconnect_wait=0.05) as nc:
        js = nc.jetstream()
        port = server.port
        await asyncio.to_thread(server.close)
        await eventually(lambda: not nc.is_connected)
        doing = asyncio.ensure_future(WAYS[way](js, "s.a", bytes(5000)))
        await eventually(lambda: nc.publishing.link.outbox.size > 5000)
        await asyncio.to_thread(make_server, "max_payload: 1000", port=port)
        with pytest.raises((errors.MaxPayloadError, errors.PublishFailedError)) as raised:
            await asyncio.wait_for(doing, 60)
        assert isinstance(reason(raised.value), errors.MaxPayloadError)
        assert isinstance(nc.last_error, errors.MaxPayloadError)


async def test_publisher_stores_messages_around_refused_ones(some: Client) -> None:
    async with some.jetstream().publisher(timeout=PATIENCE) as publisher:
        for number in range(300):
            await publisher.publish(("s.yes", "s.no", "t.no")[number % 3], b"%d" % number)
        await publisher.flush()
        failed = publisher.failed
    assert publisher.acked == 100
    assert {each.index % 3 for each in failed} == {1, 2}
    for each in failed:
        assert isinstance(each.error, errors.PermissionsError)
        assert each.error.subject == each.subject


@pytest.mark.parametrize("last", ["s.yes", "s.no"])
async def test_fast_ingest_ends_before_what_is_not_allowed(some: Client, last: str) -> None:
    js = some.jetstream()
    async with js.fast_ingest(timeout=PATIENCE) as ingest:
        for subject in (*["s.yes"] * 4, "s.no", last):
            await ingest.publish(subject)
        with pytest.raises((errors.PermissionsError, errors.NotStoredError)):
            while True:
                await ingest.publish("s.yes")
        await asyncio.wait_for(ingest.commit(), 60)
        failed = ingest.failed
    assert ingest.acked == 4
    assert [each.index for each in failed] == list(range(4, ingest.sent))
    assert isinstance(failed[0].error, errors.PermissionsError)
    assert (await js.stream("S").info()).state.messages == 4


@pytest.mark.parametrize("last", ["s.yes", "s.no"])
async def test_fast_ingest_with_gaps_goes_around_what_is_refused(some: Client, last: str) -> None:
    js = some.jetstream()
    async with js.fast_ingest(gaps="ok", timeout=PATIENCE) as ingest:
        for number in range(30):
            await ingest.publish(("s.yes", "s.no")[number % 2])
        await ingest.publish(last)
        await asyncio.wait_for(ingest.commit(), 60)
        failed = ingest.failed
    refused = [*range(1, 30, 2), *([30] if last == "s.no" else [])]
    assert sorted(each.index for each in failed) == refused
    assert {type(each.error) for each in failed} <= {errors.PermissionsError, errors.NotStoredError}
    assert ingest.acked == 31 - len(refused)
    assert (await js.stream("S").info()).state.messages == ingest.acked


async def test_a_batch_that_is_refused_in_the_middle_stores_nothing(some: Client) -> None:
    js = some.jetstream()
    with pytest.raises(errors.PermissionsError):
        async with js.atomic_batch(timeout=PATIENCE) as batch:
            for subject in ("s.yes", "s.no", "s.yes", "s.yes"):
                await batch.publish(subject)
            await asyncio.wait_for(batch.commit(), 60)
    assert (await js.stream("S").info()).state.messages == 0


async def test_permission_error_for_another_subject_fails_no_publish(some: Client) -> None:
    js = some.jetstream()
    async with js.publisher() as publisher, js.atomic_batch() as batch, js.fast_ingest() as ingest:
        await publisher.publish("s.a")
        await batch.publish("s.b")
        await ingest.publish("s.c")
        await some.publish("s.no")
        await some.publish("s.no", reply="s.a")
        await some.flush()
        await batch.publish("s.b")
        await ingest.publish("s.c")
        await publisher.publish("s.a")
    assert (publisher.acked, batch.size, ingest.acked) == (2, 2, 2)


async def test_a_listener_gets_refused_publishes_until_it_is_closed(some: Client) -> None:
    heard: list[tuple[str, type[Exception]]] = []
    listener = some.listen(
        some.new_inbox(),
        lambda frame: None,
        on_refused=lambda name, error: heard.append((name, type(error))),
    )
    for _ in range(2):
        await some.publish("s.no")
        await some.flush()
        listener.close()
    assert heard == [("s.no", errors.PermissionsError)]


async def test_pull_without_permission_fails_at_once(server: NatsServer) -> None:
    async with connect(server.url, user="all", password="p") as nc:
        await nc.jetstream().stream("S").create_consumer(name="closed")
    async with connect(server.url, user="some", password="p") as nc:
        consumer = await nc.jetstream().stream("S").consumer("closed")
        for pull in (consumer.fetch(1, timeout=PATIENCE), consumer.consume().next(PATIENCE)):
            with pytest.raises(errors.PermissionsError) as raised:
                await asyncio.wait_for(pull, 60)
            assert raised.value.subject == "$JS.API.CONSUMER.MSG.NEXT.S.closed"
