"""Objects are put, found, changed, linked, listed and deleted."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.conftest import NeedsServer, Unique
from tests.jetstream.conftest import has_consumers
from tests.jetstream.eventually import eventually
from tests.objects.conftest import messages

from jetspark import errors
from jetspark.full_client import JetStream
from jetspark.objects import ObjectInfo, ObjectLink, ObjectStore
from jetspark.objects.info import is_digest


async def spoil(
    js: JetStream, store: ObjectStore, info: ObjectInfo, *, add: bytes | None = None
) -> None:
    """Take the first chunk away, and perhaps put another one behind the last."""
    subject = f"$O.{store.name}.C.{info.nuid}"
    first = await js.stream(store.stream).get(1, next_by_subject=subject)
    await js.stream(store.stream).delete_msg(first.seq)
    if add is not None:
        await js.publish(subject, add)


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


# -- stores --------------------------------------------------------------------------------------


async def test_the_stream_of_a_store_follows_adr_20(js: JetStream, unique: Unique) -> None:
    name = unique("F")
    ttl = timedelta(seconds=90)
    store = await js.create_object_store(
        name, description="d", ttl=ttl, max_bytes=10**6, storage="memory", replicas=1
    )
    config = (await js.stream(f"OBJ_{name}").info()).config
    assert config.subjects == [f"$O.{name}.C.>", f"$O.{name}.M.>"]
    assert (config.discard, config.allow_rollup_hdrs, config.allow_direct) == ("new", True, True)
    status = await store.status()
    assert (status.bucket, status.description, status.storage) == (name, "d", "memory")
    assert (status.ttl, status.replicas) == (ttl, 1)
    assert (status.config.max_bytes, status.size, status.sealed) == (10**6, 0, False)
    assert (status.backing_store, status.is_compressed) == ("JetStream", False)
    assert name in await js.object_store_names().all()
    assert name in [one.bucket async for one in js.object_stores()]
    await js.create_object_store(name, status.config)  # the same again
    with pytest.raises(errors.NameInUseError, match="another configuration"):
        await js.create_object_store(name)
    await js.update_object_store(name, description="new")
    assert (await store.status()).config.ttl == ttl
    assert (await store.status()).description == "new"
    await js.delete_object_store(name)
    for call in (
        store.status,
        store.seal,
        lambda: js.object_store(name),
        lambda: js.delete_object_store(name),
        lambda: js.update_object_store(name, description="x"),
        lambda: store.info("a"),
        lambda: store.put("a", b"1"),
        lambda: store.put("a", b""),
        lambda: store.delete("a"),
        store.purge_orphans,
        lambda: anext(store.watch()),
    ):
        with pytest.raises(errors.ObjectStoreNotFoundError):
            await call()


async def test_a_store_is_created_or_updated(js: JetStream, unique: Unique) -> None:
    name = unique("F")
    store = await js.create_or_update_object_store(name, description="first", storage="memory")
    await store.put("a", b"1")
    again = await js.create_or_update_object_store(name, ttl=timedelta(hours=1))
    config = (await again.status()).config
    assert (config.description, config.ttl) == ("first", timedelta(hours=1))
    assert await again.get_bytes("a") == b"1"


async def test_a_stream_that_is_no_store_is_left_alone(js: JetStream, unique: Unique) -> None:
    name = unique("F")
    await js.create_stream(name=f"OBJ_{name}", subjects=[f"{name}.x"], storage="memory")
    before = (await js.stream(f"OBJ_{name}").info()).config
    with pytest.raises(errors.NameInUseError, match=f'Object store "{name}" exists'):
        await js.create_object_store(name)
    with pytest.raises(errors.NameInUseError):
        await js.create_or_update_object_store(name)
    for call in (
        js.object_store(name),
        js.update_object_store(name, ttl=timedelta(hours=1)),
        js.delete_object_store(name),
    ):
        with pytest.raises(errors.ObjectStoreNotFoundError):
            await call
    assert (await js.stream(f"OBJ_{name}").info()).config == before
    await js.delete_stream(f"OBJ_{name}")


async def test_compression_and_metadata_are_kept(
    js: JetStream, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.10")
    store = await js.create_object_store(unique("F"), compression=True, metadata={"a": "b"})
    status = await store.status()
    assert (status.is_compressed, status.metadata["a"]) == (True, "b")
    await js.delete_object_store(store.name)


async def test_impossible_stores_are_refused(js: JetStream) -> None:
    for name in ("", "a.b", "a b", "ä"):
        with pytest.raises(errors.BadNameError):
            await js.create_object_store(name)
    for options in ({"replicas": 6}, {"max_bytes": 0}, {"ttl": timedelta(-1)}):
        with pytest.raises(errors.ConfigError):
            await js.create_object_store("F", **options)


# -- putting and getting -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 2000, 70_001])
async def test_get_returns_what_was_put(store: ObjectStore, size: int) -> None:
    content = os.urandom(size)
    before = datetime.now(UTC)
    put = await store.put("a", content, chunk_size=1000)
    assert (put.size, put.chunks) == (size, -(-size // 1000))
    assert put.digest is not None
    assert is_digest(put.digest, hashlib.sha256(content).digest())
    assert put.mtime is not None
    assert before <= put.mtime <= datetime.now(UTC)
    assert await store.get_bytes("a") == content
    chunks = [chunk async for chunk in await store.get("a")]
    assert b"".join(chunks) == content
    assert {len(chunk) for chunk in chunks[:-1]} <= {1000}
    assert (await store.info("a")).replace(mtime=None) == put.replace(mtime=None)
    assert await messages(store) == put.chunks + 1


async def test_put_takes_every_source_of_bytes(store: ObjectStore, tmp_path: Path) -> None:
    content = os.urandom(1_500_000)
    file = tmp_path / "file"
    file.write_bytes(content)
    pieces = [content[at : at + 777] for at in range(0, len(content), 777)]

    async def later() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    def refilled() -> Iterator[memoryview]:
        buffer = bytearray(777)
        for piece in pieces:
            buffer[: len(piece)] = piece
            yield memoryview(buffer)[: len(piece)]

    reader = asyncio.StreamReader()
    reader.feed_data(content)
    reader.feed_eof()
    sources = (
        *(content, bytearray(content), memoryview(content), file, io.BytesIO(content)),
        *(pieces, iter(pieces), later(), refilled(), reader),
    )
    for source in sources:
        await store.put("a", source)
        assert await store.get_bytes("a") == content, source
    with file.open("rb") as opened:
        opened.seek(1000)
        await store.put("a", opened)
        assert not opened.closed
    assert await store.get_bytes("a") == content[1000:]
    assert await messages(store) == 12 + 1


async def test_put_refuses_what_is_not_a_source_of_bytes(store: ObjectStore) -> None:
    for source in ("text", "", {"a": b"1"}, [b"ok", "text"], io.StringIO("text"), [1]):
        with pytest.raises(errors.ConfigError):
            await store.put("a", source)  # type: ignore[arg-type]
    for size in (0, -1, 10**9):
        with pytest.raises(errors.ConfigError):
            await store.put("a", b"", chunk_size=size)
    for name in ("", "x" * 2049, "\ud800"):
        with pytest.raises(errors.BadNameError):
            await store.put(name, b"1")
    assert await messages(store) == 0


async def test_get_into_writes_files(store: ObjectStore, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    await store.put("a", content)
    path = tmp_path / ("there" * 51)  # 255 bytes
    for target in (path, str(path)):
        path.write_bytes(b"old")
        assert (await store.get_into("a", target)).size == 3_000_000
        assert path.read_bytes() == content
    memory = io.BytesIO()
    await store.get_into("a", memory)
    assert memory.getvalue() == content
    with pytest.raises(errors.ObjectNotFoundError):
        await store.get_into("b", tmp_path / "b")
    with pytest.raises(errors.ConfigError, match="No such"):
        await store.get_into("a", tmp_path / "no folder" / "a")
    assert files(tmp_path) == [path.name]


async def test_get_into_keeps_the_mode_and_the_symlink_of_a_file_and_refuses_a_fifo(
    store: ObjectStore, tmp_path: Path
) -> None:
    await store.put("a", b"new")
    secret, link, fifo = tmp_path / "secret", tmp_path / "link", tmp_path / "fifo"
    secret.write_bytes(b"old")
    secret.chmod(0o600)
    link.symlink_to("secret")
    os.mkfifo(fifo)
    await store.get_into("a", link)
    assert (link.is_symlink(), secret.read_bytes()) == (True, b"new")
    assert secret.stat().st_mode & 0o777 == 0o600
    nowhere = tmp_path / "nowhere"
    nowhere.symlink_to("there")
    await store.get_into("a", nowhere)
    assert (nowhere.is_symlink(), (tmp_path / "there").read_bytes()) == (True, b"new")
    with pytest.raises(errors.ConfigError, match="not a regular file"):
        await store.get_into("a", fifo)
    assert fifo.is_fifo()
    assert files(tmp_path) == ["fifo", "link", "nowhere", "secret", "there"]


async def test_a_new_object_replaces_the_old_one(store: ObjectStore) -> None:
    await store.put("a", b"x" * 5000, chunk_size=1000, description="d")
    assert await messages(store) == 6
    await store.put("a", b"y" * 2000, chunk_size=1000)
    assert await messages(store) == 3
    assert await store.get_bytes("a") == b"y" * 2000
    assert (await store.info("a")).description is None


async def test_leaving_the_iteration_deletes_the_consumer(
    js: JetStream, store: ObjectStore
) -> None:
    await store.put("a", os.urandom(50_000), chunk_size=1000)
    async for _ in await store.get("a"):
        break
    reader = await store.get("a")
    await reader.next_chunks()
    reader.stop()
    assert await reader.next_chunks() == []
    await has_consumers(js, store.stream)  # tasks delete them


# -- deleting, changing, linking -----------------------------------------------------------------


async def test_delete_removes_an_object_and_its_chunks(store: ObjectStore) -> None:
    await store.put("a", b"x" * 3000, chunk_size=1000)
    await store.delete("a")
    for call in (store.info, store.get, store.get_bytes):
        with pytest.raises(errors.ObjectNotFoundError):
            await call("a")
    mark = await store.info("a", include_deleted=True)
    assert (mark.deleted, mark.size, mark.chunks, mark.digest) == (True, 0, 0, None)
    assert await messages(store) == 1
    await store.delete("a")  # nothing happens
    with pytest.raises(errors.ObjectNotFoundError):
        await store.delete("never there")
    with pytest.raises(errors.ObjectNotFoundError):
        await store.update_meta("a", description="x")
    await store.put("a", b"back")
    assert await store.get_bytes("a") == b"back"


async def test_purge_orphans_removes_old_chunks_of_no_object(
    js: JetStream, store: ObjectStore
) -> None:
    await store.put("a", b"1" * 3000, chunk_size=1000)
    await store.put("b", b"2" * 3000, chunk_size=1000)
    await store.update_meta("a", new_name="c")
    await store.add_link("l", await store.info("c"))
    deleted = await store.put("d", b"3" * 3000, chunk_size=1000)
    await store.delete("d")
    before = await messages(store)
    assert await store.purge_orphans(older_than=0) == 0
    # One whose put was broken off, and one that is there again though it was deleted.
    for nuid in ("orphan", deleted.nuid):
        for _ in range(2):
            await js.publish(f"$O.{store.name}.C.{nuid}", b"x")
    assert await store.purge_orphans() == 0  # may be puts that go on
    assert await store.purge_orphans(older_than=timedelta(0)) == 4
    assert await messages(store) == before
    assert await store.get_bytes("c") == b"1" * 3000
    assert await store.get_bytes("l") == b"1" * 3000
    assert await store.get_bytes("b") == b"2" * 3000
    with pytest.raises(errors.ConfigError):
        await store.purge_orphans(older_than=float("nan"))


async def test_update_meta_keeps_the_content(store: ObjectStore) -> None:
    first = await store.put("a", b"1" * 3000, description="d", metadata={"k": "v"}, chunk_size=1000)
    changed = await store.update_meta("a", headers={"H": ["1", "2"]})
    assert (changed.description, changed.metadata) == ("d", {"k": "v"})
    assert (await store.info("a")).headers == {"H": ["1", "2"]}
    await store.update_meta("a", description="", metadata={})
    assert (await store.info("a")).description == ""
    await store.put("taken", b"2")
    await store.put("free again", b"3")
    await store.delete("free again")
    with pytest.raises(errors.ObjectExistsError):
        await store.update_meta("a", new_name="taken")
    for new, old in (("b", "a"), ("free again", "b")):
        renamed = await store.update_meta(old, new_name=new, description=new)
        assert (renamed.name, renamed.nuid, renamed.description) == (new, first.nuid, new)
        assert await store.get_bytes(new) == b"1" * 3000
        with pytest.raises(errors.ObjectNotFoundError):
            await store.info(old)
    await store.delete("a")  # is only a mark, and must not take the chunks
    await store.put("b", b"another")
    assert await store.get_bytes("free again") == b"1" * 3000
    assert await store.get_bytes("taken") == b"2"


async def test_a_sealed_store_can_be_read_and_not_changed(store: ObjectStore) -> None:
    await store.put("a", b"1")
    assert (await store.seal()).sealed
    assert (await store.status()).sealed
    for call in (
        store.put("b", b"1"),
        store.put("a", b""),
        store.delete("a"),
        store.update_meta("a", description="x"),
        store.add_store_link("l", "ARCHIVE"),
    ):
        with pytest.raises(errors.APIError, match="sealed"):
            await call
    assert await store.get_bytes("a") == b"1"


# -- damage --------------------------------------------------------------------------------------


async def test_missing_chunks_raise_at_once(
    js: JetStream, store: ObjectStore, tmp_path: Path
) -> None:
    info = await store.put("a", os.urandom(5000), chunk_size=1000)
    await spoil(js, store, info)
    async with asyncio.timeout(30):
        with pytest.raises(errors.ObjectDamagedError, match="only 4 of its 5 chunks"):
            await store.get_bytes("a")
        with pytest.raises(errors.ObjectDamagedError):
            await store.get_into("a", tmp_path / "a")
    assert files(tmp_path) == []


async def test_changed_bytes_raise_before_the_last_chunk(js: JetStream, store: ObjectStore) -> None:
    info = await store.put("a", os.urandom(5000), chunk_size=1000)
    await spoil(js, store, info, add=b"x" * 1000)
    seen = 0
    with pytest.raises(errors.DigestMismatchError):
        async for chunk in await store.get("a"):
            seen += len(chunk)
    assert seen < 5000
    info = await store.put("a", os.urandom(5000), chunk_size=1000)
    await spoil(js, store, info, add=b"x" * 999)
    with pytest.raises(errors.ObjectDamagedError, match="4999 bytes"):
        await store.get_bytes("a")


async def test_an_object_replaced_while_it_is_read_raises(store: ObjectStore) -> None:
    content = os.urandom(30_000_000)  # more than is pulled ahead
    await store.put("a", content)
    reader = await store.get("a")
    await reader.next_chunks()
    await store.put("a", b"new")
    with pytest.raises(errors.ObjectDamagedError, match="replaced"):
        async for _ in reader:
            pass


async def test_a_put_whose_chunks_are_purged_fails(js: JetStream, store: ObjectStore) -> None:
    async def blocks() -> AsyncIterator[bytes]:
        yield bytes(100_000)
        await eventually(lambda: messages(store))  # a chunk may be sent after the purge
        await js.stream(store.stream).purge()
        yield bytes(100_000)

    with pytest.raises(errors.ObjectDamagedError, match="stored instead of"):
        await store.put("a", blocks(), chunk_size=10_000)
    with pytest.raises(errors.ObjectNotFoundError):
        await store.info("a")
    assert await messages(store) == 0


# -- links -------------------------------------------------------------------------------------


async def test_links_lead_to_objects_and_stores(
    store: ObjectStore, js: JetStream, unique: Unique
) -> None:
    other = await js.create_object_store(unique("O"), storage="memory")
    near, far = await store.put("a", b"near"), await other.put("b", b"far")
    link = await store.add_link("l", near)
    assert link.link == ObjectLink(bucket=store.name, name="a")
    assert await store.get_bytes("l") == b"near"
    assert (await store.get("l")).info.name == "a"
    await store.add_link("l", far)
    assert await store.get_bytes("l") == b"far"
    assert (await store.info("l")).link == ObjectLink(bucket=other.name, name="b")
    await store.add_store_link("folder", other.name)
    assert (await store.info("folder")).link == ObjectLink(bucket=other.name)
    with pytest.raises(errors.ObjectNotFoundError, match="whole store"):
        await store.get("folder")
    with pytest.raises(errors.ConfigError, match="to a link"):
        await store.add_link("x", await store.info("l"))
    await other.delete("b")
    with pytest.raises(errors.ConfigError, match="deleted"):
        await store.add_link("x", await other.info("b", include_deleted=True))
    gone = f'"l" in store "{store.name}" leads to "b" in store "{other.name}", which does not exist'
    with pytest.raises(errors.ObjectNotFoundError, match=gone):
        await store.get("l")
    for add in (store.add_link("a", far), store.add_store_link("a", other.name)):
        with pytest.raises(errors.ObjectExistsError):
            await add
    await store.update_meta("l", new_name="m")
    assert (await store.info("m")).link is not None
    await store.delete("m")
    await store.delete("a")
    await store.add_store_link("a", other.name)  # what is deleted is no obstacle
    await js.delete_object_store(other.name)


async def test_links_in_a_circle_are_not_found(store: ObjectStore) -> None:
    a, b = await store.put("a", b"1"), await store.put("b", b"2")
    await store.delete("a")
    await store.add_link("a", b)
    await store.delete("b")
    await store.add_link("b", a)
    with pytest.raises(errors.ObjectNotFoundError, match="link to link"):
        await store.get("a")
