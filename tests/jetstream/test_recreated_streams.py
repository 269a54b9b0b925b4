"""Readers of a stream that becomes another one, or an older copy of itself: never in silence."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeServer, Unique

import jetspark
from jetspark.documents.streams import StreamInfo
from jetspark.errors import DataLossError, JetsparkError, StreamRecreatedError
from jetspark.full_client import Client, JetStream
from jetspark.jetstream import ordered
from jetspark.jetstream.stream_requests import stream_info
from jetspark.server import NatsServer

_SECONDS = 20.0
_OLD, _NEW = 3, 5

Reading = Callable[[JetStream, str], AsyncIterator[None]]


class Past:
    """A server whose store, as it was when it was copied, can come back."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self.server, self.store, self.copied = server, folder / "store", folder / "copy"

    def copy(self) -> None:
        self.server.stop()
        shutil.copytree(self.store, self.copied)
        self.server.start()

    def come_back(self) -> None:
        self.server.stop()
        shutil.rmtree(self.store)
        self.copied.rename(self.store)
        self.server.start()


@pytest.fixture
def past(make_server: MakeServer, tmp_path: Path) -> Past:
    return Past(make_server(store_dir=tmp_path / "store"), tmp_path)


async def _read_ordered(js: JetStream, name: str) -> AsyncIterator[None]:
    async for _ in js.stream(name).ordered():
        yield


async def _read_empty_ordered(js: JetStream, name: str) -> AsyncIterator[None]:
    async with js.stream(name).ordered(subjects=f"{name}.none") as messages:
        with pytest.raises(TimeoutError):
            await messages.next(timeout=0.5)
        for _ in range(_OLD):
            yield
        async for _ in messages:
            yield


async def _watch_bucket(js: JetStream, name: str) -> AsyncIterator[None]:
    async for entry in (await js.bucket(name)).watch():
        if entry is not None:
            yield


async def _watch_changes(js: JetStream, name: str) -> AsyncIterator[None]:
    async with (await js.bucket(name)).watch(updates_only=True) as watcher:
        assert await watcher.next(timeout=_SECONDS) is None
        for _ in range(_OLD):
            yield
        async for _ in watcher:
            yield


async def _live(js: JetStream, name: str) -> AsyncIterator[None]:
    async with (await js.bucket(name)).live() as live:
        for _ in live:
            yield
        while True:
            await asyncio.sleep(0.05)
            len(live)


async def _watch_objects(js: JetStream, name: str) -> AsyncIterator[None]:
    async for info in (await js.object_store(name)).watch():
        if info is not None:
            yield


async def _make(js: JetStream, name: str, count: int) -> None:
    await js.create_stream(name=name, subjects=[f"{name}.>"])
    await js.create_bucket(name)
    await js.create_object_store(name)
    await _fill(js, name, range(count))


async def _fill(js: JetStream, name: str, numbers: range) -> None:
    bucket, store = await js.bucket(name), await js.object_store(name)
    for number in numbers:
        await js.publish(f"{name}.some", b"x")
        await bucket.put(f"key{number}", b"x")
        await store.put(f"object{number}", b"x")


async def _delete(js: JetStream, name: str) -> None:
    await js.delete_stream(name)
    await js.delete_bucket(name)
    await js.delete_object_store(name)


@pytest.mark.parametrize(
    "reading",
    [_read_ordered, _read_empty_ordered, _watch_bucket, _watch_changes, _live, _watch_objects],
)
@pytest.mark.parametrize(
    "count", [_OLD, *(pytest.param(count, marks=pytest.mark.full) for count in (1, _NEW))]
)
async def test_another_stream_of_the_name_ends_every_reader(
    js: JetStream, unique: Unique, gate: asyncio.Event, reading: Reading, count: int
) -> None:
    name = unique("AGAIN")
    await _make(js, name, _OLD)
    reader = reading(js, name)
    async with asyncio.timeout(_SECONDS):
        for _ in range(_OLD):
            await anext(reader)
        gate.clear()
        await _delete(js, name)
        await _make(js, name, count)
        gate.set()
        with pytest.raises(StreamRecreatedError, match=name):
            await anext(reader)
    await _delete(js, name)


