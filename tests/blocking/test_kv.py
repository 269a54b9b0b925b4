"""Buckets without async: the same, from any thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest
from tests.blocking.conftest import in_threads
from tests.conftest import Unique

import jetspark.errors as errors
from jetspark.blocking import connect, iterators
from jetspark.blocking.jetstream import JetStream
from jetspark.blocking.kv import Bucket
from jetspark.jetstream import watching
from jetspark.kv import ElectionState, Entry, ZlibCodec
from jetspark.kv import watch as watch_module
from jetspark.server import NatsServer


@pytest.fixture
def bucket(js: JetStream, unique: Unique) -> Iterator[Bucket]:
    name = unique("B")
    yield js.create_bucket(name, history=5, storage="memory")
    js.delete_bucket(name)


def test_blocking_bucket_reads_writes_and_deletes_keys(bucket: Bucket) -> None:
    first = bucket.put("a.b", b"1")
    assert bucket.get("a.b").revision == first
    second = bucket.update("a.b", b"2", first)
    assert bucket.get_value("a.b", first, leader=True) == b"1"
    assert bucket.revert("a.b", first) == second + 1
    assert [entry.value for entry in bucket.history("a.b")] == [b"1", b"2", b"1"]
    bucket.delete("a.b")
    with pytest.raises(errors.KeyNotFoundError):
        bucket.get("a.b")
    bucket.create("c", b"3")
    assert bucket.keys().all() == list(bucket.keys()) == ["c"]
    bucket.purge("c")
    assert bucket.purge_deletes() == 0
    assert bucket.status().values == 2
    coded = bucket.with_codecs(values=ZlibCodec())
    coded.put("z", b"x" * 100)
    assert coded.get_value("z") == b"x" * 100


def test_blocking_buckets_are_created_listed_and_deleted(
    js: JetStream, bucket: Bucket, unique: Unique
) -> None:
    assert js.bucket(bucket.name).stream == bucket.stream == f"KV_{bucket.name}"
    assert bucket.name in list(js.bucket_names())
    assert bucket.name in [status.bucket for status in js.buckets()]
    js.update_bucket(bucket.name, description="d")
    js.create_or_update_bucket(bucket.name, history=6)
    assert bucket.status().config.history == 6
    bucket.put("k")
    assert js.bucket(bucket.name).empty() == 1
    with pytest.raises(errors.BucketNotFoundError):
        js.bucket(unique("B"))


def test_a_watch_is_iterated(bucket: Bucket) -> None:
    for number in range(2500):
        bucket.put(f"k{number}")
    seen = []
    for entry in bucket.watch():
        if entry is None:
            break
        seen.append(entry.key)
    assert seen == [f"k{number}" for number in range(2500)]
    with bucket.watch("other", updates_only=True) as changes:
        assert next(changes) is None
        assert changes.complete
        bucket.put("other", b"1")
        entry = next(changes)
        assert entry is not None
        assert entry.value == b"1"
        assert changes.active
    assert not changes.active
    assert changes.error is None
    assert list(changes) == []


def test_a_watch_with_a_callback_that_uses_the_client(bucket: Bucket) -> None:
    heard: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
    bucket.put("a", b"1")
    bucket.put("b", b"2")

    def on_entry(entry: Entry | None) -> None:
        heard.put(None if entry is None else (entry.key, bucket.get_value(entry.key)))
        if entry is not None:
            raise ZeroDivisionError

    watcher = bucket.watch(callback=on_entry)
    with pytest.raises(errors.ConfigError, match="callback"):
        iter(watcher)
    assert [heard.get(timeout=30) for _ in range(3)] == [("a", b"1"), ("b", b"2"), None]
    bucket.put("c", b"3")
    assert heard.get(timeout=30) == ("c", b"3")
    watcher.stop()


def test_blocking_live_bucket_follows_and_calls_back(bucket: Bucket) -> None:
    bucket.put("a", b"1")
    changed = threading.Event()

    def on_change(entry: Entry) -> None:
        if entry.key == "b":
            assert bucket.get_value("b") == b"2"
            changed.set()

    with bucket.live(on_change=on_change) as live:
        assert dict(live) == live.snapshot() == {"a": b"1"}
        bucket.put("b", b"2")
        assert changed.wait(30)
        assert live["b"] == b"2"
        assert live.entry("b").revision == 2
        assert set(live.entries()) == set(live) == {"a", "b"}
        assert len(live) == len(live.items()) == len(live.values()) == 2
        assert "a" in live
        assert live.error is None
    with pytest.raises(errors.ConfigError, match="inside its with block"):
        bucket.live().get("a")
    with pytest.raises(errors.ClosedError, match="live bucket has ended"):
        live.get("a")


def test_blocking_lock_is_held_by_one_thread_at_a_time(bucket: Bucket) -> None:
    tokens: list[int] = []

    def work() -> None:
        for _ in range(3):
            with bucket.lock("job") as lock:
                tokens.append(lock.token)
                bucket.put("elsewhere")
                assert tokens[-1] == lock.token

    in_threads(4, lambda _: work())
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 12


def test_blocking_lock_that_is_lost_says_so(bucket: Bucket) -> None:
    with pytest.raises(errors.LockLostError), bucket.lock("job", lease=3, holder="ann") as lock:
        owner = bucket.lock("job").owner()
        assert owner is not None
        assert owner.holder == "ann"
        with pytest.raises(errors.RequestTimeoutError):
            bucket.lock("job").acquire(timeout=0.1)
        bucket.purge("job")
        lock.wait_lost()
        assert lock.lost
        assert not lock.held
    other = bucket.lock("job")
    other.acquire()
    other.release()


def test_blocking_election_is_iterated_and_calls_back(bucket: Bucket) -> None:
    states: queue.Queue[ElectionState] = queue.Queue()
    with bucket.election("leader", lease=3) as one:
        assert not one.next(30).leading
        for state in one:
            assert state.leading
            assert state.token == one.token
            break
        with bucket.election("leader", callback=states.put) as other:
            assert not states.get(timeout=30).leading
            one.resign()
            assert states.get(timeout=30).leading
            assert other.leading
            assert other.leader() is not None
    assert other.error is None


@pytest.mark.parametrize("end", ["close", "drain"])
def test_a_blocking_listing_that_the_client_ends_early_raises(
    shared_server: NatsServer, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(iterators.Listing, "_batch_size", 1)
    monkeypatch.setattr(watching, "MAX_ENTRIES_AT_ONCE", 0)
    monkeypatch.setattr(watch_module, "PULL_AHEAD", 1)
    for key in "abc":
        bucket.put(key)
    with connect(shared_server.url) as nc:
        keys = iter(nc.jetstream().bucket(bucket.name).keys())
        assert next(keys) == "a"
        getattr(nc, end)()
        with pytest.raises(errors.ConnectionClosedError):
            list(keys)
