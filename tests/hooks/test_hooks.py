"""Hooks: what they are told of, in both clients, and that they can do no harm."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest

import jetspark
import jetspark.errors as errors
from jetspark import Acknowledgement, Client, Hooks, Message, PreparedMessage, blocking
from jetspark.client.messages import MessageView
from jetspark.connection.events import ConnectionEvent

if TYPE_CHECKING:
    from tests.conftest import NeedsServer, Unique

    from jetspark.server import NatsServer

pytestmark = pytest.mark.server
here: ContextVar[str] = ContextVar("here", default="nowhere")


class Journal(Hooks):
    """Writes down what it is told: kind, what about, and how it ended."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []
        self.events: list[ConnectionEvent] = []
        self.closed = asyncio.Event()

    @contextmanager
    def _around(self, kind: str, about: str) -> Iterator[None]:
        before = here.set(f"{kind} {about}")
        try:
            yield
        except BaseException as error:
            self.lines.append((kind, about, type(error).__name__))
            raise
        else:
            self.lines.append((kind, about, "done"))
        finally:
            here.reset(before)

    def publish(self, message: PreparedMessage) -> AbstractContextManager[None]:
        message.headers.set("Trace", here.get())
        return self._around("publish", message.subject)

    def request(self, message: PreparedMessage) -> AbstractContextManager[None]:
        message.headers.set("Trace", here.get())
        return self._around("request", message.subject)

    def deliver(self, message: MessageView, *, handled: bool) -> AbstractContextManager[None]:
        return self._around("handle" if handled else "give", message.subject)

    def ack(self, ack: Acknowledgement) -> AbstractContextManager[None]:
        return self._around(ack.kind, f"{ack.metadata.stream} {ack.metadata.stream_seq}")

    def event(self, event: ConnectionEvent) -> None:
        self.events.append(event)
        if isinstance(event, jetspark.Closed):
            self.closed.set()

    def of(self, *kinds: str) -> list[tuple[str, str, str]]:
        return [line for line in self.lines if line[0] in kinds]


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
async def nc(shared_server: NatsServer, journal: Journal) -> AsyncIterator[Client]:
    """A client that tells the journal."""
    async with jetspark.connect(shared_server.url, hooks=journal) as client:
        yield client


def trace_of(message: MessageView) -> str | None:
    return None if message.headers is None else message.headers.get("Trace")


# -- asyncio ---------------------------------------------------------------------------------------


async def test_what_is_sent_carries_the_hooks_headers(
    shared_server: NatsServer, unique: Unique
) -> None:
    a, journal = unique("hooked"), Journal()
    async with jetspark.connect(shared_server.url, hooks=journal) as nc:
        sub = nc.subscribe(a)
        here.set("the caller")
        given = jetspark.Headers({"k": "v"})
        await nc.publish(a, b"1", headers=given)
        nc.publish_nowait(a, memoryview(b"2"), headers=iter([("k", "w")]))
        await nc.publish_msg(PreparedMessage(a, b"3"))
        got = [await sub.next(20) for _ in range(3)]
        assert [message.data for message in got] == [b"1", b"2", b"3"]
        assert [trace_of(message) for message in got] == ["the caller"] * 3
        assert got[1].headers is not None
        assert got[1].headers["k"] == "w"
        assert given.to_dict() == {"k": ["v"]}  # the caller's own are theirs
        assert journal.of("publish") == [("publish", a, "done")] * 3
        assert journal.of("give") == [("give", a, "done")] * 3
    await asyncio.wait_for(journal.closed.wait(), 20)  # told in a later turn of the loop
    kinds = [type(event).__name__ for event in journal.events]
    assert kinds == ["Connected", "Closed"]


async def test_a_request_ends_with_its_reply_or_its_error(
    nc: Client, journal: Journal, unique: Unique
) -> None:
    a, nobody = unique("hooked"), unique("nobody")

    async def answer(message: Message) -> None:
        await asyncio.sleep(0)
        assert here.get() == f"handle {a}"
        await message.respond(b"yes", {"Asked": trace_of(message) or ""})

    nc.subscribe(a, callback=answer)
    here.set("asking")
    reply = await nc.request(a, b"?", timeout=20)
    assert reply.headers is not None
    assert reply.headers["Asked"] == "asking"
    assert reply.headers["Trace"] == f"handle {a}"
    with pytest.raises(errors.NoRespondersError):
        await nc.request(nobody)
    assert journal.of("request") == [
        ("request", a, "done"),
        ("request", nobody, "NoRespondersError"),
    ]
    assert journal.of("handle") == [("handle", a, "done")]
    many = await nc.request_many(a, max_msgs=1, timeout=20).all()
    assert len(many) == 1
    assert ("publish", a, "done") in journal.lines


