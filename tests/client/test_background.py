"""What a task behind a reader raises unexpectedly: the reader gets it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conftest import Unique
from tests.jetstream.scripted import ScriptedConsumer

from jetspark import blocking
from jetspark.errors import JetsparkError
from jetspark.full_client import Client, JetStream
from jetspark.jetstream import consume
from jetspark.server import NatsServer

pytestmark = pytest.mark.server

WORDS = "Surprise"


class Surprise(Exception):
    """What nobody expects."""


async def surprise(*_args: object, **_options: object) -> Any:
    raise Surprise


def surprised(*_args: object, **_options: object) -> Any:
    raise Surprise


@pytest.fixture
def no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetspark.jetstream.ordered.create_ephemeral", surprise)


@pytest.mark.usefixtures("no_consumer")
async def test_bug_while_creating_ends_the_iteration(js: JetStream, stream: str) -> None:
    with pytest.raises(JetsparkError, match=WORDS) as raised:
        async with asyncio.timeout(20):
            async for _ in js.stream(stream).ordered():
                pass
    assert isinstance(raised.value.__cause__, Surprise)
    with pytest.raises(JetsparkError, match=WORDS):
        await js.stream(stream).ordered().next(20)


@pytest.mark.usefixtures("no_consumer")
async def test_bug_in_creating_it_ends_its_callback(js: JetStream, nc: Client, stream: str) -> None:
    messages = js.stream(stream).ordered(callback=lambda _: None)
    task = messages.callback_task
    assert task is not None
    await asyncio.wait_for(task, 20)
    assert not messages.active
    assert WORDS in str(nc.last_error)


@pytest.mark.usefixtures("no_consumer")
async def test_bug_in_the_background_ends_watch_and_live(js: JetStream, unique: Unique) -> None:
    bucket = await js.create_bucket(unique("b"), storage="memory")
    await bucket.put("a", b"x")
    with pytest.raises(JetsparkError, match=WORDS):
        await bucket.watch().next(20)
    with pytest.raises(JetsparkError, match=WORDS):
        async with asyncio.timeout(20), bucket.live():
            pass


@pytest.mark.usefixtures("no_consumer")
async def test_recreating_an_ordered_consumer(
    js: JetStream, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    await js.publish(f"{stream}.a", b"x")
    async with js.stream(stream).ordered() as messages:
        await messages.next(20)
        monkeypatch.setattr(messages, "_create", surprise)
        await js.stream(stream).delete_consumer(messages.name)
        with pytest.raises(JetsparkError, match=WORDS):
            await messages.next(60)


async def test_bug_while_consume_waits_for_a_leader_ends_it(
    nc: Client, shared_server: NatsServer, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "wait_for_leader", surprise)
    async with (
        ScriptedConsumer(nc, shared_server.url, unique("api"), ["503"]) as peer,
        peer.consumer.consume() as messages,
    ):
        with pytest.raises(JetsparkError, match=WORDS):
            await messages.next(20)


async def test_bug_while_taking_a_message_ends_the_callback(
    nc: Client, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = nc.subscribe(unique("a"), callback=lambda _: None)
    monkeypatch.setattr(subscription, "_fill", surprise)
    task = subscription.callback_task
    assert task is not None
    await asyncio.wait({task}, timeout=20)
    await nc.flush()
    assert not subscription.active
    assert WORDS in str(nc.last_error)


@pytest.mark.usefixtures("no_consumer")
def test_bug_ends_a_blocking_ordered_consumer(shared_server: NatsServer, unique: Unique) -> None:
    with blocking.connect(shared_server.url) as nc:
        js, name = nc.jetstream(), unique("S")
        js.create_stream(name=name, subjects=[name], storage="memory")
        with pytest.raises(JetsparkError, match=WORDS):
            js.stream(name).ordered().next(20)
        with pytest.raises(JetsparkError, match=WORDS):
            next(iter(js.stream(name).ordered()))
