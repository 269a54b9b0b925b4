"""With nats-py as the other side, for every operation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import nats
import nats.js.errors
import pytest
from nats.js.api import ObjectMeta, ObjectMetaOptions

from jetspark.errors import APIError, ObjectNotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jetspark.full_client import JetStream
    from jetspark.objects import ObjectStore
    from jetspark.server import NatsServer

CONTENT = os.urandom(300_000)
NAMES = ("a", "two words/ä>*.", "日本語 €", "x" * 100)


@pytest.fixture
async def theirs(shared_server: NatsServer, store: ObjectStore) -> AsyncIterator[Any]:
    """Our store, opened by them; much of it has no types."""
    nc = await nats.connect(shared_server.url)
    yield await nc.jetstream().object_store(store.name)
    await nc.close()


async def test_they_read_what_we_put(store: ObjectStore, theirs: Any) -> None:
    for name in NAMES:
        ours = await store.put(
            name, CONTENT, description="d", headers={"A": "1"}, chunk_size=100_000
        )
        found = await theirs.get(name)
        assert found.data == CONTENT
        info = found.info
        assert (info.name, info.bucket, info.nuid) == (name, store.name, ours.nuid)
        assert (info.size, info.chunks, info.digest) == (300_000, 3, ours.digest)
        assert (info.description, info.headers) == ("d", {"A": ["1"]})
        assert info.options is not None
        assert info.options.max_chunk_size == 100_000
    assert [one.name for one in await theirs.list()] == list(NAMES)
    await store.put("empty", b"")
    assert (await theirs.get("empty")).data == b""


async def test_we_read_what_they_put(store: ObjectStore, theirs: Any) -> None:
    for name in NAMES:
        meta = ObjectMeta(
            description="d",
            headers={"A": ["1"]},
            options=ObjectMetaOptions(max_chunk_size=100_000),
        )
        await theirs.put(name, CONTENT, meta)
        found = await store.info(name)
        assert (found.name, found.size, found.chunks) == (name, 300_000, 3)
        assert (found.description, found.headers) == ("d", {"A": ["1"]})
        assert await store.get_bytes(name) == CONTENT
    assert [one.name for one in await store.objects().all()] == list(NAMES)
    await theirs.put("empty", b"")
    assert await store.get_bytes("empty") == b""


async def test_an_object_deleted_by_one_client_is_missing_for_the_other(
    store: ObjectStore, theirs: Any, js: JetStream
) -> None:
    for name in ("a", "b"):
        await store.put(name, CONTENT)
    await store.delete("a")
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        await theirs.get_info("a")
    await theirs.delete("b")
    with pytest.raises(ObjectNotFoundError):
        await store.get("b")
    await theirs.put("a", b"theirs")
    await store.put("b", b"ours")
    assert await store.get_bytes("a") == b"theirs"
    assert (await theirs.get("b")).data == b"ours"
    await store.put("a", b"ours")
    await theirs.put("b", b"theirs")
    assert (await js.stream_info(store.stream)).state.messages == 4  # two chunks, two infos


async def test_links_lead_the_same_way(store: ObjectStore, theirs: Any) -> None:
    await store.add_link("l", await store.put("a", CONTENT))
    await store.add_store_link("folder", "ARCHIVE")
    assert (await theirs.get("l")).data == CONTENT
    with pytest.raises(nats.js.errors.LinkIsABucketError):
        await theirs.get("folder")


async def test_metadata_changed_by_one_is_seen_by_the_other(
    store: ObjectStore, theirs: Any
) -> None:
    await store.put("a", CONTENT, description="old")
    await store.update_meta("a", new_name="b", description="new")
    assert (await theirs.get_info("b")).description == "new"
    assert (await theirs.get("b")).data == CONTENT
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        await theirs.get_info("a")
    await theirs.update_meta("b", ObjectMeta(name="b", description="theirs"))
    assert (await store.info("b")).description == "theirs"


async def test_watches_see_the_changes_of_the_other_client(store: ObjectStore, theirs: Any) -> None:
    await store.put("a", b"1")
    their_watch = await theirs.watch()
    assert (await their_watch.updates()).name == "a"
    assert await their_watch.updates() is None
    async with store.watch(updates_only=True) as watch:
        assert await anext(watch) is None
        await theirs.put("b", b"2")
        change = await anext(watch)
        assert change is not None
        assert change.name == "b"
    await store.delete("a")
    assert (await their_watch.updates()).name == "b"
    assert (await their_watch.updates()).deleted
    await their_watch.stop()


async def test_sealed_by_one_is_closed_for_the_other(store: ObjectStore, theirs: Any) -> None:
    await theirs.seal()
    with pytest.raises(APIError, match="sealed"):
        await store.put("a", b"1")
    assert (await theirs.status()).sealed
    assert (await store.status()).sealed


async def test_our_seal_closes_it_for_them(store: ObjectStore, theirs: Any) -> None:
    await store.seal()
    assert (await theirs.status()).sealed
    with pytest.raises(nats.js.errors.APIError, match="sealed"):
        await theirs.put("a", b"1")