class Setting(Hooks):
    """Sets these headers."""

    def __init__(self, headers: Any) -> None:
        self.headers = headers

    def publish(self, message: PreparedMessage) -> None:
        message.headers = self.headers

    request = publish


@pytest.mark.parametrize(
    ("given", "sent"), [({"A": "1"}, {"A": ["1"]}), (None, {}), ([("A", "1")], {"A": ["1"]})]
)
async def test_headers_that_a_hook_sets_are_sent_like_those_of_a_call(
    shared_server: NatsServer, unique: Unique, given: Any, sent: dict[str, list[str]]
) -> None:
    a = unique("hooked")
    async with jetspark.connect(shared_server.url, hooks=Setting(given)) as nc:
        sub = nc.subscribe(a)
        await nc.publish(a, headers={"B": "2"})
        got = await sub.next(20)
        assert ({} if got.headers is None else got.headers.to_dict()) == sent
        asking = asyncio.create_task(nc.request(a, timeout=20, headers={"B": "2"}))
        got = await sub.next(20)
        assert ({} if got.headers is None else got.headers.to_dict()) == sent
        await got.respond(b"")
        await asking
        assert nc.last_error is None


@pytest.mark.parametrize("given", [5, {"A": b"\xff"}, {5: "x"}, "A: 1"])
async def test_what_are_no_headers_is_reported_and_the_message_goes_as_it_was(
    shared_server: NatsServer, unique: Unique, given: Any
) -> None:
    a, reported = unique("hooked"), list[errors.JetsparkError]()
    async with jetspark.connect(
        shared_server.url, hooks=Setting(given), error_callback=reported.append
    ) as nc:
        sub = nc.subscribe(a)
        await nc.publish(a, headers={"B": "2"})
        got = await sub.next(20)
        assert got.headers is not None
        assert got.headers.to_dict() == {"B": ["2"]}
    assert len(reported) == 1


async def test_refused_publishes_and_error_answers_are_told_with_their_error(
    nc: Client, journal: Journal, unique: Unique
) -> None:
    a = unique("hooked")
    js = nc.jetstream()
    await js.create_stream(name=a, subjects=[a], storage="memory")
    with pytest.raises(errors.WrongLastSequenceError):
        await js.publish(a, b"", expect_last_seq=99)
    bucket = await js.create_bucket(a)
    await bucket.create("k", b"")
    with pytest.raises(errors.KeyExistsError):
        await bucket.create("k", b"")
    async with await nc.add_service(a, "1.0.0") as service:

        async def fail(_: Any) -> None:
            raise errors.ServiceError(418, "no coffee")

        await service.add_endpoint("e", fail, subject=f"{a}.e")
        with pytest.raises(errors.ServiceError) as raised:
            await nc.services().request(f"{a}.e", timeout=20)
    assert str(raised.value).endswith("no coffee")
    ended = {(about, how) for _, about, how in journal.of("request")}
    assert (a, "WrongLastSequenceError") in ended
    assert any(how == "WrongLastSequenceError" for about, how in ended if about != a)
    assert (f"{a}.e", "ServiceError") in ended
    await js.delete_stream(a)
    await js.delete_bucket(a)


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_answer_to_a_failed_request_is_sent_inside_of_the_hook(
    nc: Client, journal: Journal, unique: Unique, is_async: bool
) -> None:
    a = unique("hooked")

    async def fail_later(_: Any) -> None:
        await asyncio.sleep(0)
        raise LookupError("lost")

    def fail(_: Any) -> None:
        raise LookupError("lost")

    async with await nc.add_service(a, "1.0.0") as service:
        await service.add_endpoint("e", fail_later if is_async else fail, subject=a)
        for _ in range(2):
            reply = await nc.request(a, timeout=20)
            assert reply.headers is not None
            assert reply.headers["Nats-Service-Error-Code"] == "500"
            assert reply.headers["Trace"] == f"handle {a}"
        (stats,) = service.stats().endpoints
        assert (stats.num_requests, stats.num_errors) == (2, 2)
    assert journal.of("handle") == [("handle", a, "LookupError")] * 2


