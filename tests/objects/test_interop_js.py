"""With the official JavaScript client as the other side, for every operation.

Needs node and npm, and the network the first time. That client encodes names as Latin-1, where
ADR-20 and the others have UTF-8, and cannot encode any other letters.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from tests.conftest import Unique
from tests.support.js_peer import JsPeer

from jetspark.errors import APIError, ObjectNotFoundError
from jetspark.full_client import JetStream
from jetspark.objects import ObjectLink, ObjectStore

Theirs: TypeAlias = "Callable[..., Awaitable[Any]]"

CONTENT = os.urandom(300_000)
CONTENT_64 = base64.b64encode(CONTENT).decode()


@pytest.fixture
def theirs(js_peer: JsPeer, store: ObjectStore) -> Theirs:
    """A method of their object for our store: `await theirs("info", "name")`."""

    async def call(name: str, *args: object) -> Any:
        answer = await js_peer.run("obj", store=store.name, call=name, args=list(args))
        return answer.get("result")

    return call


@pytest.mark.full
async def test_their_names_in_latin_letters_are_read_replaced_and_deleted(
    js: JetStream, store: ObjectStore, theirs: Theirs
) -> None:
    for name in ("é", "naïve façade.txt", "Ã©"):
        await theirs("putBlob", {"name": name}, CONTENT_64)
        assert await store.get_bytes(name) == CONTENT
        assert [one.name for one in await store.objects().all()] == [name]
        # It stays where they look for it.
        await store.put(name, b"ours")
        assert base64.b64decode(await theirs("getBlob", name)) == b"ours"
        await store.update_meta(name, description="d")
        assert (await theirs("info", name))["description"] == "d"
        await store.delete(name)
        assert (await theirs("info", name))["deleted"] is True
        assert (await store.info(name, include_deleted=True)).deleted
        # A new one goes where all others look for it.
        await store.put(name, b"new")
        assert await store.get_bytes(name) == b"new"
        assert [one.name for one in await store.objects().all()] == [name]
        await js.stream(store.stream).purge()


async def test_our_names_are_read_by_them_as_the_bytes_of_utf_8(
    store: ObjectStore, theirs: Theirs
) -> None:
    """As docs/guide-objects.md says."""
    names = ["é", "日本語 €", "a"]
    for name in names:
        await store.put(name, CONTENT)
        as_bytes = name.encode().decode("latin-1")  # Buffer.from(name, "utf8").toString("latin1")
        assert (await theirs("info", as_bytes))["name"] == name
        assert await theirs("getBlob", as_bytes) == CONTENT_64
    assert [one["name"] for one in await theirs("list")] == names


async def test_one_name_s_encoding_is_not_taken_for_another_s(store: ObjectStore) -> None:
    await store.put("é", b"x")
    with pytest.raises(ObjectNotFoundError):
        await store.info("Ã©")  # whose Latin-1 is the UTF-8 of the other


async def test_deleted_by_us_is_gone_for_them_and_back(
    js: JetStream, store: ObjectStore, theirs: Theirs
) -> None:
    for name in ("a", "b"):
        await store.put(name, CONTENT)
    await store.delete("a")
    assert (await theirs("info", "a"))["deleted"] is True
    assert await theirs("getBlob", "a") is None
    await theirs("delete", "b")
    with pytest.raises(ObjectNotFoundError):
        await store.info("b")
    assert (await store.info("b", include_deleted=True)).deleted
    assert await store.objects().all() == []
    await theirs("putBlob", {"name": "a"}, CONTENT_64)
    assert await store.get_bytes("a") == CONTENT
    await store.put("b", b"new")
    assert base64.b64decode(await theirs("getBlob", "b")) == b"new"
    assert (await js.stream(store.stream).info()).state.messages == 3 + 1 + 1 + 1


async def test_links_lead_the_same_way(
    store: ObjectStore, theirs: Theirs, js: JetStream, unique: Unique
) -> None:
    other = await js.create_object_store(unique("O"), storage="memory")
    ours = await store.put("a", CONTENT)
    far = await other.put("far", b"away")
    await store.add_link("ours", ours)
    await store.add_link("ours far", far)
    await store.add_store_link("folder", other.name)
    assert await theirs("getBlob", "ours") == CONTENT_64
    assert base64.b64decode(await theirs("getBlob", "ours far")) == b"away"
    assert (await theirs("info", "folder"))["options"]["link"] == {"bucket": other.name}
    await theirs("link", "theirs", "a")
    await theirs("linkStore", "their folder", other.name)
    assert await store.get_bytes("theirs") == CONTENT
    link = (await store.info("their folder")).link
    assert link is not None
    assert (link.bucket, link.name or None) == (other.name, None)
    assert (await store.info("theirs")).link == ObjectLink(bucket=store.name, name="a")
    await js.delete_object_store(other.name)


async def test_metadata_changed_by_one_are_seen_by_both(store: ObjectStore, theirs: Theirs) -> None:
    await store.put("a", CONTENT, description="old", metadata={"k": "v"})
    await store.update_meta("a", new_name="b", description="new", metadata={"l": "w"})
    found = await theirs("info", "b")
    assert (found["description"], found["metadata"]) == ("new", {"l": "w"})
    assert await theirs("getBlob", "b") == CONTENT_64
    assert (await theirs("info", "a"))["deleted"] is True
    # They may delete again what is deleted: that must not take the renamed one's chunks.
    await theirs("delete", "a")
    assert await theirs("getBlob", "b") == CONTENT_64
    await theirs("update", "b", {"name": "c", "description": "theirs"})
    assert (await store.info("c")).description == "theirs"
    assert await store.get_bytes("c") == CONTENT


async def test_watches_see_each_other(store: ObjectStore, theirs: Theirs, js_peer: JsPeer) -> None:
    await store.put("a", b"1")
    await js_peer.run("obj_watch", store=store.name, options={})
    async with store.watch() as watch:
        assert (await anext(watch)).name == "a"  # type: ignore[union-attr]
        assert await anext(watch) is None
        await theirs("putBlob", {"name": "b"}, CONTENT_64)
        change = await anext(watch)
        assert change is not None
        assert (change.name, change.size) == ("b", 300_000)
        await store.delete("a")
        heard = [(await js_peer.hear())["info"] for _ in range(2)]
        told = [(one["name"], one.get("deleted", False)) for one in heard]
        assert told == [("b", False), ("a", True)]


async def test_sealed_by_one_is_closed_for_the_other(
    store: ObjectStore, theirs: Theirs, js_peer: JsPeer, js: JetStream, unique: Unique
) -> None:
    await store.put("a", b"1")
    await store.seal()
    status = await theirs("status")
    assert (status["sealed"], status["storage"]) == (True, "memory")
    name = unique("T")
    options = {"description": "d", "ttl": 10**9 * 3600, "storage": "memory"}
    await js_peer.run("obj_create", store=name, options=options)
    made = await js.object_store(name)
    assert (await made.status()).description == "d"
    assert (await made.status()).ttl == timedelta(hours=1)
    await js_peer.run("obj", store=name, call="seal")
    assert (await made.status()).sealed
    with pytest.raises(APIError, match="sealed"):
        await made.put("a", b"1")
    await js.delete_object_store(name)
