"""Watching: the objects that are there, one mark, and then every change."""

from __future__ import annotations

import asyncio

import pytest
from tests.conftest import Unique

from jetspark import errors
from jetspark.full_client import JetStream, connect
from jetspark.objects import ObjectInfo, ObjectStore, ObjectWatcher
from jetspark.server import NatsServer


def names(infos: list[ObjectInfo | None]) -> list[str | None]:
    return [None if info is None else "-" * info.deleted + info.name for info in infos]


async def take(watcher: ObjectWatcher, count: int) -> list[str | None]:
    async with asyncio.timeout(30):
        return names([await anext(watcher) for _ in range(count)])


async def test_a_watch_on_an_empty_store_gives_none_at_once(
    js: JetStream, store: ObjectStore
) -> None:
    for options in ({}, {"updates_only": True}, {"ignore_deletes": True}):
        watcher = store.watch(**options)
        assert not watcher.complete
        async with watcher:
            assert await take(watcher, 1) == [None]
            assert watcher.complete
            await store.put("a", b"1")
            assert await take(watcher, 1) == ["a"]
        await js.stream(store.stream).purge()


async def test_a_watch_gives_current_infos_then_none_then_changes(store: ObjectStore) -> None:
    for name in ("a", "b", "c"):
        await store.put(name, b"1")
    await store.put("a", b"2")
    await store.delete("b")
    changes = ["d", "-a", "c"]
    async with (
        store.watch() as everything,
        store.watch(ignore_deletes=True) as there,
        store.watch(updates_only=True) as later,
    ):
        assert await take(everything, 4) == ["c", "a", "-b", None]
        assert await take(there, 3) == ["c", "a", None]
        assert await take(later, 1) == [None]
        await store.put("d", b"1")
        await store.delete("a")
        await store.update_meta("c", description="new")
        assert await take(everything, 3) == changes
        assert await take(later, 3) == changes
        assert await take(there, 2) == ["d", "c"]
    assert names([*await store.objects().all()]) == ["d", "c"]
    assert names([*await store.objects(include_deleted=True).all()]) == ["-b", "d", "-a", "c"]


async def test_an_object_with_older_infos_is_listed_once(store: ObjectStore, js: JetStream) -> None:
    await store.put("b", b"1")
    await store.put("a", b"1")
    last = await js.stream(store.stream).get(last_by_subject=f"$O.{store.name}.M.*")
    for _ in range(3):
        await js.publish(last.subject, last.data)  # without roll-up, as some clients do
    assert names([*await store.objects().all()]) == ["b", "a"]


async def test_a_watch_ends_with_its_store_and_with_its_client(
    store: ObjectStore, js: JetStream, shared_server: NatsServer, unique: Unique
) -> None:
    async with connect(shared_server.url) as nc:
        theirs = await nc.jetstream().object_store(store.name)
        watcher = theirs.watch()
        assert await take(watcher, 1) == [None]
    assert [one async for one in watcher] == []
    async with store.watch() as watcher:
        assert await take(watcher, 1) == [None]
        await js.delete_object_store(store.name)
        async with asyncio.timeout(20):
            with pytest.raises(errors.ObjectStoreNotFoundError):
                await anext(watcher)