@pytest.mark.parametrize("replicas", [1, 3])
async def test_an_older_copy_of_a_stream_ends_its_readers(
    past: Past, monkeypatch: pytest.MonkeyPatch, replicas: int
) -> None:
    """The only replica has what there is; with others, a new leader may be behind for a while."""
    looks = 0

    async def with_replicas(*arguments: Any) -> StreamInfo:
        nonlocal looks
        looks += 1
        info = await stream_info(*arguments)
        return info.replace(config=info.config.replace(num_replicas=replicas))

    monkeypatch.setattr(ordered, "stream_info", with_replicas)
    if replicas > 1:
        monkeypatch.setattr(ordered, "LAG_SECONDS", 1.0)

    async def fill(nc: Client, count: int) -> None:
        for _ in range(count):
            await nc.jetstream().publish("s", b"x")

    async with jetspark.connect(past.server.url) as nc:
        await nc.jetstream().create_stream(name="S", subjects=["s"])
        await fill(nc, 3)
    past.copy()
    reported: list[JetsparkError] = []
    async with jetspark.connect(past.server.url) as nc:
        monkeypatch.setattr(nc, "report", reported.append)
        await fill(nc, 7)
        async with nc.jetstream().stream("S").ordered() as messages, asyncio.timeout(_SECONDS):
            for _ in range(10):
                await messages.next()
            looks = 0
            past.come_back()
            with pytest.raises(DataLossError) as caught:
                await messages.next()
    assert (caught.value.first, caught.value.last) == (4, 10)
    # At once, while it waits, and once.
    assert sum(isinstance(one, DataLossError) for one in reported) == (replicas > 1)
    assert looks == 1 if replicas == 1 else looks > 2


@pytest.mark.parametrize("reading", [_read_ordered, _watch_bucket, _live, _watch_objects])
async def test_an_older_copy_that_was_written_on_ends_every_reader(
    past: Past, gate: asyncio.Event, reading: Reading
) -> None:
    async def write(begin: int, end: int) -> None:
        async with jetspark.connect(past.server.url) as other:
            await _fill(other.jetstream(), "S", range(begin, end))

    async with jetspark.connect(past.server.url) as nc:
        await _make(nc.jetstream(), "S", 1)
    past.copy()
    await write(1, _OLD)
    async with jetspark.connect(past.server.url, reconnect_wait=0.05) as nc:
        reader = reading(nc.jetstream(), "S")
        async with asyncio.timeout(_SECONDS):
            for _ in range(_OLD):
                await anext(reader)
            gate.clear()
            past.come_back()
            await write(_OLD, _OLD + _NEW)
            gate.set()
            with pytest.raises(DataLossError, match="another copy"):
                await anext(reader)


@pytest.mark.parametrize("removed", [True, False])
async def test_the_same_stream_is_read_on_also_where_the_last_message_was_removed(
    js: JetStream, stream: str, removed: bool
) -> None:
    for number in range(3):
        await js.publish(f"{stream}.a", b"%d" % number)
    async with js.stream(stream).ordered() as messages, asyncio.timeout(_SECONDS):
        assert [(await messages.next()).data for _ in range(3)] == [b"0", b"1", b"2"]
        await js.publish(f"{stream}.a", b"3")
        if removed:
            await js.stream(stream).delete_msg(3)
        await js.client.force_reconnect()
        assert (await messages.next()).data == b"3"
        assert messages.error is None


_ACCOUNTS = """
accounts {
  OWN {
    jetstream: enabled
    users: [
      { user: own, password: p }
      { user: blind, password: p, permissions { publish { deny: "$JS.API.STREAM.INFO.>" } } }
      { user: half, password: p, permissions { publish { deny: "$JS.API.STREAM.MSG.GET.>" } } }
    ]
    exports: [{ service: "$JS.API.CONSUMER.>", response_type: stream }]
  }
  OTHER {
    users: [{ user: other, password: p }]
    imports: [
      { service: { account: OWN, subject: "$JS.API.CONSUMER.>" }, to: "OWN.API.CONSUMER.>" }
    ]
  }
}
"""


@pytest.mark.parametrize(
    ("user", "prefix"), [("blind", None), ("half", None), ("other", "OWN.API")]
)
async def test_who_cannot_ask_for_the_streams_info_goes_on_reading(
    make_server: MakeServer, user: str, prefix: str | None
) -> None:
    server = make_server(_ACCOUNTS)
    async with (
        jetspark.connect(server.url, user="own", password="p") as owner,
        jetspark.connect(server.url, user=user, password="p") as nc,
        asyncio.timeout(_SECONDS),
    ):
        own = owner.jetstream()
        await own.create_stream(name="S", subjects=["s"])
        await own.publish("s", b"1")
        async with nc.jetstream(api_prefix=prefix).stream("S").ordered(heartbeat=0.5) as messages:
            assert (await messages.next()).data == b"1"
            await own.stream("S").delete_consumer(messages.name)
            await own.publish("s", b"2")
            assert (await messages.next()).data == b"2"
