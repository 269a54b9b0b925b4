"""Messages, or the whole stream, are taken away from under the query.

With failOnDataLoss it has to stop with an error that names what is gone, and the table holds
everything before the last committed position; without, the table holds what had been committed and
everything that the stream still has. What a batch under way had read before is in the table, too,
or not.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.chaos.campaign import Kind, Run
from tests.chaos.outcome import Outcome
from tests.chaos.reading_scene import STREAM, Scene, eventually, one_server, outcome
from tests.chaos.table import Message, batches, compare, rows

_NAMED = re.compile(r"sequences (\d+) to (\d+) were removed")
_ANOTHER = re.compile(r"it was (recreated|restored)")
_STOPPED_BY_ANOTHER = re.compile(f"{_ANOTHER.pattern}|is gone|not found")
"""A query that looks between the deletion and the creation says that there is none."""


def _reading(lenient: bool) -> dict[str, str]:
    return {"failOnDataLoss": str(not lenient).lower()}


def _losing(fault: Callable[[Scene], None], *, legal: bool = False) -> Kind:
    """A kind whose fault removes messages of the stream; `legal`: without anything being lost."""

    def kind(run: Run) -> Outcome:
        lenient = run.rng.random() < 0.5
        with one_server(run, read_as=_reading(lenient)) as scene:
            scene.fill(1)
            scene.proxy.slow(int(scene.bytes_per_batch / 0.5))
            scene.moment()
            before = scene.query.position().get(STREAM, 1)
            fault(scene)
            scene.proxy.slow(None)
            scene.hits += 1
            if lenient or legal:
                return _read_on(scene, before)
            return _stopped(scene)

    return kind


def _read_on(scene: Scene, before: int) -> Outcome:
    """What had been committed is there, and all that the stream still has."""
    scene.query.wait_until_read(scene.published.ends())
    scene.query.stop()
    held = scene.published.held(STREAM)
    every = scene.published.messages
    must = [message for message in every if message.seq < before or message.seq in held]
    return _verdict(scene, must, every, "went on")


def _verdict(scene: Scene, must: list[Message], may: list[Message], note: str) -> Outcome:
    findings = compare(rows(scene.query.table), must, may)
    return outcome(scene.hits, scene.query, findings, len(must), note=note)


def _stopped(scene: Scene) -> Outcome:
    """It has stopped and says why, unless nothing was lost to it."""
    error = scene.query.wait_until_stopped(_NAMED, scene.published.ends())
    held = scene.published.held(STREAM)
    if error:
        named = _NAMED.search(error)
        assert named is not None, error
        first, last = map(int, named.groups())
        assert first <= last < min(held, default=1 << 60), f"{error}; there are {min(held)} …"
    scene.query.stop()
    return _up_to_here(scene, "stopped" if error else "had read it before")


def _up_to_here(scene: Scene, note: str, position: int | None = None) -> Outcome:
    """The table has everything before a position, by default the committed one."""
    if position is None:
        position = scene.query.position().get(STREAM, 1)
    every = scene.published.messages
    return _verdict(scene, [one for one in every if one.seq < position], every, note)


# -- messages ------------------------------------------------------------------------------------


def _purge(scene: Scene) -> None:
    last = scene.published.ends()[STREAM] - 1
    seq, keep = scene.rng.choice([(None, None), (None, last // 3), (last // 2, None)])
    with scene.published.jetstream() as js:
        js.stream(STREAM).purge(seq=seq, keep=keep)
    scene.fill(0.5)


def _limit(scene: Scene) -> None:
    last = scene.published.ends()[STREAM] - 1
    keep = scene.rng.randrange(1, last)
    limit = {"max_msgs": keep} if scene.rng.random() < 0.5 else {"max_bytes": keep * 300}
    _update(scene, **limit)


def _expire(scene: Scene) -> None:
    half = timedelta(seconds=0.5)
    _update(scene, max_age=half, duplicate_window=half)
    eventually(lambda: not scene.published.held(STREAM), "the messages' end")
    _update(scene, max_age=timedelta(0))
    scene.fill(1)


def _update(scene: Scene, **changes: Any) -> None:
    with scene.published.jetstream() as js:
        js.stream(STREAM).update(**changes)


def _delete_some(scene: Scene) -> None:
    last = scene.published.ends()[STREAM] - 1
    with scene.published.jetstream() as js:
        for seq in scene.rng.sample(range(2, last), 40):
            js.stream(STREAM).delete_msg(seq)


# -- the stream ----------------------------------------------------------------------------------


def stream_deleted(run: Run) -> Outcome:
    """The query stops, or goes on without the stream and reads the one that comes in its place."""
    return _another_stream(run, 3.0, stops_before=re.compile("not found|is gone"))


def stream_recreated(run: Run) -> Outcome:
    """The same name, other messages, with the same sequences and more."""
    return _another_stream(run, 0.5)


def _another_stream(
    run: Run, longest_pause: float, stops_before: re.Pattern[str] | None = None
) -> Outcome:
    """`stops_before` it is made again: what a strict query says."""
    lenient = run.rng.random() < 0.5
    with one_server(run, read_as=_reading(lenient)) as scene:
        scene.moment()
        published, query = scene.published, scene.query
        before = query.position().get(STREAM, 1)
        old = list(published.messages)
        published.delete(STREAM)
        if stops_before is not None and not lenient:
            scene.hits += 1
            query.wait_until_stopped(stops_before)
            published.messages = old
            return _up_to_here(scene, "stopped")
        time.sleep(run.rng.random() * longest_pause)
        assert not query.ended() or not lenient, query.errors
        published.create(STREAM)
        published.fill(STREAM, len(old) + scene.batch, scene.size, generation=1)
        new = list(published.messages)
        scene.hits += 1
        if lenient:
            query.wait_until_read(published.ends())
            query.stop()
            must = [*(message for message in old if message.seq < before), *new]
            return _verdict(scene, must, old, "went on")
        query.wait_until_stopped(_STOPPED_BY_ANOTHER)
        published.messages = old
        return _up_to_here(scene, "stopped")


def stream_restored(run: Run) -> Outcome:
    """A backup takes the place of the stream: the query stops, or reads the restored one whole."""
    lenient = run.rng.random() < 0.5
    with one_server(run, read_as=_reading(lenient)) as scene:
        published, query = scene.published, scene.query
        last = query.committed
        with published.jetstream() as js:
            scene.fill(2)
            js.backup_stream(STREAM, run.folder / "backup")
        restored = list(published.messages)
        query.wait_for_batch(last + 1)
        query.stop()
        parts, before = set(batches(query.table)), query.position().get(STREAM, 1)
        with published.jetstream() as js:
            js.delete_stream(STREAM)
            js.restore_stream(run.folder / "backup")
        scene.hits += 1
        query.start()
        if not lenient:
            query.wait_until_stopped(_ANOTHER)
            return _up_to_here(scene, "stopped")
        eventually(lambda: _seen_twice(scene, restored, parts), "the restored stream")
        query.stop()
        committed = [message for message in restored if message.seq < before]
        first = compare(rows(query.table, parts), committed, restored)
        # A batch that had been planned but not committed is run again, on what there is now.
        second = compare(rows(query.table, set(batches(query.table)) - parts), restored)
        return outcome(1, query, first + second, before - 1 + len(restored), note="read it whole")


def _seen_twice(scene: Scene, restored: list[Message], parts: set[int]) -> bool:
    scene.query.keep_up()
    found = rows(scene.query.table, set(batches(scene.query.table)) - parts)
    return sum(1 for _ in found) >= len(restored)


def disk_set_back(run: Run) -> Outcome:
    """The server comes back with the disk of an hour ago: what was read is not there any more."""
    with one_server(run) as scene:
        (server,) = scene.servers
        copy = run.folder / "disk"
        server.stop()
        shutil.copytree(server.store_dir, copy)
        server.start()
        end = scene.published.ends()[STREAM]
        scene.fill(2)
        scene.query.wait_until_read({STREAM: end + 1})
        server.kill()
        shutil.rmtree(server.store_dir)
        shutil.copytree(copy, server.store_dir)
        server.start()
        scene.hits += 1
        scene.query.wait_until_stopped(re.compile("lost acknowledged messages"))
        return _up_to_here(scene, "stopped")


KINDS: dict[str, Kind] = {
    "messages purged": _losing(_purge),
    "limit lowered": _losing(_limit),
    "messages expired": _losing(_expire),
    "messages deleted one by one": _losing(_delete_some, legal=True),
    "stream deleted": stream_deleted,
    "stream recreated": stream_recreated,
    "stream restored from a backup": stream_restored,
    "disk set back": disk_set_back,
}
