"""A bucket: sixteen writers on four connections read, create, update and delete a hundred keys.

A watcher on a connection of its own, and a live mapping, see it all. Checked: revisions grow, and
each was acknowledged once at most; every acknowledged write is there, under its revision, with its
value; nothing is there that was refused, and what nobody heard of is there once at most; an update
stands on the revision that it named, a create on none or on a deletion. Then, key by key,
linearizability: of two operations, one of which ended before the other began, the later one saw or
made no older revision. The mapping, the history and the leader agree at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from dataclasses import dataclass

from tests.soak.kills_load import Load

from jetspark.errors import JetsparkError, KeyExistsError, KeyNotFoundError, WrongLastSequenceError
from jetspark.kv import Bucket, Entry, Operation

WRITERS, KEYS = 16, 100
_HISTORY = 64


@dataclass
class Done:
    """One operation: `revision` is what it saw or made, None when nobody knows."""

    kind: str
    key: str
    start: float
    end: float = 0.0
    revision: int | None = None
    value: bytes = b""
    last: int = 0
    """What an update or a delete named."""
    refused: bool = False


class BucketLoad(Load):
    """The last client watches, the others write."""

    CLIENTS = 5
    FAULTS = ("kill",)
    COMING_AND_GOING = 10

    async def begin(self) -> None:
        self.done: list[Done] = []
        self.seen: list[Entry] = []
        self._values = itertools.count()
        await (
            self.clients[-1]
            .jetstream()
            .create_bucket("soak", history=_HISTORY, replicas=len(self.servers))
        )
        *writing, self.watched = [
            await client.jetstream(timeout=1).bucket("soak") for client in self.clients
        ]
        ready = asyncio.Event()
        self.read(self._watch(ready))
        await ready.wait()
        self.live = await self._exit.enter_async_context(self.watched.live())
        for number in range(WRITERS):
            self.work(self._write_on(writing[number % len(writing)], self.rng.randrange(1 << 32)))

    async def _watch(self, ready: asyncio.Event) -> None:
        async for entry in self.watched.watch(updates_only=True):
            if entry is None:
                ready.set()
            else:
                self.seen.append(entry)

    async def _write_on(self, bucket: Bucket, seed: int) -> None:
        rng = random.Random(seed)
        while not self.stopping:
            key = f"key.{rng.randrange(KEYS)}"
            known = await self._read(bucket, key)
            if known is None:
                await asyncio.sleep(0.02)
                continue
            last, there = known
            kind = "create"
            if there:
                kind = "delete" if rng.random() < 0.2 else "update"
            await self._write(bucket, kind, key, last)

    async def _read(self, bucket: Bucket, key: str) -> tuple[int, bool] | None:
        """The revision and whether there is a value; None when it could not be read."""
        op = Done("read", key, _now())
        there = True
        try:
            entry = await bucket.get(key, leader=True)
            op.revision, op.value = entry.revision, entry.value
        except KeyNotFoundError as error:
            op.revision, there = error.revision or 0, False
        except JetsparkError:
            return None
        op.end = _now()
        self.done.append(op)
        return op.revision, there

    async def _write(self, bucket: Bucket, kind: str, key: str, last: int) -> None:
        op = Done(kind, key, _now(), last=last)
        try:
            if kind == "delete":
                op.revision = await bucket.delete(key, last)
            else:
                op.value = b"%d" % next(self._values)
                if kind == "create":
                    op.revision = await bucket.create(key, op.value)
                else:
                    op.revision = await bucket.update(key, op.value, last)
        except (WrongLastSequenceError, KeyExistsError):
            op.refused = True
        except JetsparkError:
            pass  # killed: nobody knows
        op.end = _now()
        self.done.append(op)

    async def progress(self) -> None:
        """The watcher has seen what was written after now."""
        before, now = self.seen[-1].revision if self.seen else 0, _now()

        def seen() -> bool:
            known = max((op.revision or 0 for op in self.done[-50:] if op.start > now), default=0)
            return known > before and bool(self.seen) and self.seen[-1].revision >= known

        await self.until(seen)

    async def check(self) -> None:
        last = (await self.watched.status()).stream_state.last_seq
        await self.until(lambda: self.seen[-1].revision >= last)
        check(self.done, self.seen)
        await self._agree()
        writes = [op for op in self.done if op.kind != "read"]
        figures = self.figures
        figures.received = len(self.seen)
        figures.sent = len(writes)
        figures.acknowledged = sum(op.revision is not None for op in writes)
        figures.refused = sum(op.refused for op in writes)
        figures.unknown = figures.sent - figures.acknowledged - figures.refused

    async def _agree(self) -> None:
        """The watch, the mapping, the history and the leader on what there is."""
        last = {entry.key: entry for entry in self.seen}
        values = {key: one.value for key, one in last.items() if one.operation is Operation.PUT}
        await self.until(lambda: self.live.snapshot() == values)
        assert set(await self.watched.keys().all()) == set(values)
        history = await self.watched.history().all()
        kept: dict[str, list[int]] = defaultdict(list)
        for entry in self.seen:
            kept[entry.key].append(entry.revision)
        expected = sorted(number for numbers in kept.values() for number in numbers[-_HISTORY:])
        assert [entry.revision for entry in history] == expected
        for key, value in values.items():
            assert await self.watched.get_value(key, leader=True) == value


def _now() -> float:
    return asyncio.get_running_loop().time()


# -- the oracle ----------------------------------------------------------------------------------


def check(done: list[Done], seen: list[Entry]) -> None:
    """Raises AssertionError for what must not be."""
    revisions = [entry.revision for entry in seen]
    assert revisions == sorted(set(revisions)), "the watch repeats or goes back"
    entries = {entry.revision: entry for entry in seen}
    writes = [op for op in done if op.kind != "read"]
    _acknowledged(writes, entries)
    _nothing_else(writes, seen)
    by_key: dict[str, list[Done]] = defaultdict(list)
    for op in done:
        if op.revision is not None:
            by_key[op.key].append(op)
    for key, operations in by_key.items():
        _chain(operations, [entry for entry in seen if entry.key == key])
        _linearizable(key, operations, entries)


def _acknowledged(writes: list[Done], entries: dict[int, Entry]) -> None:
    numbers: set[int] = set()
    for op in writes:
        if op.revision is None:
            continue
        assert op.revision not in numbers, f"revision {op.revision} was acknowledged twice"
        numbers.add(op.revision)
        entry = entries.get(op.revision)
        assert entry is not None, f"acknowledged and missing: {op}"
        assert (entry.key, entry.value) == (op.key, op.value), (op, entry)
        assert (entry.operation is Operation.DEL) == (op.kind == "delete"), (op, entry)


def _nothing_else(writes: list[Done], seen: list[Entry]) -> None:
    made = {op.value: op for op in writes if op.kind != "delete"}
    found: set[bytes] = set()
    for entry in seen:
        if entry.operation is Operation.PUT:
            op = made[entry.value]
            assert not op.refused, f"refused and there: {op}"
            assert entry.value not in found, f"there twice: {op}"
            assert op.key == entry.key
            found.add(entry.value)
    deletions = sum(entry.operation is Operation.DEL for entry in seen)
    possible = sum(op.kind == "delete" and not op.refused for op in writes)
    assert deletions <= possible


def _chain(operations: list[Done], entries: list[Entry]) -> None:
    """What each write stands on. `entries`: those of the key, in order."""
    before = {
        entry.revision: previous
        for previous, entry in itertools.pairwise([None, *entries])
        if entry
    }
    for op in operations:
        assert op.revision is not None
        previous = before.get(op.revision)
        if op.kind in ("update", "delete"):
            assert previous is not None, op
            assert previous.revision == op.last, (op, previous)
        elif op.kind == "create":
            assert previous is None or previous.operation is Operation.DEL, (op, previous)


def _linearizable(key: str, operations: list[Done], entries: dict[int, Entry]) -> None:
    ends = sorted((op.end, op.revision or 0) for op in operations)
    newest, ended = 0, 0
    for op in sorted(operations, key=lambda op: op.start):
        while ended < len(ends) and ends[ended][0] < op.start:
            newest = max(newest, ends[ended][1])
            ended += 1
        assert op.revision is not None
        least = newest if op.kind == "read" else newest + 1
        assert op.revision >= least, f"{key}: {op} is behind revision {newest}"
        if op.kind == "read" and op.revision:
            entry = entries[op.revision]
            assert (entry.key, entry.value) == (key, op.value), (op, entry)
