"""Callbacks of the blocking client are plain functions; what is not is told, and loses nothing."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from tests.conftest import Unique

from jetspark.blocking import Client, connect
from jetspark.connection.events import Closed, Connected
from jetspark.connection.nkeys import KeyKind, KeyPair
from jetspark.errors import ConfigError, JetsparkError, ServiceError
from jetspark.server import NatsServer

CALLED: list[object] = []


@pytest.fixture(autouse=True)
def nothing_called() -> Iterator[None]:
    CALLED.clear()
    yield
    assert CALLED == []


async def later(*values: object) -> None:
    CALLED.append(values)


class Later:
    async def __call__(self, value: object) -> None:
        CALLED.append(value)


def counted(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(function)
    def call(*values: object) -> Awaitable[None]:
        return function(*values)

    return call


def lines(value: object) -> Iterator[None]:
    CALLED.append(value)
    yield


SHOWN = [later, functools.partial(later, 1), Later(), lines]
HIDDEN = [lambda value: later(value), counted(later), lambda value: lines(value)]


def calls_with_a_callback(nc: Client, name: str, folder: Path) -> dict[str, Callable[[Any], Any]]:
    js = nc.jetstream()
    js.create_stream(name=name, subjects=[f"{name}.>"])
    bucket = js.create_bucket(f"{name}-bucket")
    keys = KeyPair.new(KeyKind.ACCOUNT)
    push = js.stream(name).create_push_consumer(deliver_subject="push")
    service = nc.add_service(name, "1.0.0")
    return {
        "connect event_callback": lambda callback: connect(event_callback=callback),
        "connect error_callback": lambda callback: connect(error_callback=callback),
        "subscribe": lambda callback: nc.subscribe("a", callback=callback),
        "consume": lambda callback: js.stream(name).create_consumer().consume(callback=callback),
        "push": lambda callback: push.subscribe(callback=callback),
        "ordered": lambda callback: js.stream(name).ordered(callback=callback),
        "events": lambda callback: js.events(callback=callback),
        "watch": lambda callback: bucket.watch(callback=callback),
        "live": lambda callback: bucket.live(on_change=callback),
        "election": lambda callback: bucket.election("key", callback=callback),
        "latencies": lambda callback: nc.services().latencies("a", callback=callback),
        "backup": lambda callback: js.backup_stream(name, folder / "b", progress=callback),
        "restore": lambda callback: js.restore_stream(folder / "b", progress=callback),
        "add_endpoint": lambda callback: service.add_endpoint("a", callback),
        "endpoint": lambda callback: service.endpoint("b")(callback),
        "auth_callout": lambda callback: nc.auth_callout(callback, signer=keys),
    }


def test_every_call_refuses_what_is_async(nc: Client, unique: Unique, tmp_path: Path) -> None:
    for name, call in calls_with_a_callback(nc, unique("S"), tmp_path).items():
        for callback in SHOWN:
            with pytest.raises(ConfigError, match="plain functions"):
                pytest.fail(f"{name} took {callback}: {call(callback)}")


@pytest.fixture
def reported() -> Queue[JetsparkError]:
    return Queue()


@pytest.fixture
def told(shared_server: NatsServer, reported: Queue[JetsparkError]) -> Iterator[Client]:
    with connect(shared_server.url, error_callback=reported.put) as nc:
        yield nc


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("callback", HIDDEN)
def test_each_message_that_such_a_callback_did_not_handle_is_reported(
    told: Client, reported: Queue[JetsparkError], callback: Callable[..., Any], unique: Unique
) -> None:
    js, name = told.jetstream(), unique("S")
    js.create_stream(name=name, subjects=[name])
    bucket = js.create_bucket(f"{name}-bucket")
    core = told.subscribe(f"{name}.core", callback=callback)
    consumer = js.stream(name).create_consumer(ack_wait=60)
    begins: list[Callable[[], Any]] = [
        lambda: told.publish(f"{name}.core"),
        lambda: (js.publish(name), consumer.consume(callback=callback)),
        lambda: (bucket.put("a"), bucket.watch(callback=callback)),
        lambda: bucket.live(on_change=callback).__enter__(),
    ]
    for begin in begins:
        begin()
        error = reported.get(timeout=30)
        assert isinstance(error.__cause__, ConfigError)
        assert "plain functions" in str(error.__cause__)
        assert "raised" in str(error)
    assert consumer.info().num_ack_pending == 1  # it comes again
    core.unsubscribe()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("callback", HIDDEN[:2])
def test_a_request_to_such_a_handler_is_answered_with_an_error(
    told: Client, callback: Callable[..., Any], unique: Unique
) -> None:
    service = told.add_service(unique("S"), "1.0.0")
    service.add_endpoint("a", callback, subject=unique("s"))
    with pytest.raises(ServiceError):
        told.services().request(service.info().endpoints[0].subject, timeout=20)
    service.stop()


def test_progress_that_is_async_ends_the_backup(nc: Client, unique: Unique, tmp_path: Path) -> None:
    js, name = nc.jetstream(), unique("S")
    js.create_stream(name=name, subjects=[name])
    js.publish(name)
    with pytest.raises(ConfigError, match="plain functions"):
        js.backup_stream(name, tmp_path / "b", progress=lambda step: later(step))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_what_an_event_callback_raises_reaches_the_error_callback(
    shared_server: NatsServer, reported: Queue[JetsparkError]
) -> None:
    def on_event(event: object) -> None:
        raise ValueError(type(event).__name__)

    nc = connect(shared_server.url, event_callback=on_event, error_callback=reported.put)
    first = reported.get(timeout=30)
    nc.close()
    last = reported.get(timeout=30)
    assert [str(one.__cause__) for one in (first, last)] == [Connected.__name__, Closed.__name__]


async def test_asyncio_client_tells_of_generator(shared_server: NatsServer, unique: Unique) -> None:
    import jetspark

    errors: asyncio.Queue[JetsparkError] = asyncio.Queue()
    async with jetspark.connect(shared_server.url, error_callback=errors.put_nowait) as nc:
        subject = unique("a")
        nc.subscribe(subject, callback=lines)  # type: ignore[arg-type]
        await nc.publish(subject)
        assert "generator" in str(await asyncio.wait_for(errors.get(), 20))


async def test_error_callback_is_told_what_event_callbacks_raise(shared_server: NatsServer) -> None:
    import jetspark

    errors: asyncio.Queue[JetsparkError] = asyncio.Queue()

    async def on_event(event: object) -> None:
        raise ValueError(type(event).__name__)

    async with jetspark.connect(
        shared_server.url, event_callback=on_event, error_callback=errors.put_nowait
    ):
        assert str((await asyncio.wait_for(errors.get(), 20)).__cause__) == "Connected"
    assert str((await asyncio.wait_for(errors.get(), 20)).__cause__) == "Closed"
