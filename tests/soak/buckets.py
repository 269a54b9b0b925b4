"""A bucket under load and kills: `python -m tests.soak.buckets --seconds 60 --kills 10`.

Sixteen writers on four connections read, create, update and delete a hundred keys while the server
is killed (kill -9) and started again. A watcher on a connection of its own, and a live mapping, see
it all. Checked: revisions grow, and each was acknowledged once at most; every acknowledged write is
there, under its revision, with its value; nothing is there that was refused, and what nobody heard
of is there once at most; an update stands on the revision that it named, a create on none or on a
deletion. Then, key by key, linearizability: of two operations, one of which ended before the other
began, the later one saw or made no older revision. The mapping, the history and the leader agree at
the end, and after each kill the watch goes on within `RECOVERED_WITHIN`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import random
import sys
from collections import defaultdict
from dataclasses import dataclass, field

from tests.jetstream.eventually import eventually

import jetspark
from jetspark.errors import (
    JetsparkError,
    KeyExistsError,
    KeyNotFoundError,
    WrongLastSequenceError,
)
from jetspark.kv import Bucket, Entry, LiveBucket, Operation
from jetspark.server import NatsServer

WRITERS, CONNECTIONS, KEYS = 16, 4, 100
RECOVERED_WITHIN = 5.0  # seconds
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


@dataclass
class Figures:
    """What happened."""

    kills: int = 0
    reads: int = 0
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    entries: int = 0
    longest_recovery: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills; {self.reads:,} reads, {self.acknowledged:,} writes acknowledged, "
            f"{self.refused:,} refused, {self.unknown:,} unknown; "
            f"{self.entries:,} entries watched; longest recovery {self.longest_recovery:.2f} s"
        )


@dataclass
class Load:
    """The writers, the watcher, and what they did and saw."""

    seed: int
    done: list[Done] = field(default_factory=list)
    seen: list[Entry] = field(default_factory=list)
    stopping: bool = False
    values: itertools.count[int] = field(default_factory=itertools.count)

    async def write(self, bucket: Bucket, number: int) -> None:
        rng = random.Random(self.seed * 1000 + number)
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
                op.value = b"%d" % next(self.values)
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

    async def watch(self, bucket: Bucket, ready: asyncio.Event) -> None:
        async for entry in bucket.watch(updates_only=True):
            if entry is None:
                ready.set()
                continue
            self.seen.append(entry)

    async def recovered(self) -> None:
        """Returns when the watcher has seen what was written after now."""
        before = self.seen[-1].revision if self.seen else 0
        now = _now()
        while True:
            known = max((op.revision or 0 for op in self.done[-50:] if op.start > now), default=0)
            if known > before and self.seen and self.seen[-1].revision >= known:
                return
            await asyncio.sleep(0.01)


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


# -- the campaign --------------------------------------------------------------------------------


async def campaign(server: NatsServer, seconds: float, kills: int, seed: int = 0) -> Figures:
    """Raises AssertionError, or TimeoutError when something hangs."""
    figures, load, rng = Figures(), Load(seed), random.Random(seed)

    def connecting() -> jetspark.full_client.Connecting:
        return jetspark.connect(server.url, reconnect_wait=0.05, max_reconnect_attempts=-1)

    clients = [await connecting() for _ in range(CONNECTIONS + 1)]
    try:
        *writing, watching = clients
        await watching.jetstream().create_bucket("soak", history=_HISTORY)
        buckets = [await client.jetstream(timeout=1).bucket("soak") for client in writing]
        watched = await watching.jetstream(timeout=1).bucket("soak")
        ready = asyncio.Event()
        watcher = asyncio.create_task(load.watch(watched, ready))
        await asyncio.wait_for(ready.wait(), RECOVERED_WITHIN)
        async with watched.live() as live:
            tasks = [
                asyncio.create_task(load.write(buckets[number % CONNECTIONS], number))
                for number in range(WRITERS)
            ]
            end = _now() + seconds
            for turn in range(kills):
                pause = seconds / (kills + 1) * (0.5 + rng.random())
                await asyncio.sleep(max(min(pause, end - _now()), 0))
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(rng.random() * 0.3)
                await asyncio.to_thread(server.start)
                up = _now()
                await asyncio.wait_for(load.recovered(), RECOVERED_WITHIN)
                figures.longest_recovery = max(figures.longest_recovery, _now() - up)
                figures.kills = turn + 1
                print(f"kill {turn + 1}: {len(load.done):,} operations", file=sys.stderr)
            await asyncio.sleep(max(end - _now(), 0))
            load.stopping = True
            await asyncio.wait_for(asyncio.gather(*tasks), 30)
            await _all_seen(load, watched)
            check(load.done, load.seen)
            await _agree(load, watched, live)
        assert not watcher.done()
        watcher.cancel()
    finally:
        for client in clients:
            await client.close()
    writes = [op for op in load.done if op.kind != "read"]
    figures.reads = len(load.done) - len(writes)
    figures.acknowledged = sum(op.revision is not None for op in writes)
    figures.refused = sum(op.refused for op in writes)
    figures.unknown = len(writes) - figures.acknowledged - figures.refused
    figures.entries = len(load.seen)
    return figures


async def _all_seen(load: Load, bucket: Bucket) -> None:
    last = (await bucket.status()).stream_state.last_seq

    async def holds() -> bool:
        return load.seen[-1].revision >= last

    await eventually(holds)


async def _agree(load: Load, bucket: Bucket, live: LiveBucket) -> None:
    """The watch, the mapping, the history and the leader on what there is."""
    last = {entry.key: entry for entry in load.seen}
    values = {key: one.value for key, one in last.items() if one.operation is Operation.PUT}

    async def holds() -> bool:
        return live.snapshot() == values

    await eventually(holds)
    assert set(await bucket.keys().all()) == set(values)
    history = await bucket.history().all()
    kept: dict[str, list[int]] = defaultdict(list)
    for entry in load.seen:
        kept[entry.key].append(entry.revision)
    expected = sorted(number for numbers in kept.values() for number in numbers[-_HISTORY:])
    assert [entry.revision for entry in history] == expected
    for key, value in values.items():
        assert await bucket.get_value(key, leader=True) == value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    with NatsServer() as server:
        print(asyncio.run(campaign(server, options.seconds, options.kills, options.seed)))


if __name__ == "__main__":
    main()
