"""Object stores without async."""

from __future__ import annotations

import asyncio
import io
import os
import threading
import weakref
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Unique

import jetspark.errors as errors
from jetspark.blocking import Client
from jetspark.blocking.loop_thread import current
from jetspark.blocking.objects import ObjectStore

CONTENT = os.urandom(3_000_000)


@pytest.fixture
def store(nc: Client, unique: Unique) -> Iterator[ObjectStore]:
    js = nc.jetstream()
    name = unique("F")
    yield js.create_object_store(name, storage="memory")
    js.delete_object_store(name)


def messages(store: ObjectStore) -> int:
    return store.status().stream_info.state.messages


def test_no_task_is_freed_in_the_callers_thread(store: ObjectStore) -> None:
    """asyncio forgets a freed task in Python code, which ignores an interrupt."""
    freed: list[str] = []
    tasks = []

    def note(_: weakref.ref[asyncio.Task[Any]]) -> None:
        freed.append(threading.current_thread().name)

    def noted(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        tasks.append(weakref.ref(task, note))
        return task

    loop = current().loop
    loop.set_task_factory(noted)  # type: ignore[arg-type]
    try:
        for _ in range(20):
            store.put("a", b"x" * 300_000)
            assert len(store.get_bytes("a")) == 300_000
    finally:
        loop.set_task_factory(None)
    assert len(freed) > 60
    assert set(freed) == {"jetspark-loop"}


def test_bytes_come_from_everywhere_and_go_into_files(store: ObjectStore, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(CONTENT)
    threads = set()

    def pieces() -> Iterator[bytes]:
        threads.add(threading.current_thread())
        for at in range(0, len(CONTENT), 777):
            yield CONTENT[at : at + 777]

    for data in (CONTENT, bytearray(CONTENT), source, io.BytesIO(CONTENT), pieces()):
        store.put("a", data)
        assert store.get_bytes("a") == CONTENT
    assert threads == {threading.current_thread()}
    assert store.get_into("a", target).size == len(CONTENT)
    assert target.read_bytes() == CONTENT
    memory = io.BytesIO()
    store.get_into("a", memory)
    assert memory.getvalue() == CONTENT
    assert b"".join(store.get("a")) == CONTENT
    assert store.get("a").all() == CONTENT
    for chunk in store.get("a"):  # leaving early does no harm
        assert CONTENT.startswith(chunk)
        break
    assert sorted(file.name for file in tmp_path.iterdir()) == ["source", "target"]

    for wrong in ("text", ["text"]):
        with pytest.raises(errors.ConfigError):
            store.put("b", wrong)  # type: ignore[arg-type]


def test_chunks_of_no_object_are_purged(store: ObjectStore, nc: Client) -> None:
    store.put("a", b"1")
    nc.jetstream().publish(f"$O.{store.name}.C.orphan", b"x")
    assert store.purge_orphans() == 0
    assert store.purge_orphans(older_than=0) == 1
    assert store.get_bytes("a") == b"1"


def test_a_source_that_fails_leaves_the_store_as_it_was(store: ObjectStore) -> None:
    def failing() -> Iterator[bytes]:
        yield CONTENT
        raise ZeroDivisionError

    store.put("a", b"old")
    with pytest.raises(ZeroDivisionError):
        store.put("a", failing())
    assert store.get_bytes("a") == b"old"
    assert messages(store) == 2


def test_an_object_may_be_put_while_it_is_read(store: ObjectStore) -> None:
    store.put("a", CONTENT)
    store.put("b", store.get("a"))
    assert store.get_bytes("b") == CONTENT


def test_infos_are_changed_linked_listed_watched_and_deleted(store: ObjectStore) -> None:
    info = store.put("a", b"1", description="d", headers={"H": "1"}, metadata={"k": "v"})
    assert store.info("a").nuid == info.nuid
    assert store.update_meta("a", new_name="b", description="e").description == "e"
    store.add_link("l", store.info("b"))
    store.add_store_link("s", "ARCHIVE")
    with pytest.raises(errors.ObjectExistsError):
        store.add_link("b", info)
    assert store.get_bytes("l") == b"1"
    assert [one.name for one in store.objects()] == ["b", "l", "s"]
    with store.watch(ignore_deletes=True) as watcher:
        names = [one and one.name for _, one in zip(range(4), watcher, strict=False)]
        assert names == ["b", "l", "s", None]
        assert watcher.complete
        store.delete("b")
        store.put("c", b"2")
        assert next(watcher).name == "c"  # type: ignore[union-attr]
    with pytest.raises(errors.ObjectNotFoundError):
        store.get("b")
    assert store.info("b", include_deleted=True).deleted


def test_damage_is_told_and_leaves_no_file(nc: Client, store: ObjectStore, tmp_path: Path) -> None:
    info = store.put("a", CONTENT)
    js = nc.jetstream()
    first = js.stream(store.stream).get(1, next_by_subject=f"$O.{store.name}.C.{info.nuid}")
    js.stream(store.stream).delete_msg(first.seq)
    with pytest.raises(errors.ObjectDamagedError):
        store.get_into("a", tmp_path / "a")
    with pytest.raises(errors.ObjectDamagedError):
        list(store.get("a"))
    assert list(tmp_path.iterdir()) == []
