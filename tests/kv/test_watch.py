"""Watching, listing keys and histories: what comes, in which order, and where the mark stands."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import NeedsServer, Reported, Unique
from tests.jetstream.conftest import has_consumers
from tests.jetstream.eventually import eventually
from tests.kv.conftest import ALL, HISTORY, put_at_last, shown, take
from tests.support.cluster import Cluster

from jetspark import errors
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import ordered, watching
from jetspark.jetstream.consumers import create_ephemeral
from jetspark.kv import Base64Codec, Bucket, Entry, ZlibCodec
from jetspark.kv import watch as watch_module
from jetspark.server import NatsServer


@pytest.mark.parametrize(
    ("keys", "options", "initially"),
    [
        (">", {}, ALL),
        ("a.*", {}, ALL[1:]),
        ("a.1", {}, ALL[1:2]),
        ("*", {}, ALL[:1]),
        ("nobody", {}, []),
        (">", {"include_history": True}, HISTORY),
        ("a.2", {"include_history": True}, [("a.2", b"2", 2), ("a.2", "DEL")]),
        (">", {"ignore_deletes": True}, ALL[:2]),
        (">", {"updates_only": True}, []),
        (">", {"resume_from": 3}, ALL),
        (">", {"resume_from": 4}, ALL[1:]),
        (">", {"resume_from": 6}, []),
        ("b", {"resume_from": 4}, []),
        (">", {"meta_only": True}, [("b", b"", 3), ("a.1", b"", 4), ("a.2", "DEL")]),
    ],
)
async def test_a_watch_gives_current_entries_then_none_once_then_changes(
    filled: Bucket, keys: str, options: dict[str, Any], initially: list[Any]
) -> None:
    async with filled.watch(keys, **options) as changes:
        assert shown(await take(changes, len(initially) + 1)) == [*initially, None]
        assert changes.complete
        key = {">": "a.1", "*": "b", "a.*": "a.2"}.get(keys, keys)
        meta_only = "meta_only" in options
        assert await filled.put(key, b"new") == 6
        assert shown(await take(changes, 1)) == [(key, b"" if meta_only else b"new", 6)]
        await filled.delete(key)
        await filled.put(key, b"newer")
        wanted: list[Any] = [(key, "DEL"), (key, b"" if meta_only else b"newer", 8)]
        if "ignore_deletes" in options:
            del wanted[0]
        assert shown(await take(changes, len(wanted))) == wanted


async def test_a_watch_may_resume_ahead_of_the_bucket(filled: Bucket) -> None:
    async with filled.watch(resume_from=8) as changes:
        assert await changes.next(10) is None
        for number in (6, 7, 8, 9):
            await filled.put("n", b"%d" % number)
        assert shown(await take(changes, 2)) == [("n", b"8", 8), ("n", b"9", 9)]
        await filled.client.force_reconnect()
        await filled.put("n", b"10")
        assert shown(await take(changes, 1)) == [("n", b"10", 10)]


async def test_watch_with_several_filters_gives_matching_keys(filled: Bucket) -> None:
    server = filled.client.server_info
    assert server is not None
    if not server.at_least(2, 10):
        for call in (filled.watch, filled.keys, filled.history, filled.live):
            with pytest.raises(errors.UnsupportedByServerError, match="several filters"):
                call(["b", "a.2"])
        return
    async with filled.watch(["b", "a.2"]) as changes:
        assert shown(await take(changes, 3)) == [ALL[0], ALL[2], None]
        await filled.put("a.1", b"")
        await filled.put("b", b"5")
        assert shown(await take(changes, 1)) == [("b", b"5", 7)]
    assert await filled.keys(["a.*", "b"]).all() == ["a.1", "b"]


@pytest.mark.parametrize(
    "options", [{}, {"updates_only": True}, {"include_history": True}, {"ignore_deletes": True}]
)
async def test_a_watch_on_an_empty_bucket_gives_none_at_once(
    bucket: Bucket, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "ignore_deletes" in options:  # to this one it is empty
        await bucket.delete("k")
    with monkeypatch.context() as never:
        never.setattr(watching, "LOOK_AFTER", 1000)
        async with asyncio.timeout(30), bucket.watch(**options) as changes:
            assert await anext(changes) is None
    async with bucket.watch(**options) as changes:
        assert await take(changes, 1) == [None]
        revision = await bucket.put("k", b"1")
        assert shown(await take(changes, 1)) == [("k", b"1", revision)]


async def test_constant_writers_do_not_delay_the_end_of_the_initial_data(bucket: Bucket) -> None:
    for number in range(50):
        await bucket.put(f"k{number}", b"")

    async def write() -> None:
        while True:
            await asyncio.gather(*(bucket.put(f"k{number % 50}") for number in range(20)))

    writing = asyncio.create_task(write())
    try:
        async with bucket.watch() as changes, asyncio.timeout(30):
            entries = []
            while (entry := await anext(changes)) is not None:
                entries.append(entry)
    finally:
        writing.cancel()
    assert {entry.key for entry in entries} == {f"k{number}" for number in range(50)}
    revisions = [entry.revision for entry in entries]
    assert revisions == sorted(set(revisions))


@pytest.fixture
def before_creation(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Awaits a function before each ordered consumer is created."""

    def patch(before: Callable[[], Awaitable[None]]) -> None:
        async def late(*arguments: Any) -> Any:
            await before()
            return await create_ephemeral(*arguments)

        monkeypatch.setattr(ordered, "create_ephemeral", late)

    return patch


