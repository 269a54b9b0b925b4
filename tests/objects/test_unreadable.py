"""Infos that other clients wrote in another form, and infos that nobody can read."""

from __future__ import annotations

import json

import pytest
from tests.conftest import Reported, Unique

from jetspark.errors import DocumentError, ObjectNotFoundError
from jetspark.full_client import JetStream
from jetspark.objects import ObjectStore
from jetspark.objects.info import chunk_subject, info_subject

BAD = [
    *(b"", b"{", b"[]", b'{"name": 5}', b'{"name": "bad", "bucket": "b", "nuid": ">"}', b"\xff"),
    b'{"name": "bad", "bucket": "b", "chunks": 1, "size": 1}',
]


@pytest.fixture
async def store(js: JetStream, unique: Unique) -> ObjectStore:
    store = await js.create_object_store(unique("O"), storage="memory")
    await store.put("good", b"content")
    return store


async def chunks(js: JetStream, store: ObjectStore) -> dict[str, int]:
    filter = chunk_subject(store.name, ">")
    return (await js.stream(store.stream).info(subjects_filter=filter)).state.subjects or {}


async def spoil(js: JetStream, store: ObjectStore, name: str, data: bytes) -> None:
    headers = {"Nats-Rollup": "sub"}
    await js.publish(info_subject(store.name, name), data, headers=headers)


async def test_headers_of_either_form_are_read(js: JetStream, store: ObjectStore) -> None:
    await store.put("theirs", b"1", headers={"A": "1"})
    stored = await js.stream(store.stream).get(
        last_by_subject=info_subject(store.name, "theirs"), direct=False
    )
    document = json.loads(stored.data)
    document["headers"] = {"A": "1", "B": ["2", "3"]}
    await spoil(js, store, "theirs", json.dumps(document).encode())
    info = await store.info("theirs")
    assert info.headers == {"A": ["1"], "B": ["2", "3"]}
    assert await store.get_bytes("theirs") == b"1"
    await store.delete("theirs")
    with pytest.raises(ObjectNotFoundError):
        await store.info("theirs")


@pytest.mark.parametrize("data", BAD)
async def test_bad_infos_are_reported_and_block_nothing(
    js: JetStream, store: ObjectStore, reported: Reported, data: bytes
) -> None:
    before = await chunks(js, store)
    await spoil(js, store, "bad", data)
    with pytest.raises(DocumentError):
        await store.info("bad")
    with pytest.raises(DocumentError):
        await store.get("bad")
    assert [info.name for info in await store.objects().all()] == ["good"]
    assert [type(error) for error in reported] == [DocumentError]
    assert await store.get_bytes("good") == b"content"
    await store.put("other", b"x")
    await store.delete("other")
    assert await store.purge_orphans(older_than=0) == 0
    assert await chunks(js, store) == before

    await store.put("bad", b"again")  # over it
    assert await store.get_bytes("bad") == b"again"
    await store.delete("bad")
    assert await chunks(js, store) == before

    await spoil(js, store, "bad", data)
    await store.delete("bad")
    assert [info.name for info in await store.objects().all()] == ["good"]
    assert (await store.info("bad", include_deleted=True)).deleted
    assert await store.get_bytes("good") == b"content"


async def test_chunks_of_unreadable_infos_are_no_orphans(js: JetStream, store: ObjectStore) -> None:
    info = await store.put("kept", b"content")
    document = {"name": "kept", "bucket": store.name, "nuid": info.nuid, "size": "many"}
    await spoil(js, store, "kept", json.dumps(document).encode())
    assert await store.purge_orphans(older_than=0) == 0
    assert chunk_subject(store.name, info.nuid) in await chunks(js, store)
    await store.delete("kept")
    assert await store.purge_orphans(older_than=0) == 1
