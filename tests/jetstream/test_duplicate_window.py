"""A publisher never sends again what its stream may store twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conftest import MakeStream, Unique
from tests.support.frame_proxy import FrameProxy

import jetspark
from jetspark import blocking
from jetspark.errors import MayBeStoredError, PublishFailedError
from jetspark.full_client import JetStream
from jetspark.server import NatsServer


class LateAcks(FrameProxy):
    """Acks come `seconds` later."""

    seconds = 0.0

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(65536):
            is_ack = b'"seq":' in data and b'"state"' not in data
            loop.call_later(self.seconds if is_ack else 0, writer.write, data)


@asynccontextmanager
async def late(url: str) -> AsyncIterator[tuple[LateAcks, JetStream]]:
    """What is between, and a client behind it."""
    port = int(url.rpartition(":")[2])
    async with LateAcks(port) as between, jetspark.connect(between.url) as nc:
        yield between, nc.jetstream(timeout=5)


@pytest.mark.parametrize("client", ["asyncio", "blocking"])
async def test_a_message_is_not_sent_again_once_its_id_may_be_forgotten(
    js: JetStream, shared_server: NatsServer, make_stream: MakeStream, client: str
) -> None:
    name = await make_stream(duplicate_window=1.0)
    options: dict[str, Any] = {"timeout": 0.3, "retry_for": 20}
    async with late(shared_server.url) as (between, far):
        if client == "asyncio":
            failed = await published(far, name, options, between)
        else:
            failed = await asyncio.to_thread(published_blocking, name, options, between)
    assert (await js.stream(name).info()).state.messages == 20
    error = failed[0].error
    assert isinstance(error, MayBeStoredError)
    assert (error.subject, error.msg_id, error.stream) == (f"{name}.a", "0", name)
    assert error.duplicate_window == 1.0


async def published(js: JetStream, name: str, options: Any, between: LateAcks) -> Any:
    between.seconds = 2.5  # two windows
    publisher = js.publisher(**options)
    with pytest.raises(PublishFailedError) as raised:
        async with publisher:
            for number in range(20):
                await publisher.publish(f"{name}.a", msg_id=str(number))
    return raised.value.failures


def published_blocking(name: str, options: Any, between: LateAcks) -> Any:
    with blocking.connect(between.url) as nc:
        between.seconds = 2.5
        with (
            pytest.raises(PublishFailedError) as raised,
            nc.jetstream(timeout=5).publisher(**options) as publisher,
        ):
            for number in range(20):
                publisher.publish(f"{name}.a", msg_id=str(number))
        return raised.value.failures


async def test_within_the_window_it_is_sent_again_and_stored_once(
    js: JetStream, shared_server: NatsServer, stream: str
) -> None:
    async with late(shared_server.url) as (between, far):
        between.seconds = 0.6
        async with far.publisher(timeout=0.3, retry_for=20) as publisher:
            for number in range(20):
                await publisher.publish(f"{stream}.a", msg_id=str(number))
            await asyncio.sleep(1)
            between.seconds = 0
    assert (await js.stream(stream).info()).state.messages == 20
    assert publisher.acked == 20


async def test_a_window_that_was_made_smaller_counts(
    js: JetStream, shared_server: NatsServer, stream: str
) -> None:
    async with late(shared_server.url) as (between, far):
        with pytest.raises(PublishFailedError) as raised:
            async with far.publisher(timeout=0.3, retry_for=20) as publisher:
                await publisher.publish(f"{stream}.a", msg_id="first")
                await publisher.flush()
                between.seconds = 2.5
                await js.stream(stream).update(duplicate_window=1)
                await publisher.publish(f"{stream}.a", msg_id="second")
    assert [type(one.error) for one in raised.value.failures] == [MayBeStoredError]
    assert (await js.stream(stream).info()).state.messages == 2


async def test_without_the_window_it_is_not_sent_again_unless_it_is_given(
    nc: jetspark.Client, js: JetStream, unique: Unique
) -> None:
    subject, came = unique("elsewhere"), list[bytes]()  # no stream of this account has it
    nc.subscribe(subject, callback=lambda message: came.append(message.data))
    for window in (None, 120):
        came.clear()
        with pytest.raises(PublishFailedError) as raised:
            async with js.publisher(timeout=0.2, retry_for=1, duplicate_window=window) as publisher:
                await publisher.publish(subject, msg_id="1")
        assert (len(came) >= 2) == (window is not None)
        unread = isinstance(raised.value.failures[0].error, MayBeStoredError)
        assert unread == (window is None)
