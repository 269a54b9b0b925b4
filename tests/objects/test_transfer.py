"""Transfers that are broken off, disturbed, or meet each other: whole objects or nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import NeedsServer, Unique
from tests.jetstream.conftest import holds
from tests.jetstream.eventually import eventually
from tests.objects.conftest import messages
from tests.support.cluster import Cluster
from tests.support.frame_proxy import FrameProxy

from jetspark import errors
from jetspark.connection.events import Disconnected
from jetspark.full_client import Client, JetStream, connect
from jetspark.objects import ObjectInfo, ObjectStore, ObjectStoreConfig
from jetspark.objects import writer as writer_module
from jetspark.objects.info import new_store
from jetspark.objects.reader import MetaStore
from jetspark.objects.store import CHUNK_SIZE
from jetspark.objects.writer import SINGLE_CHUNKS
from jetspark.server import NatsServer

BIG = os.urandom(4_000_000)
_NO_OPTIONS = ObjectStoreConfig()


class Stopper:
    """A source of BIG that gives half of it, and then waits until `goes_on`."""

    def __init__(self) -> None:
        self.half_given = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        half = len(BIG) // 2
        yield BIG[:half]
        self.half_given.set()
        await self.goes_on.wait()
        yield BIG[half:]


async def half(store: ObjectStore, source: Stopper, **options: Any) -> asyncio.Task[ObjectInfo]:
    """A put of "a" that has got a half of the source."""
    putting = asyncio.create_task(store.put("a", source, **options))
    await source.half_given.wait()
    return putting


# -- broken off ----------------------------------------------------------------------------------


@pytest.mark.parametrize("was_there", [False, True])
async def test_a_put_that_ends_early_changes_nothing(store: ObjectStore, was_there: bool) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield BIG
        raise ZeroDivisionError

    if was_there:
        await store.put("a", b"old")
    before = await messages(store)
    putting = await half(store, Stopper())
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    with pytest.raises(ZeroDivisionError):
        await store.put("a", failing())
    assert await messages(store) == before
    if was_there:
        assert await store.get_bytes("a") == b"old"


async def test_the_old_object_is_read_until_the_new_one_is_complete(store: ObjectStore) -> None:
    await store.put("a", b"old")
    source = Stopper()
    putting = await half(store, source)
    assert await store.get_bytes("a") == b"old"
    source.goes_on.set()
    await putting
    assert await store.get_bytes("a") == BIG


async def test_a_full_store_keeps_its_objects(js: JetStream, unique: Unique) -> None:
    store = await js.create_object_store(unique("F"), storage="memory", max_bytes=1_000_000)
    await store.put("a", b"old")
    async with asyncio.timeout(30):
        with pytest.raises(errors.APIError, match="maximum bytes"):
            await store.put("a", BIG)
    assert await store.get_bytes("a") == b"old"
    assert await messages(store) == 2
    await js.delete_object_store(store.name)


async def test_closing_the_client_ends_a_put(shared_server: NatsServer, store: ObjectStore) -> None:
    async with connect(shared_server.url) as nc:
        theirs = await nc.jetstream().object_store(store.name)
        source = Stopper()
        putting = await half(theirs, source)
    source.goes_on.set()
    with pytest.raises(errors.ConnectionClosedError):
        await putting
    with pytest.raises(errors.ObjectNotFoundError):
        await store.get("a")


async def test_deleting_the_store_ends_both(nc: Client, store: ObjectStore, js: JetStream) -> None:
    store = await nc.jetstream(timeout=3).object_store(store.name)  # for a chunk without ack
    await store.put("b", BIG * 4)
    reader = await store.get("b")
    await reader.next_chunks()
    source = Stopper()
    putting = await half(store, source)
    await js.delete_object_store(store.name)
    source.goes_on.set()
    with pytest.raises(errors.ObjectStoreNotFoundError, match=store.name):
        await putting
    with pytest.raises(errors.ObjectStoreNotFoundError, match=store.name):
        while await reader.next_chunks():
            pass


# -- disturbed -----------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("how", ["reconnect", "restart"])
async def test_both_survive_a_lost_link(nats_server: NatsServer, how: str, tmp_path: Path) -> None:
    async with connect(nats_server.url, reconnect_wait=0.05) as nc:
        store = await nc.jetstream().create_object_store("F")
        source = Stopper()

        async def disturb() -> None:
            if how == "restart":
                await asyncio.to_thread(nats_server.kill)
                await asyncio.to_thread(nats_server.start)
            else:
                await nc.force_reconnect()

        putting = await half(store, source, chunk_size=10_000)
        await disturb()
        source.goes_on.set()
        assert (await putting).chunks == 400
        assert await messages(store) == 401
        await store.put("b", BIG * 4)
        reader = await store.get("b")
        content = b"".join(await reader.next_chunks())
        await disturb()
        async for chunk in reader:
            content += chunk
        assert content == BIG * 4
        assert await store.get_bytes("a") == BIG


async def test_put_and_get_survive_leader_changes(nats_cluster: Cluster, unique: Unique) -> None:
    """Of the stream with three replicas; both ways are busy when it changes."""
    async with connect(nats_cluster.urls) as nc:
        js = nc.jetstream(timeout=3)
        store = await js.create_object_store(unique("F"), replicas=3, storage="memory")

        async def change() -> None:
            await js.stream(store.stream).step_down_leader()

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(BIG), 50_000):
                if at in (1_000_000, 2_000_000):
                    changes.append(asyncio.create_task(change()))
                yield BIG[at : at + 50_000]

        changes: list[asyncio.Task[None]] = []
        info = await store.put("a", pieces(), chunk_size=10_000)
        assert await messages(store) == info.chunks + 1
        reader = await store.get("a")
        content = b"".join(await reader.next_chunks())
        changes.append(asyncio.create_task(change()))
        content += await reader.all()
        assert content == BIG
        await asyncio.gather(*changes, return_exceptions=True)
        # Servers do not answer this for seconds after a change of leader, 2.9 especially.
        with suppress(errors.RequestTimeoutError):
            await js.delete_object_store(store.name)


async def test_a_put_waits_while_the_link_is_down(nats_server: NatsServer) -> None:
    """More than the client keeps for the next link."""
    async with connect(nats_server.url, reconnect_wait=0.05, pending_size=1_000_000) as nc:
        store = await nc.jetstream().create_object_store("F")
        source = Stopper()
        putting = await half(store, source)
        await holds(nc.jetstream(), store.stream, len(BIG) // 2 // CHUNK_SIZE)
        await nc.flush()  # the last ack, too
        events = nc.events()
        nats_server.kill()
        assert isinstance(await anext(events), Disconnected)
        source.goes_on.set()
        await asyncio.sleep(0.5)  # nothing tells when it has filled what there is
        assert not putting.done()
        await asyncio.to_thread(nats_server.start)
        await putting
        assert await store.get_bytes("a") == BIG


class Losing:
    """Loses the acks of what is published, or the message itself."""

    def __init__(self, js: JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
        self.acks = self.messages = 0
        self._publish = js.publish
        monkeypatch.setattr(js, "publish", self.publish)

    async def publish(self, *args: Any, **kwargs: Any) -> Any:
        if self.messages:
            self.messages -= 1
            raise errors.RequestTimeoutError("The message was lost.")
        ack = await self._publish(*args, **kwargs)
        if self.acks:
            self.acks -= 1
            raise errors.RequestTimeoutError("The ack was lost.")
        return ack


@pytest.mark.parametrize(("lost", "unacked"), [(1, 0), (0, 1), (2, 1)])
async def test_a_lost_ack_of_a_put_stores_nothing_twice(
    store: ObjectStore, js: JetStream, monkeypatch: pytest.MonkeyPatch, lost: int, unacked: int
) -> None:
    await store.put("a", b"old")
    losing = Losing(js, monkeypatch)
    losing.messages, losing.acks = lost, unacked
    await store.put("a", b"new")
    assert await store.get_bytes("a") == b"new"
    assert await messages(store) == 2
    losing.messages, losing.acks = lost, unacked
    await store.delete("a")
    assert await messages(store) == 1


async def test_an_object_that_was_replaced_before_its_ack_came_is_not_made_visible_again(
    store: ObjectStore, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing = Losing(js, monkeypatch)
    publish = losing.publish
    other: list[object] = []

    async def publish_and_be_replaced(*args: Any, **kwargs: Any) -> Any:
        try:
            return await publish(*args, **kwargs)
        except errors.RequestTimeoutError:
            other.append(await store.put("a", b"other"))
            raise

    monkeypatch.setattr(js, "publish", publish_and_be_replaced)
    losing.acks = 1
    await store.put("a", b"mine")
    assert len(other) == 1
    assert await store.get_bytes("a") == b"other"
    assert await messages(store) == 2


# -- together ------------------------------------------------------------------------------------


async def test_of_many_writers_one_wins_and_readers_see_whole_objects(store: ObjectStore) -> None:
    done = asyncio.Event()
    contents = {bytes([number]) * (50_000 + number) for number in range(40)}

    async def write(mine: list[bytes]) -> None:
        for content in mine:
            await store.put("a", content, chunk_size=10_000)

    async def read() -> int:
        seen = 0
        while not done.is_set():
            assert await store.get_bytes("a") in contents
            seen += 1
        return seen

    everything = sorted(contents)
    await write(everything[:1])
    reading = [asyncio.create_task(read()) for _ in range(2)]
    await asyncio.gather(*(write(everything[at::4]) for at in range(4)))
    done.set()
    assert min(await asyncio.gather(*reading)) > 0
    assert await store.get_bytes("a") in contents
    assert await messages(store) == 7  # six chunks and their info


async def test_a_rename_loses_against_a_faster_writer(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("a", b"old" * 10, chunk_size=10)
    replace = MetaStore.replace

    async def replaced_meanwhile(self: MetaStore, *arguments: Any) -> Any:
        monkeypatch.undo()
        renamed = await replace(self, *arguments)
        await store.put("a", b"new")
        return renamed

    monkeypatch.setattr(MetaStore, "replace", replaced_meanwhile)
    with pytest.raises(errors.ObjectNotFoundError):
        await store.update_meta("a", new_name="b")
    assert await store.get_bytes("a") == b"new"
    with pytest.raises(errors.ObjectNotFoundError):
        await store.info("b")
    assert await messages(store) == 3  # the object and the mark that is left of "b"


async def test_a_late_chunk_of_an_old_link_is_noticed(store: ObjectStore, js: JetStream) -> None:
    writer = store.writer("a", chunk_size=1000)
    await writer.begin()
    await writer.write(b"x" * 2000)
    await js.publish(f"$O.{store.name}.C.{writer._info.nuid}", b"x" * 1000)
    with pytest.raises(errors.ObjectDamagedError, match="3 chunks"):
        await writer.finish()
    await writer.discard()
    assert await messages(store) == 0


async def test_chunks_without_an_ack_are_removed_and_sent_again_in_order(
    store: ObjectStore, js: JetStream
) -> None:
    writer = store.writer("a", chunk_size=1000)
    await writer.begin()
    content = os.urandom(10_000)
    await writer.write(content[:5000])
    await writer._publisher.flush()
    lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    lost.set_exception(errors.RequestTimeoutError("The ack was lost."))
    writer._sent[2] = (writer._sent[2][0], lost)
    await writer.write(content[5000:])
    await writer.finish()
    assert await store.get_bytes("a") == content
    assert await messages(store) == 11


async def test_a_get_cancelled_while_its_file_is_opened_leaves_none(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("a", b"content")
    opening, may_open = threading.Event(), threading.Event()
    open_file = os.open

    def open_slowly(path: Any, *args: Any, **options: Any) -> int:
        if Path(path).parent == tmp_path:
            opening.set()
            may_open.wait(10)
        return open_file(path, *args, **options)

    monkeypatch.setattr(os, "open", open_slowly)
    getting = asyncio.create_task(store.get_into("a", tmp_path / "a"))
    assert await asyncio.to_thread(opening.wait, 10)
    getting.cancel()
    asyncio.get_running_loop().call_later(0.1, may_open.set)
    with pytest.raises(asyncio.CancelledError):
        await getting
    assert os.listdir(tmp_path) == []


# -- fast ingest ---------------------------------------------------------------------------------


async def is_batched(js: JetStream, store: ObjectStore) -> bool:
    return bool((await js.stream(store.stream).info()).config.allow_batched)


async def test_a_store_without_fast_ingest_is_bound_to_and_takes_objects(
    js: JetStream, unique: Unique
) -> None:
    name = unique("F")
    await js.create_stream(name=f"OBJ_{name}", storage="memory", **new_store(name, _NO_OPTIONS))
    store = await js.create_object_store(name, storage="memory")
    assert not await is_batched(js, store)
    await store.put("a", BIG)
    assert await store.get_bytes("a") == BIG
    await js.delete_object_store(name)


async def test_a_full_store_refuses_a_batch(
    js: JetStream, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    store = await js.create_object_store(
        unique("F"), storage="memory", max_bytes=2_500_000, allow_batched=True
    )
    await store.put("a", b"old")
    async with asyncio.timeout(30):
        with pytest.raises(errors.APIError, match="maximum bytes"):
            await store.put("a", BIG)
    assert await messages(store) == 2
    await js.delete_object_store(store.name)


@pytest.mark.parametrize("how", ["disabled", "reconnected", "closed"])
async def test_chunks_of_a_batch_that_ends_early_are_stored_once_and_in_order(
    store: ObjectStore, js: JetStream, how: str
) -> None:
    if not await is_batched(js, store):
        pytest.skip("The server has no fast ingest.")
    writer = store.writer("a", chunk_size=10_000)
    await writer.begin()
    await writer.write(BIG[:2_000_000])
    batch = writer._batch
    assert batch is not None
    assert batch.sent == 200 - SINGLE_CHUNKS
    if how == "disabled":
        await js.stream(store.stream).update(allow_batched=False)
    elif how == "reconnected":
        await js.client.force_reconnect()
    else:
        await writer._close_batch()
    await writer.write(BIG[2_000_000:])
    info = await writer.finish()
    assert info.chunks == 400
    assert await store.get_bytes("a") == BIG
    assert await messages(store) == 401


async def test_a_batch_waits_for_a_link_only_so_long(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    monkeypatch.setattr(writer_module, "STALL_TIMEOUT", 0.5)
    options: Any = {"reconnect_wait": 0.05, "max_reconnect_attempts": -1}
    async with connect(nats_server.url, **options) as nc:
        store = await nc.jetstream(timeout=1).create_object_store("F", allow_batched=True)
        source = Stopper()
        putting = await half(store, source, chunk_size=10_000)
        await holds(nc.jetstream(), store.stream, 200)
        nats_server.kill()
        source.goes_on.set()
        async with asyncio.timeout(20):
            with pytest.raises(errors.RequestTimeoutError, match="no chunk within"):
                await putting
        await asyncio.to_thread(nats_server.start)


@pytest.mark.parametrize("end", ["kill", "pause"])
@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_put_cancelled_without_a_link_removes_its_chunks_later_or_reports_them(
    nats_server: NatsServer, end: str, *, comes_back: bool
) -> None:
    reported: list[str] = []
    options: Any = {"error_callback": lambda error: reported.append(str(error))}
    async with (
        connect(nats_server.url, reconnect_wait=0.05) as other,
        connect(nats_server.url, reconnect_wait=0.05, **options) as nc,
    ):
        store = await nc.jetstream(timeout=2).create_object_store("F")
        source = Stopper()
        putting = await half(store, source)
        seen = await other.jetstream().object_store("F")
        await eventually(lambda: messages(seen))
        await asyncio.to_thread(getattr(nats_server, end))
        putting.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await putting
        assert not any("are left" in text for text in reported)
        come_back = nats_server.start if end == "kill" else nats_server.resume
        if comes_back:
            await asyncio.to_thread(come_back)
            await holds(other.jetstream(), seen.stream, 0)
        else:
            await nc.close()
            await eventually(lambda: any("are left" in text for text in reported))
            await asyncio.to_thread(come_back)


async def test_a_put_whose_last_step_is_unknown_says_so_and_nothing_else(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[str] = []
    options: Any = {"error_callback": lambda error: reported.append(str(error))}
    async with connect(nats_server.url, **options) as nc:
        store = await nc.jetstream(timeout=1).create_object_store("F")
        writer = store.writer("a", chunk_size=1000)
        await writer.begin()
        await writer.write(bytes(5000))
        await writer._publisher.flush()
        await asyncio.to_thread(nats_server.pause)
        finishing = asyncio.create_task(writer.finish())
        await asyncio.sleep(0)
        assert writer._commit is not None
        finishing.cancel()
        await writer.discard()  # as a thread does that an interrupt took out of `finish`
        assert not reported
        await nc.close()
        await eventually(lambda: any("are left" in text for text in reported))
        await asyncio.to_thread(nats_server.resume)
    del writer, finishing
    gc.collect()
    said = next(text for text in reported if "are left" in text)
    assert said.startswith('Object "a" may be complete or not; if not, its chunks are left: ')
    assert "never retrieved" not in caplog.text


async def test_a_store_of_another_domain(on_hub: Client, on_leaf: Client, unique: Unique) -> None:
    js = on_leaf.jetstream(domain="hub")
    store = await js.create_object_store(unique("F"), storage="memory")
    await store.put("a", BIG)
    await store.update_meta("a", new_name="b")
    assert await store.get_bytes("b") == BIG
    same = await on_hub.jetstream().object_store(store.name)
    assert [info.name async for info in same.objects()] == ["b"]
    await js.delete_object_store(store.name)


async def test_a_lost_info_is_asked_again(store: ObjectStore, shared_server: NatsServer) -> None:
    async with FrameProxy(shared_server.port) as proxy, connect(proxy.url) as far:
        there = await far.jetstream(timeout=1).object_store(store.name)
        fault = proxy.arm(1, wanted=lambda frame: b"stream_msg_get_response" in frame)
        await there.put("x", b"whole")
        assert fault.hit is not None
    assert await store.get_bytes("x") == b"whole"


class Exhausted:
    """A file such as a mock whose answers are used up."""

    def write(self, data: bytes) -> None:
        raise StopIteration

    def read(self, size: int) -> bytes:
        raise StopIteration


async def test_a_file_that_raises_stop_iteration_does_not_hang(store: ObjectStore) -> None:
    await store.put("a", bytes(300_000))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(store.get_into("a", Exhausted()), 30)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(store.put("b", Exhausted()), 30)
