"""Streams that are filled, consumers that are read, and a server of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest
from tests.conftest import Unique
from tests.jetstream.eventually import eventually
from tests.jetstream.scripted import ScriptedConsumer

from jetspark.client.messages import Message
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import JsMsg, PullConsumer, ordered
from jetspark.jetstream.consumers import create_ephemeral
from jetspark.jetstream.context import JetStreamContext
from jetspark.server import NatsServer
from jetspark.wire.documents import ServerInfo

Scripted = Callable[..., ScriptedConsumer]
ServerIs = Callable[[str], None]


async def fill(js: JetStream, stream: str, count: int, size: int = 0) -> None:
    """Payloads are the numbers from 0, and blanks up to a size."""
    async with js.publisher() as publisher:
        for number in range(count):
            await publisher.publish(f"{stream}.a", (b"%d" % number).ljust(size))


async def fill_thirds(js: JetStream, stream: str, count: int, **options: object) -> None:
    """Payloads are the sequences of a new stream; subjects end in the sequence modulo 3."""
    async with js.publisher() as publisher:
        for seq in range(1, count + 1):
            await publisher.publish(f"{stream}.{seq % 3}", b"%d" % seq, **options)  # type: ignore[arg-type]


def routes(nc: Client) -> int:
    """How many subscriptions and listeners a client has."""
    return len(nc.publishing.link.routes)


def numbers(messages: list[JsMsg]) -> list[int]:
    """Their payloads."""
    return [int(msg.data) for msg in messages]


async def waits(consumer: PullConsumer, count: int = 1) -> None:
    """Returns when so many pull requests wait at the server."""

    async def so_many() -> bool:
        return (await consumer.info()).num_waiting == count

    await eventually(so_many)


async def holds(js: JetStreamContext, stream: str, count: int) -> None:
    """Returns when the stream has so many messages."""

    async def so_many() -> bool:
        return (await js.stream(stream).info()).state.messages == count

    await eventually(so_many)


async def has_consumers(js: JetStreamContext, stream: str, *names: str) -> None:
    """Returns when these are all that the stream has."""

    async def these() -> bool:
        return await js.stream(stream).consumer_names().all() == [*names]

    await eventually(these)


@pytest.fixture
async def consumer(js: JetStream, stream: str) -> PullConsumer:
    return await js.stream(stream).create_consumer(durable_name="c")


@pytest.fixture
def scripted(nc: Client, shared_server: NatsServer, unique: Unique) -> Scripted:
    return lambda *scripts: ScriptedConsumer(nc, shared_server.url, unique("api"), *scripts)


@pytest.fixture
def server_is(nc: Client, monkeypatch: pytest.MonkeyPatch) -> ServerIs:
    """`server_is("2.10.26")`: from now on `nc` takes its server for one of this version."""

    def pretend(version: str) -> None:
        info = ServerInfo(server_id="x", version=version, headers=True, max_payload=1_000_000)
        monkeypatch.setattr(nc.publishing.link, "info", info)

    return pretend


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Ordered consumers are created while this is set."""
    open_ = asyncio.Event()
    open_.set()

    async def create(*arguments: Any) -> Any:
        await open_.wait()
        return await create_ephemeral(*arguments)

    monkeypatch.setattr(ordered, "create_ephemeral", create)
    return open_


class Ordinary(NamedTuple):
    """A stream that knows neither batches nor counters: its subject, and what it has stored."""

    subject: str
    taken: list[Message]


@pytest.fixture
async def ordinary(nc: Client, unique: Unique) -> Ordinary:
    stream = Ordinary(unique("ordinary"), [])

    async def store(msg: Message) -> None:
        stream.taken.append(msg)
        await msg.respond(b'{"stream":"S","seq":5}')

    nc.subscribe(stream.subject, callback=store)
    return stream


class Own(NamedTuple):
    server: NatsServer
    nc: Client
    js: JetStream


@pytest.fixture
async def own(nats_server: NatsServer) -> AsyncIterator[Own]:
    """A server of the test's own, and a client that is soon back; S is a stream, s its subject."""
    async with connect(nats_server.url, reconnect_wait=0.05) as nc:
        js = nc.jetstream(timeout=30)
        await js.create_stream(name="S", subjects=["s"])
        yield Own(nats_server, nc, js)
