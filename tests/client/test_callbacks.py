"""What a callback raises is reported and the next thing comes, whatever it is and whoever calls."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.conftest import Unique

from jetspark.client.callbacks import Callback
from jetspark.errors import JetsparkError
from jetspark.full_client import Client, connect
from jetspark.server import NatsServer

Calls = Callable[[Any], Awaitable[None] | None]
Begin = Callable[["Client", str, Calls, AsyncExitStack], Awaitable[None]]


async def awaits_what_was_cancelled() -> None:
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task


async def raises_after_a_while(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


def raises(error: BaseException) -> None:
    raise error


TROUBLE: list[Callable[[], Awaitable[None] | None]] = [
    awaits_what_was_cancelled,
    lambda: raises(asyncio.CancelledError("mine")),
    lambda: raises_after_a_while(GeneratorExit("mine")),
    lambda: raises(GeneratorExit("mine")),
    lambda: raises_after_a_while(ValueError("mine")),
]
COUNT = len(TROUBLE) + 1


async def by_subscription(nc: Client, name: str, call: Calls, stack: AsyncExitStack) -> None:
    nc.subscribe(name, callback=call)
    for _ in range(COUNT):
        await nc.publish(name, b"x")


async def in_a_stream(nc: Client, name: str) -> None:
    await nc.jetstream(timeout=20).create_stream(name=name, subjects=[name], storage="memory")
    for _ in range(COUNT):
        await nc.jetstream(timeout=20).publish(name, b"x")


async def by_consume(nc: Client, name: str, call: Calls, stack: AsyncExitStack) -> None:
    await in_a_stream(nc, name)
    consumer = await nc.jetstream(timeout=20).stream(name).create_consumer(ack_policy="none")
    consumer.consume(callback=call)


async def by_ordered(nc: Client, name: str, call: Calls, stack: AsyncExitStack) -> None:
    await in_a_stream(nc, name)
    nc.jetstream(timeout=20).stream(name).ordered(callback=call)


async def by_push(nc: Client, name: str, call: Calls, stack: AsyncExitStack) -> None:
    await in_a_stream(nc, name)
    consumer = (
        await nc.jetstream(timeout=20)
        .stream(name)
        .create_push_consumer(deliver_subject=nc.new_inbox(), ack_policy="none")
    )
    consumer.subscribe(callback=call)


async def by_watch(nc: Client, name: str, call: Calls, stack: AsyncExitStack) -> None:
    bucket = await nc.jetstream(timeout=20).create_bucket(name, storage="memory")
    bucket.watch(callback=call)  # its first call is for the mark
    for number in range(COUNT):
        await bucket.put(f"k{number}", b"x")


async def by_live(nc: Client, name: str, call: Calls, stack: AsyncExitStack) -> None:
    bucket = await nc.jetstream(timeout=20).create_bucket(name, storage="memory")
    for number in range(COUNT - 3):
        await bucket.put(f"k{number}", b"x")
    live = await stack.enter_async_context(bucket.live(on_change=call))
    for number in range(COUNT - 3, COUNT):
        await bucket.put(f"k{number}", b"x")
    while len(live) < COUNT:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # in time, or the test's timeout says so
    assert live.error is None


async def by_events(nc: Client, name: str, call: Calls, stack: AsyncExitStack) -> None:
    js = nc.jetstream(timeout=20)
    js.events(stream=name, kinds=["stream_action"], callback=call)
    await nc.flush(20)
    await js.create_stream(name=name, subjects=[name], storage="memory")
    for number in range(COUNT - 1):
        await js.stream(name).update(description=f"{number}")


@pytest.mark.parametrize(
    "begin", [by_subscription, by_consume, by_ordered, by_push, by_watch, by_live, by_events]
)
async def test_what_a_callback_raises_is_reported_and_the_next_call_comes(
    shared_server: NatsServer, unique: Unique, begin: Begin
) -> None:
    """A CancelledError of its own, and GeneratorExit, ended delivery for ever and in silence."""
    calls, last, all_reported = 0, asyncio.Event(), asyncio.Event()
    reported: list[JetsparkError] = []

    def report(error: JetsparkError) -> None:
        reported.append(error)
        if len(reported) == len(TROUBLE):
            all_reported.set()

    def call(_: object) -> Awaitable[None] | None:
        nonlocal calls
        calls += 1
        if calls <= len(TROUBLE):
            return TROUBLE[calls - 1]()
        last.set()
        return None

    name = unique("CALLS")
    async with (
        asyncio.timeout(60),
        connect(shared_server.url, error_callback=report) as nc,
        AsyncExitStack() as stack,
    ):
        try:
            await begin(nc, name, call, stack)
            await last.wait()
            await all_reported.wait()
            told = reported.copy()  # deleting a stream is reported, too
        finally:
            await stack.aclose()
            async for stream in nc.jetstream(timeout=20).stream_names():
                if stream.endswith(name):
                    await nc.jetstream(timeout=20).delete_stream(stream)
    assert [type(error.__cause__) for error in told] == [
        *(asyncio.CancelledError, asyncio.CancelledError),
        *(GeneratorExit, GeneratorExit, ValueError),
    ]
    assert all(str(error).startswith("The callback of ") for error in told)


def test_exit_ends_the_loop_and_is_reported(shared_server: NatsServer) -> None:
    reported: list[JetsparkError] = []

    async def main() -> None:
        # asyncio writes of it what it always does, some time later.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with connect(shared_server.url, error_callback=reported.append) as nc:
            nc.subscribe(nc.new_inbox(), callback=lambda _: None)
            subject = nc.new_inbox()
            nc.subscribe(subject, callback=lambda _: raises(SystemExit(7)))
            await nc.publish(subject)
            await asyncio.sleep(60)

    with pytest.raises(SystemExit) as exit_:
        asyncio.run(main())
    assert exit_.value.code == 7
    assert [type(error.__cause__) for error in reported] == [SystemExit]


@pytest.mark.parametrize("closed", [False, True])
def test_a_callback_ends_with_the_task_that_runs_it(closed: bool) -> None:
    """Cancelled, or closed when the loop has ended: neither is the callback's own."""
    reported: list[JetsparkError] = []

    async def call(waits: asyncio.Event) -> None:
        waits.set()
        await asyncio.sleep(60)

    async def deliver(waits: asyncio.Event) -> None:
        while (rest := Callback(call, "It", reported.append).call(waits)) is not None:
            await rest

    async def start() -> asyncio.Task[None]:
        waits = asyncio.Event()
        task = asyncio.ensure_future(deliver(waits))
        await waits.wait()
        if not closed:
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
        return task

    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(start())
    loop.close()
    if closed:
        task.get_coro().close()  # raises RuntimeError when it goes on
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    assert reported == []


