"""With nats-py as the other side, for every operation."""

from __future__ import annotations

import os
from typing import Any

import nats
import nats.js.errors
import pytest
from nats.js.api import ObjectMeta, ObjectMetaOptions
from tests.conftest import Unique

from jetspark.errors import APIError, ObjectNotFoundError
from jetspark.full_client import JetStream
from jetspark.objects import ObjectStore

CONTENT = os.urandom(300_000)
NAMES = ("a", "two words/ä>*.", "日本語 €", "x" * 100)


@pytest.fixture
async def theirs(py_peer: Any, store: ObjectStore) -> Any:
    """Our store, opened by them."""
    return await py_peer.jetstream().object_store(store.name)


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
            description="d", headers={"A": ["1"]}, options=ObjectMetaOptions(max_chunk_size=100_000)
        )
        await theirs.put(name, CONTENT, meta)
        found = await store.info(name)
        assert (found.name, found.size, found.chunks) == (name, 300_000, 3)
        assert (found.description, found.headers) == ("d", {"A": ["1"]})
        assert await store.get_bytes(name) == CONTENT
    assert [one.name for one in await store.objects().all()] == list(NAMES)
    await theirs.put("empty", b"")
    assert await store.get_bytes("empty") == b""


async def test_changes_of_one_client_are_seen_by_the_other(store: ObjectStore, theirs: Any) -> None:
    await store.add_link("l", await store.put("a", CONTENT))
    assert (await theirs.get("l")).data == CONTENT
    await store.update_meta("a", new_name="b", description="new")
    assert (await theirs.get_info("b")).description == "new"
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        await theirs.get_info("a")
    await theirs.delete("b")
    with pytest.raises(ObjectNotFoundError):
        await store.get("b")
    await theirs.seal()
    with pytest.raises(APIError, match="sealed"):
        await store.put("a", b"1")


async def test_creating_our_store_again_binds_to_it(
    js: JetStream, py_peer: Any, unique: Unique
) -> None:
    name = unique("F")
    await (await js.create_object_store(name)).put("a", CONTENT)
    theirs = await py_peer.jetstream().create_object_store(name)
    assert (await theirs.get("a")).data == CONTENT
    await js.delete_object_store(name)