async def test_groups_tell_of_what_they_hand_out_by_its_own_subject(
    nc: Client, journal: Journal, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    a, seen = unique("hooked"), asyncio.Queue[str]()
    js = nc.jetstream()
    await js.create_stream(name=a, subjects=[f"{a}.*"], storage="memory")
    group = await js.consumer_groups(a).create_elastic("cg", max_members=1)
    await group.add_members("m")
    await js.publish(f"{a}.1", b"")

    async def handle(message: Any) -> None:
        seen.put_nowait(here.get())
        await message.ack_sync(timeout=20)

    async with group.consume("m", callback=handle):
        assert await asyncio.wait_for(seen.get(), 20) == f"handle {a}.1"
    await js.publish(f"{a}.2", b"")
    async with group.consume("m") as messages:
        await (await messages.next(20)).ack_sync(timeout=20)
    assert journal.of("handle", "give") == [
        ("handle", f"{a}.1", "done"),
        ("give", f"{a}.2", "done"),
    ]
    await group.delete()
    await js.delete_stream(a)


def test_blocking_groups_tell_in_the_threads_of_their_callers(
    shared_server: NatsServer, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    a, journal, seen = unique("hooked"), Journal(), queue.Queue[str]()
    with blocking.connect(shared_server.url, hooks=journal) as nc:
        js = nc.jetstream()
        js.create_stream(name=a, subjects=[f"{a}.*"], storage="memory")
        group = js.consumer_groups(a).create_elastic("cg", max_members=1)
        group.add_members("m")
        js.publish(f"{a}.1", b"")

        def handle(message: Any) -> None:
            message.ack_sync(timeout=20)
            seen.put(here.get())

        with group.consume("m", callback=handle):
            assert seen.get(timeout=20) == f"handle {a}.1"
        js.publish(f"{a}.2", b"")
        with group.consume("m") as messages:
            messages.next(20).ack_sync(timeout=20)
        assert journal.of("handle", "give") == [
            ("handle", f"{a}.1", "done"),
            ("give", f"{a}.2", "done"),
        ]
        group.delete()
        js.delete_stream(a)


async def test_handlers_errors_reach_the_hook_and_go_on(
    nc: Client, journal: Journal, unique: Unique
) -> None:
    a, name = unique("hooked"), unique("hooked")

    def fail(message: Message) -> None:
        raise ValueError("on purpose")

    nc.subscribe(a, callback=fail)
    await nc.publish(a)
    await nc.flush()
    await nc.barrier()
    assert journal.of("handle") == [("handle", a, "ValueError")]
    assert "on purpose" in str(nc.last_error)
    service = await nc.add_service(name, "1.0.0")

    async def refuse(request: Any) -> None:
        raise errors.ServiceError(404, "none")

    await service.add_endpoint("e", refuse, subject=name)
    with pytest.raises(errors.ServiceError):
        await nc.services().request(name, timeout=20)
    assert ("handle", name, "ServiceError") in journal.lines


async def test_jetstream_is_told_by_its_messages_and_acks(
    nc: Client, journal: Journal, unique: Unique
) -> None:
    name = unique("HOOKED")
    js = nc.jetstream(timeout=20)
    await js.create_stream(name=name, subjects=[name])
    here.set("publishing")
    await js.publish(name, b"1")
    async with js.publisher() as publisher:
        await publisher.publish(name, b"2")
        await publisher.publish(name, b"3", headers={"k": "v"})
    assert journal.lines == [("request", name, "done"), *[("publish", name, "done")] * 2]
    journal.lines.clear()
    consumer = await js.stream(name).create_consumer(name="c")
    one, two = await consumer.fetch(2, timeout=20)
    assert trace_of(one) == trace_of(two) == "publishing"
    await one.in_progress()
    await one.nak()
    await two.term()
    three = await consumer.next(20)
    await three.ack_sync()
    async with consumer.consume() as messages:
        again = await messages.next(20)
        await again.ack()
    ordered = [message.seq async for message in _some(js.stream(name).ordered(), 3)]
    assert ordered == [1, 2, 3]
    assert journal.lines == [
        *[("give", name, "done")] * 2,
        ("in_progress", f"{name} 1", "done"),
        ("nak", f"{name} 1", "done"),
        ("term", f"{name} 2", "done"),
        ("give", name, "done"),
        ("ack_sync", f"{name} {three.seq}", "done"),
        ("give", name, "done"),
        ("ack", f"{name} {again.seq}", "done"),
        *[("give", name, "done")] * 3,
    ]


async def _some(messages: Any, count: int) -> Any:
    async with messages:
        for _ in range(count):
            yield await messages.next(20)


async def test_consumer_callbacks_are_wrapped_and_watches_are_not_told(
    nc: Client, journal: Journal, unique: Unique
) -> None:
    name = unique("HOOKED")
    js = nc.jetstream(timeout=20)
    bucket = await js.create_bucket(name)
    await bucket.put("k", b"v")
    assert journal.of("request") == [("request", f"$KV.{name}.k", "done")]
    async with bucket.watch() as watcher:
        entry = await watcher.next(20)
        assert entry is not None
    push = await js.stream(f"KV_{name}").create_push_consumer(
        name="p", deliver_subject=unique("push"), ack_policy="none"
    )
    came = asyncio.Event()
    async with push.subscribe(callback=lambda message: came.set()):
        await came.wait()
    assert journal.of("handle", "give") == [("handle", f"$KV.{name}.k", "done")]


async def test_batches_tell_of_each_message_when_it_is_added(
    nc: Client, journal: Journal, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    name = unique("HOOKED")
    js = nc.jetstream(timeout=20)
    await js.create_stream(
        name=name, subjects=[name], allow_atomic=True, allow_batched=True, allow_direct=True
    )
    async with js.atomic_batch() as batch:
        for number in range(2):
            here.set(f"batch {number}")
            await batch.publish(name, b"x")
        here.set("commit")
        await batch.commit()
    async with js.fast_ingest() as ingest:
        for number in range(2):
            here.set(f"ingest {number}")
            await ingest.publish(name, b"x")
    stored = [await js.stream(name).get(seq) for seq in range(1, 5)]
    traces = [message.headers["Trace"] for message in stored if message.headers]
    assert traces == ["batch 0", "batch 1", "ingest 0", "ingest 1"]
    assert journal.of("publish") == [("publish", name, "done")] * 4


# -- no harm ---------------------------------------------------------------------------------------


class Broken(Hooks):
    """Everything goes wrong: before, after, both, or by what it returns."""

    def __init__(self, when: str) -> None:
        self.when = when

    def _wrong(self) -> Any:
        if self.when == "at once":
            raise RuntimeError("hook")
        if self.when == "returns":
            return 7

        @contextmanager
        def around() -> Iterator[None]:
            if self.when == "before":
                raise RuntimeError("hook")
            try:
                yield
            except BaseException:
                if self.when == "suppresses":
                    return
                raise RuntimeError("hook") from None
            if self.when == "after":
                raise RuntimeError("hook")

        return around()

    def publish(self, message: PreparedMessage) -> Any:
        return self._wrong()

    def request(self, message: PreparedMessage) -> Any:
        return self._wrong()

    def deliver(self, message: MessageView, *, handled: bool) -> Any:
        return self._wrong()

    def given(self, messages: Sequence[MessageView]) -> Iterator[MessageView]:
        if self.when == "at once":
            raise RuntimeError("hook")
        yield from messages

    def ack(self, ack: Acknowledgement) -> Any:
        return self._wrong()

    def event(self, event: ConnectionEvent) -> None:
        if self.when == "at once":
            raise RuntimeError("hook")


@pytest.mark.parametrize("when", ["at once", "returns", "before", "after", "suppresses"])
async def test_a_hook_that_fails_changes_nothing_and_is_reported(
    shared_server: NatsServer, unique: Unique, when: str
) -> None:
    a, nobody, name = unique("hooked"), unique("nobody"), unique("HOOKED")
    reported: list[errors.JetsparkError] = []
    async with jetspark.connect(
        shared_server.url, hooks=Broken(when), error_callback=reported.append
    ) as nc:
        seen: list[bytes] = []

        async def answer(message: Message) -> None:
            seen.append(message.data)
            await message.respond(b"yes")

        nc.subscribe(a, callback=answer)
        assert (await nc.request(a, b"1", timeout=20)).data == b"yes"
        with pytest.raises(errors.NoRespondersError):
            await nc.request(nobody)
        await nc.publish(a, b"2", reply=nc.new_inbox())
        await nc.flush()
        await nc.barrier()
        assert seen == [b"1", b"2"]
        js = nc.jetstream(timeout=20)
        await js.create_stream(name=name, subjects=[name])
        await js.publish(name, b"3")
        (message,) = await (await js.stream(name).create_consumer(name="c")).fetch(1, timeout=20)
        await message.ack_sync()
        await nc.flush()
    if when != "suppresses":
        hooks = {str(error).partition(" raised")[0] for error in reported}
        names = {"publish", "request", "deliver", "ack"} | (
            {"event", "given"} if when == "at once" else set()
        )
        assert {f"The hook {hook}" for hook in names} == hooks


async def test_headers_of_a_hook_that_cannot_be_sent_are_left_out(
    shared_server: NatsServer, unique: Unique
) -> None:
    a, large = unique("hooked"), Setting({"Large": "x" * 2_000_000})
    async with jetspark.connect(shared_server.url, hooks=large) as nc:
        nc.subscribe(a, callback=lambda message: message.respond(message.data))
        reply = await nc.request(a, b"1", headers={"k": "v"}, timeout=20)
        assert (reply.data, reply.headers) == (b"1", None)
        assert "headers of a hook" in str(nc.last_error)


async def test_without_hooks_nothing_of_them_is_in_the_way(shared_server: NatsServer) -> None:
    async with jetspark.connect(shared_server.url) as nc:
        assert type(nc) is jetspark.Client
        assert type(nc.publishing).__name__ == "Publishing"
        assert type(nc.subscribe("x")._frames).__name__ == "deque"


class Measures(Hooks):
    """Only what is measured."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def measured(self, what: str, seconds: float, error: BaseException | None) -> None:
        assert 0 < seconds < 60
        self.lines.append((what, type(error).__name__))


async def test_what_is_only_measured_is_told_when_it_has_ended(
    shared_server: NatsServer, unique: Unique
) -> None:
    a, nobody, measures = unique("measured"), unique("nobody"), Measures()
    ended: list[asyncio.Task[Any] | None] = []

    def count(message: Message) -> None:
        ended.append(asyncio.current_task())

    async def answer(message: Message) -> None:
        count(message)
        await message.respond(b"yes")
        raise ValueError

    async with jetspark.connect(shared_server.url, hooks=measures) as nc:
        nc.subscribe(a, callback=count)
        answering = nc.subscribe(a, callback=answer)
        sub = nc.subscribe(a)
        assert type(sub._frames).__name__ == "deque"
        assert nc.publishing.hooked is None
        await nc.request(a, timeout=20)
        await answering.drain()
        with pytest.raises(errors.NoRespondersError):
            await nc.request(nobody)
        js = nc.jetstream()
        await js.create_stream(name=a, subjects=[f"{a}.*"], storage="memory")
        await js.publish(f"{a}.x")
        await js.delete_stream(a)
    assert len(ended) == 2
    requests = ("request", "NoRespondersError"), ("request", "NoneType"), ("request", "NoneType")
    processed = ("process", "NoneType"), ("process", "ValueError")
    assert sorted(measures.lines) == [*processed, *requests]


async def test_a_measuring_hook_that_fails_changes_nothing_and_is_reported(
    shared_server: NatsServer, unique: Unique
) -> None:
    class Failing(Hooks):
        def measured(self, what: str, seconds: float, error: BaseException | None) -> None:
            raise ValueError(what)

    a = unique("measured")
    async with jetspark.connect(shared_server.url, hooks=[Failing(), Journal()]) as nc:

        async def answer(message: Message) -> None:
            await message.respond(b"yes")

        nc.subscribe(a, callback=answer)
        assert (await nc.request(a, timeout=20)).data == b"yes"
        assert "The hook measured" in str(nc.last_error)


# -- blocking --------------------------------------------------------------------------------------


def test_blocking_hooks_are_called_in_the_callers_threads(
    shared_server: NatsServer, unique: Unique
) -> None:
    a, name, journal = unique("hooked"), unique("HOOKED"), Journal()
    with blocking.connect(shared_server.url, hooks=journal) as nc:

        def answer(message: blocking.Message) -> None:
            assert here.get() == f"handle {a}"
            message.respond(b"yes", {"Asked": trace_of(message) or ""})

        with nc.subscribe(a, callback=answer):
            here.set("asking")
            reply = nc.request(a, b"?", timeout=20)
            assert reply.headers is not None
            assert (reply.headers["Asked"], reply.headers["Trace"]) == ("asking", f"handle {a}")
            with pytest.raises(errors.NoRespondersError):
                nc.request(unique("nobody"))
            nc.barrier(20)
        assert journal.of("handle") == [("handle", a, "done")]
        assert [line[2] for line in journal.of("request")] == ["done", "NoRespondersError"]
        journal.lines.clear()

        js = nc.jetstream(timeout=20)
        js.create_stream(name=name, subjects=[name])
        here.set("publishing")
        js.publish(name, b"1")
        with js.publisher() as publisher:
            publisher.publish(name, b"2")
        nc.publish(name, b"3")
        consumer = js.stream(name).create_consumer(name="c")
        (one,) = consumer.fetch(1, timeout=20)
        assert trace_of(one) == "publishing"
        one.ack_sync()
        two = consumer.next(20)
        two.nak()
        with js.stream(name).ordered() as messages:
            assert [messages.next(20).seq for _ in range(3)] == [1, 2, 3]
        assert journal.lines == [
            ("request", name, "done"),
            ("publish", name, "done"),
            ("publish", name, "done"),
            ("give", name, "done"),
            ("ack_sync", f"{name} 1", "done"),
            ("give", name, "done"),
            ("nak", f"{name} 2", "done"),
            *[("give", name, "done")] * 3,
        ]
        journal.lines.clear()
        bucket = js.create_bucket(name.lower())
        here.set("putting")  # carried to the event loop's thread
        bucket.put("k", b"v")
        assert journal.lines == [("request", f"$KV.{name.lower()}.k", "done")]
        stored = js.stream(f"KV_{name.lower()}").get(1)
        assert stored.headers is not None
        assert stored.headers["Trace"] == "putting"
    assert journal.events
    assert type(journal.events[0]).__name__ == "Connected"


def test_blocking_service_and_iterator_are_told(shared_server: NatsServer, unique: Unique) -> None:
    name, journal = unique("hooked"), Journal()
    with (
        blocking.connect(shared_server.url, hooks=journal) as nc,
        nc.add_service(name, "1.0.0") as service,
        nc.subscribe(f"{name}.*") as sub,
    ):
        service.add_endpoint("e", lambda request: request.respond(b"yes"), subject=name)
        assert nc.request(name, timeout=20).data == b"yes"
        for number in range(3):
            nc.publish(f"{name}.{number}")
        nc.flush()
        assert sub.next(20).subject == f"{name}.0"
        assert journal.of("give") == [("give", f"{name}.0", "done")]
        assert next(iter(sub)).subject == f"{name}.1"
        assert journal.of("give", "handle") == [
            ("handle", name, "done"),
            ("give", f"{name}.0", "done"),
            ("give", f"{name}.1", "done"),
        ]


class Even(Journal):
    """Wants each second message that is given."""

    def given(self, messages: Sequence[MessageView]) -> list[MessageView]:
        return [one for one in messages if int(one.subject[-1]) % 2 == 0]


async def test_several_hooks_are_told_each_what_it_wants_the_first_outermost(
    shared_server: NatsServer, unique: Unique
) -> None:
    one, other, silent, name = Journal(), Even(), Hooks(), unique("several")
    async with jetspark.connect(shared_server.url, hooks=[one, silent, other]) as nc:
        sub = nc.subscribe(f"{name}.*")
        for number in range(4):
            nc.publish_nowait(f"{name}.{number}")
        first = await sub.next(timeout=5)
        for _ in range(3):
            await sub.next(timeout=5)
        assert trace_of(first) == f"publish {name}.0"  # the inner hook's word
    given = [("give", f"{name}.{number}", "done") for number in range(4)]
    assert [line for line in one.lines if line[0] == "give"] == given
    assert [line for line in other.lines if line[0] == "give"] == given[::2]
    assert one.events == other.events != []
