"""Streams that are filled, consumers that are read, and a server of one's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest
from tests.conftest import Unique
from tests.jetstream.eventually import eventually
from tests.jetstream.scripted import ScriptedConsumer

from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import JsMsg, PullConsumer
from jetspark.jetstream.context import JetStreamContext
from jetspark.server import NatsServer

Scripted = Callable[..., ScriptedConsumer]


async def fill(js: JetStream, stream: str, count: int, size: int = 0) -> None:
    """Payloads are the numbers from 0, and blanks up to a size."""
    async with js.publisher() as publisher:
        for number in range(count):
            await publisher.send(f"{stream}.a", (b"%d" % number).ljust(size))


async def fill_thirds(js: JetStream, stream: str, count: int, **options: object) -> None:
    """Payloads are the sequences of a new stream; subjects end in the sequence modulo 3."""
    async with js.publisher() as publisher:
        for seq in range(1, count + 1):
            await publisher.send(f"{stream}.{seq % 3}", b"%d" % seq, **options)  # type: ignore[arg-type]


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
        return (await js.stream_info(stream)).state.messages == count

    await eventually(so_many)


async def has_consumers(js: JetStreamContext, stream: str, *names: str) -> None:
    """Returns when these are all that the stream has."""

    async def these() -> bool:
        return await js.consumer_names(stream).all() == [*names]

    await eventually(these)


@pytest.fixture
async def consumer(js: JetStream, stream: str) -> PullConsumer:
    return await js.create_consumer(stream, durable_name="c")


@pytest.fixture
def scripted(nc: Client, shared_server: NatsServer, unique: Unique) -> Scripted:
    return lambda *scripts: ScriptedConsumer(nc, shared_server.url, unique("api"), *scripts)


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