async def test_the_initial_data_ends_when_its_last_entry_was_removed(
    js: JetStream, bucket: Bucket, before_creation: Any
) -> None:
    await bucket.put("a", b"1")
    await bucket.put("b", b"2")
    before_creation(lambda: js.stream(bucket.stream).purge(filter=f"$KV.{bucket.name}.b"))
    async with bucket.watch() as changes:
        assert shown(await take(changes, 2)) == [("a", b"1", 1), None]


async def test_silence_does_not_end_the_initial_data(bucket: Bucket, before_creation: Any) -> None:
    await bucket.put("a", b"1")
    gate = asyncio.Event()
    before_creation(gate.wait)
    changes = bucket.watch()
    first = asyncio.ensure_future(anext(changes))
    done, _ = await asyncio.wait({first}, timeout=3 * watching.LOOK_AFTER)
    assert not done
    gate.set()
    assert shown([await first]) == [("a", b"1", 1)]
    assert await take(changes, 1) == [None]
    changes.stop()


@pytest.mark.parametrize("filled_before", [False, True])
async def test_a_watch_whose_consumer_cannot_be_created_at_first(
    bucket: Bucket, before_creation: Any, filled_before: bool
) -> None:
    """Before anything was given out the caller hears of it; after that it is tried again."""
    if filled_before:
        await bucket.put("k", b"1")
    error = errors.RequestTimeoutError("slow")
    failures: list[errors.JetsparkError] = [error]

    async def fail() -> None:
        if failures:
            raise failures.pop()

    before_creation(fail)
    changes = bucket.watch()
    with pytest.raises(errors.RequestTimeoutError, match="slow"):
        await changes.__aenter__()
    assert changes.error is error
    failures += [errors.APIError(503, 10008, "JetStream system temporarily unavailable"), error]
    await bucket.put("k", b"1")
    revision = await bucket.put("k", b"2")
    async with bucket.watch(resume_from=revision) as changes:
        assert not failures
        assert shown(await take(changes, 2)) == [("k", b"2", revision), None]