async def test_an_outdated_live_mapping_raises(shared_server: NatsServer, unique: Unique) -> None:
    async with connect(shared_server.url) as nc:
        js = nc.jetstream(timeout=20)
        bucket = await js.create_bucket(unique("B"), storage="memory")
        await bucket.put("k", b"v")
        async with bucket.live() as live:
            name = f"jetspark-live-{bucket.name}"
            (task,) = [task for task in asyncio.all_tasks() if task.get_name() == name]
            task.cancel()
            await asyncio.wait({task})
            with pytest.raises(JetsparkError, match="Following bucket"):
                live["k"]
            assert nc.last_error is live.error
        await js.delete_bucket(bucket.name)


@pytest.mark.parametrize("trouble", TROUBLE)
async def test_what_an_error_or_event_callback_raises_is_logged(
    shared_server: NatsServer,
    caplog: pytest.LogCaptureFixture,
    trouble: Callable[[], Awaitable[None] | None],
) -> None:
    def logged(what: str) -> bool:
        return any(what in record.getMessage() for record in caplog.records)

    def call(found: object) -> Awaitable[None] | None:
        return trouble()

    async with connect(shared_server.url, error_callback=call, event_callback=call) as nc:
        nc.report(JetsparkError("to be told"))
        async with asyncio.timeout(20):
            while not (  # noqa: ASYNC110
                logged("The error callback raised") and logged("The event callback raised")
            ):
                await asyncio.sleep(0.01)  # nobody is told of a line in the log


@pytest.mark.parametrize("kind", ["subscribe", "consume", "ordered", "watch"])
async def test_a_callback_whose_task_is_cancelled_ends_its_source_and_says_so(
    shared_server: NatsServer, unique: Unique, kind: str
) -> None:
    name, reported, called = unique("C"), asyncio.Queue[JetsparkError](), asyncio.Event()

    async def call(item: object) -> None:
        if item is not None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            called.set()
            await asyncio.sleep(0)

    async with connect(shared_server.url, error_callback=reported.put_nowait) as nc:
        js = nc.jetstream()
        source: Any
        if kind == "watch":
            bucket = await js.create_bucket(name, storage="memory")
            source = bucket.watch(callback=call)
            await bucket.put("k", b"x")
        else:
            await js.create_stream(name=name, subjects=[name], storage="memory")
            if kind == "subscribe":
                source = nc.subscribe(name, callback=call)
            elif kind == "consume":
                source = (await js.stream(name).create_consumer(name="c")).consume(callback=call)
            else:
                source = js.stream(name).ordered(callback=call)
            await js.publish(name, b"x")
        async with asyncio.timeout(20):
            await called.wait()
            assert "its task was cancelled" in str(await reported.get())
        assert not source.active
    assert reported.empty()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # unclosed
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_end_of_the_loop_is_no_error_of_a_callback(
    shared_server: NatsServer, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[JetsparkError] = []

    async def main() -> None:
        nc = await connect(shared_server.url, error_callback=reported.append)
        nc.subscribe(unique("C"), callback=print)
        await nc.flush()

    asyncio.run(main())
    gc.collect()  # what is left open, within this test
    assert reported == []
    assert "cancelled" not in caplog.text