async def test_a_consumer_lost_during_the_initial_data_repeats_no_entry(
    js: JetStream, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a history, nor one that was no key's last; every later one comes."""
    monkeypatch.setattr(watch_module, "PULL_AHEAD", 10)
    monkeypatch.setattr(watching, "MAX_ENTRIES_AT_ONCE", 1)
    for turn in range(2):
        for number in range(100):
            await bucket.put(f"k{number}", b"%d" % turn)
    async with bucket.watch(heartbeat=0.5) as changes:
        entries = await take(changes, 20)
        [name] = await js.stream(bucket.stream).consumer_names().all()
        await js.stream(bucket.stream).delete_consumer(name)
        for number in range(10, 100):
            await bucket.put(f"k{number}", b"2")
            await bucket.put(f"k{number}", b"3")
        while entries[-1] is not None:
            entries += await take(changes, 1)
        rest = await take(changes, 380 - max(e.revision for e in entries if e is not None))
    seen = [entry for entry in entries if entry is not None]
    revisions = [entry.revision for entry in seen]
    assert revisions == sorted(set(revisions))
    assert {entry.key for entry in seen} == {f"k{number}" for number in range(100)}
    assert min(revisions) > 100  # no first value
    later = [entry.revision for entry in seen + rest if entry is not None and entry.revision > 200]
    assert later == list(range(201, 381))


async def test_a_watch_survives_a_server_restart(nats_server: NatsServer) -> None:
    async with connect(nats_server.url, reconnect_wait=0.05, max_reconnect_attempts=-1) as nc:
        bucket = await nc.jetstream(timeout=5).create_bucket("B", history=10)
        await bucket.put("k", b"0")
        async with bucket.watch() as changes, bucket.watch(updates_only=True) as updates:
            assert len(await take(changes, 2)) == 2
            assert await take(updates, 1) == [None]
            for turn in range(1, 4):
                await asyncio.to_thread(nats_server.kill)
                await asyncio.to_thread(nats_server.start)
                revision = await put_at_last(bucket, "k", b"%d" % turn)
                async with asyncio.timeout(30):
                    for watched in (changes, updates):
                        last = await anext(watched)
                        while last is not None and last.revision < revision:
                            last = await anext(watched)
                        assert shown([last]) == [("k", b"%d" % turn, revision)]


@pytest.mark.parametrize("end", ["stop", "close"])
async def test_stopping_a_watch_or_closing_the_connection_ends_the_iteration(
    shared_server: NatsServer, filled: Bucket, end: str
) -> None:
    nc = await connect(shared_server.url)
    bucket = await nc.jetstream().bucket(filled.name)
    watcher = bucket.watch()
    await take(watcher, 4)
    waiting = asyncio.ensure_future(anext(watcher, "end"))
    await asyncio.sleep(0)
    if end == "stop":
        watcher.stop()
    else:
        await nc.close()
    assert await asyncio.wait_for(waiting, 30) == "end"
    await nc.close()
    with pytest.raises(errors.ConnectionClosedError):
        await bucket.keys().all()


async def test_leaving_the_loop_deletes_the_consumer(js: JetStream, filled: Bucket) -> None:
    async for entry in filled.watch():
        if entry is None:
            break
    async for _ in filled.keys():
        break
    await has_consumers(js, filled.stream)


async def test_a_bucket_that_is_deleted_ends_the_watch(
    js: JetStream, filled: Bucket, reported: Reported
) -> None:
    async with filled.watch() as changes, filled.watch(callback=lambda entry: None):
        await take(changes, 4)
        await js.delete_bucket(filled.name)
        with pytest.raises(errors.BucketNotFoundError) as caught:
            await take(changes, 1)
        assert changes.error is caught.value
        # That the callback gets no more.
        await eventually(lambda: errors.BucketNotFoundError in map(type, reported))
    with pytest.raises(errors.BucketNotFoundError):
        await take(filled.watch(), 1)
    with pytest.raises(errors.BucketNotFoundError):
        await filled.keys().all()


@pytest.mark.parametrize("drains", [True, False])
async def test_close_ends_watch_callbacks_and_drain_finishes_them(
    shared_server: NatsServer, bucket: Bucket, drains: bool
) -> None:
    for number in range(20):
        await bucket.put(f"k{number}")
    heard: list[Entry | None] = []
    begun, gate = asyncio.Event(), asyncio.Event()

    async def on_entry(entry: Entry | None) -> None:
        heard.append(entry)
        begun.set()
        await gate.wait()

    nc = await connect(shared_server.url)
    watcher = (await nc.jetstream().bucket(bucket.name)).watch(callback=on_entry)
    await asyncio.wait_for(begun.wait(), 30)
    ending = asyncio.create_task(nc.drain(30) if drains else nc.close())
    await asyncio.sleep(0)
    if drains:
        gate.set()
    await asyncio.wait_for(ending, 30)
    assert watcher.callback_task is not None
    assert watcher.callback_task.done()
    assert len(heard) == (21 if drains else 1)


async def test_undecodable_entries_are_reported_and_left_out(nc: Client, bucket: Bucket) -> None:
    await bucket.put("k", b"plain")
    coded = bucket.with_codecs(keys=Base64Codec(), values=ZlibCodec())
    await bucket.put("cGxhaW4", b"no zlib")
    await coded.put("key", b"value")
    async with coded.watch() as changes:
        assert shown(await take(changes, 2)) == [("key", b"value", 3), None]
    assert "zlib" in str(nc.last_error)
    assert [entry.key async for entry in coded.history()] == ["key"]
    assert await coded.keys("key").all() == ["key"]


async def test_impossible_watch_options_are_refused(bucket: Bucket) -> None:
    wrong: list[tuple[Any, dict[str, Any]]] = [
        *(("a b", {}), ("", {}), ([], {}), (["a", "b.>.c"], {}), (["a.*", "b", "a.1"], {})),
        *((["a", "a"], {}), (">", {"include_history": True, "updates_only": True})),
        *((">", {"updates_only": True, "resume_from": 1}), (">", {"resume_from": 0})),
        *((">", {"heartbeat": 0.4}), (">", {"heartbeat": 16})),
    ]
    for keys, options in wrong:
        with pytest.raises(errors.ConfigError):
            bucket.watch(keys, **options)


async def test_limits_leave_markers_that_watchers_get(
    js: JetStream, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    second = timedelta(seconds=1)
    bucket = await js.create_bucket(
        unique("TTL"), limit_marker_ttl=timedelta(minutes=5), storage="memory"
    )
    async with bucket.watch() as changes:
        assert await take(changes, 1) == [None]
        await bucket.create("short", b"1", ttl=second)
        await bucket.put("stays", b"2")
        assert shown(await take(changes, 3)) == [
            ("short", b"1", 1),
            ("stays", b"2", 2),
            ("short", "PURGE"),
        ]
        assert await bucket.keys().all() == ["stays"]
        assert await bucket.create("short", b"again") == 4
        await take(changes, 1)
        # The purge itself goes after its time.
        await bucket.purge("stays", ttl=second)
        assert shown(await take(changes, 1)) == [("stays", "PURGE")]

        async def forgotten() -> bool:
            return await bucket.history("stays").all() == []

        await eventually(forgotten)
    await js.delete_bucket(bucket.name)


async def test_a_watch_survives_leader_changes(nats_cluster: Cluster, unique: Unique) -> None:
    async with connect(nats_cluster.urls[0]) as nc:
        js = nc.jetstream(timeout=5)
        bucket = await js.create_bucket(unique("R3"), replicas=3, history=64)
        acknowledged: list[int] = []

        async def write_all() -> None:
            for number in range(120):
                acknowledged.append(await put_at_last(bucket, "k", b"%d" % number))
                if number % 40 == 20:
                    with suppress(errors.APIError):  # no leader now: there will be a new one
                        await js.stream(bucket.stream).step_down_leader()
            acknowledged.append(await put_at_last(bucket, "end", b""))

        seen: list[int] = []
        async with bucket.watch() as changes, asyncio.timeout(60):
            assert await anext(changes) is None
            writing = asyncio.create_task(write_all())
            async for entry in changes:
                assert entry is not None
                seen.append(entry.revision)
                if entry.key == "end":
                    break
            await writing
        assert seen == list(range(1, seen[-1] + 1))
        assert set(acknowledged) <= set(seen)
        await js.delete_bucket(bucket.name)


async def test_next_waits_for_an_entry_until_its_timeout(bucket: Bucket) -> None:
    await bucket.put("a", b"1")
    async with bucket.watch() as watch:
        assert shown([await watch.next(timedelta(seconds=20))]) == [("a", b"1", 1)]
        assert await watch.next(20) is None
        with pytest.raises(errors.RequestTimeoutError, match=r"0\.1 s"):
            await watch.next(timeout=0.1)
        await bucket.put("b", b"2")
        assert shown([await watch.next()]) == [("b", b"2", 2)]
        watch.stop()
        with pytest.raises(errors.ClosedError):
            await watch.next(1)
    with pytest.raises(errors.ConfigError):
        await bucket.watch(callback=print).next(1)


# -- keys, history, and the removal of old delete markers --------------------------------------


async def test_keys_are_those_with_a_value(filled: Bucket) -> None:
    assert await filled.keys().all() == ["b", "a.1"]
    assert [key async for key in filled.keys("a.*")] == ["a.1"]
    assert await filled.keys("nobody.>").all() == []
    with pytest.raises(errors.BadNameError):
        filled.keys("a b")


async def test_history_of_a_key_and_of_many(filled: Bucket) -> None:
    assert shown(await filled.history("a.1").all()) == [("a.1", b"1", 1), ("a.1", b"4", 4)]
    assert shown(await filled.history("a.*").all()) == [*HISTORY[:2], *ALL[1:]]
    entries = await filled.history().all()
    assert [entry.delta for entry in entries] == [4, 3, 2, 1, 0]
    assert await filled.history("nobody").all() == []


async def test_purge_deletes_removes_old_markers(filled: Bucket) -> None:
    await filled.put("c", b"")
    await filled.purge("c")
    assert await filled.purge_deletes() == 0
    assert await filled.purge_deletes(older_than=math.inf) == 0
    with pytest.raises(errors.BadTimeoutError):
        await filled.purge_deletes(older_than=math.nan)
    # Young markers stay, what was before them goes.
    assert shown(await filled.history("a.2").all()) == [("a.2", "DEL")]
    assert await filled.purge_deletes("c", older_than=timedelta(0)) == 1
    assert await filled.purge_deletes(older_than=timedelta(0)) == 1
    assert shown(await filled.history().all()) == [("a.1", b"1", 1), *ALL[:2]]


@pytest.mark.parametrize("end", ["close", "drain"])
@pytest.mark.parametrize("call", ["keys", "history", "watch"])
async def test_a_listing_that_the_client_ends_early_raises(
    shared_server: NatsServer, filled: Bucket, monkeypatch: pytest.MonkeyPatch, call: str, end: str
) -> None:
    monkeypatch.setattr(watching, "MAX_ENTRIES_AT_ONCE", 0)
    monkeypatch.setattr(watch_module, "PULL_AHEAD", 1)
    async with connect(shared_server.url) as nc:
        bucket = await nc.jetstream().bucket(filled.name)
        entries = aiter(getattr(bucket, call)())
        assert await anext(entries)
        await getattr(nc, end)()
        with pytest.raises(errors.ConnectionClosedError, match="before all entries came"):
            async for entry in entries:
                assert entry is not None
