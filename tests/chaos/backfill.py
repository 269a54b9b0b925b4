"""The campaign of backfills: `python -m tests.chaos backfill --runs 100 --seed 1`.

Each run reads a range through a snapshot over a slow link, and once a random part of the rows has
come, something breaks. Then every message is there once, in order, as it was published; or there
is a typed error, and what came before it is right.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.chaos.campaign import Kind, Kinds, Run
from tests.chaos.outcome import Outcome
from tests.chaos.proxy import Proxy
from tests.support.cluster import Cluster
from tests.support.server_lines import server_of
from tests.support.streams import Admin

from jetspark.bulk import links
from jetspark.bulk.ranges import ReadLimits, SequenceRange
from jetspark.bulk.reader import read_range
from jetspark.connection.options import make_options
from jetspark.errors import DataLossError, JetsparkError, StreamNotFoundError, StreamRecreatedError
from jetspark.server import NatsServer

STREAM = "S"
_RATE = 12 << 20  # bytes per second on the link
_LIMITS = ReadLimits(max_rows=500, max_bytes=1 << 20, timeout=90)
_BULK = 4096  # a piece of at least so many bytes is one of an archive


@dataclass
class Scene:
    """One stream on a server behind a proxy, and what is read of it."""

    run: Run
    server: NatsServer
    proxy: Proxy
    count: int = 0
    gone: set[int] = field(default_factory=set)
    """Sequences that were removed meanwhile."""
    single: bool = False
    """They were removed one by one, so they may be missing without an error."""
    faults: int = 0
    spoils: bool = False
    """The fault is bytes that the proxy changes."""

    @property
    def rng(self) -> random.Random:
        return self.run.rng

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        with Admin(self.server.url) as admin:
            yield admin


def payload(incarnation: str, sequence: int) -> bytes:
    """The bytes of a message, which tell which one it is."""
    rng = random.Random(sequence)
    return f"{incarnation}:{sequence}:".encode() + rng.randbytes(rng.choice((0, 200, 1500)))


def fill(admin: Admin, incarnation: str, count: int) -> None:
    admin.create(STREAM, "s.>")
    admin.fill([(f"s.{n % 9}", payload(incarnation, n)) for n in range(1, count + 1)])


def backfill(
    run: Run,
    act: Callable[[Scene], None],
    *allowed: type[JetsparkError],
    line: str | None = None,
    strict: bool = True,
    times: int = 1,
) -> Outcome:
    """Read while `act` breaks something; only the `allowed` errors may end it.

    `times`: a stream so much larger, of which the server has not sent everything yet.
    """
    binary = None if line is None else server_of(line)
    with NatsServer(binary=binary) as server, Proxy(server.port) as proxy:
        scene = Scene(run, server, proxy, times * run.rng.randint(12_000, 25_000))
        with scene.admin() as admin:
            fill(admin, "old", scene.count)
            facts = admin.facts(STREAM)
        proxy.slow(_RATE)
        wanted = SequenceRange(
            STREAM, 1, scene.count + 1, facts.created, snapshot=True, blocking=line is not None
        )
        try:
            return _read(scene, f"nats://127.0.0.1:{proxy.port}", wanted, act, allowed, strict)
        finally:
            links.pool.close()


def _read(
    scene: Scene,
    servers: str,
    wanted: SequenceRange,
    act: Callable[[Scene], None],
    allowed: tuple[type[JetsparkError], ...],
    strict: bool,
) -> Outcome:
    threshold = scene.rng.randint(1, scene.count * 2 // 3)
    found: dict[int, bytes] = {}
    last = repeated = unordered = 0
    at = 0.0
    ended = ""
    options = make_options(servers, connect_timeout=5)
    longest = 0.0
    interrupted = _Interruptions()
    try:
        for batch in read_range(options, wanted, _LIMITS, fail_on_data_loss=strict):
            if scene.faults:
                longest = max(longest, time.monotonic() - at)
            at = time.monotonic()
            for sequence, data in zip(
                batch["seq"].to_pylist(), batch["data"].to_pylist(), strict=True
            ):
                repeated += sequence in found
                unordered += sequence <= last
                last = sequence
                found[sequence] = data
            if not scene.faults and len(found) >= threshold:
                act(scene)
                scene.faults += 1
                at = time.monotonic()
    except allowed as error:
        ended = f"ended by {type(error).__name__}"
    finally:
        interrupted.stop()
    if scene.spoils:  # a fault that no byte has met is none
        scene.faults = scene.proxy.corrupted
    missing = 0
    if not ended:
        gone = scene.gone if not strict or scene.single else set()
        missing = len(set(range(1, scene.count + 1)) - found.keys() - gone)
    unexpected = sum(data != payload("old", sequence) for sequence, data in found.items())
    note = "; ".join(filter(None, (f"{interrupted.count} interrupted", ended)))
    return Outcome(
        scene.faults, scene.count, missing, repeated, unexpected, unordered, longest, note
    )


class _Interruptions(logging.Handler):
    """Counts how often the reader had to go on over another link."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0
        self._logger = logging.getLogger("jetspark.bulk")
        self._logger.setLevel(logging.WARNING)
        self._logger.propagate = False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "continuing from sequence" in record.getMessage()

    def stop(self) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True
        self._logger.setLevel(logging.NOTSET)


# -- what breaks -------------------------------------------------------------------------------


def _killed(scene: Scene) -> None:
    scene.server.kill()
    time.sleep(scene.rng.uniform(0, 1))
    scene.server.start()


def _stopped(scene: Scene) -> None:
    scene.server.stop()
    scene.server.start()


def _cut(scene: Scene) -> None:
    scene.proxy.cut()


def _refused(scene: Scene) -> None:
    scene.proxy.refuse()
    time.sleep(scene.rng.uniform(0, 2))
    scene.proxy.heal()


def _half_open(scene: Scene) -> None:
    scene.proxy.half_open()
    time.sleep(scene.rng.uniform(0, 2))
    scene.proxy.heal()


def _stalled(scene: Scene) -> None:
    scene.proxy.slow(2000)
    time.sleep(scene.rng.uniform(3, 8))
    scene.proxy.slow(_RATE)


def _flipped(scene: Scene) -> None:
    def flip(data: bytes) -> bytes:
        if len(data) < _BULK:
            return data
        out = bytearray(data)
        out[scene.rng.randrange(len(out))] ^= 1 << scene.rng.randrange(8)
        return bytes(out)

    scene.spoils = True
    scene.proxy.corrupt(flip)


def _cut_off(scene: Scene) -> None:
    def lose(data: bytes) -> bytes:
        if len(data) < _BULK:
            return data
        at = scene.rng.randrange(len(data) // 2)
        return data[:at] + data[at + scene.rng.randint(1, len(data) // 2) :]

    scene.spoils = True
    scene.proxy.corrupt(lose)


def _purged(scene: Scene) -> None:
    until = scene.rng.randint(scene.count // 4, scene.count)
    with scene.admin() as admin:
        admin.purge(STREAM, seq=until)
    scene.gone |= set(range(1, until))


def _deleted_one_by_one(scene: Scene) -> None:
    gone = scene.rng.sample(range(1, scene.count + 1), 200)
    with scene.admin() as admin:
        admin.delete_messages(STREAM, *gone)
    scene.single = True
    scene.gone |= set(gone)


def _deleted(scene: Scene) -> None:
    with scene.admin() as admin:
        admin.call(f"STREAM.DELETE.{STREAM}")


def _recreated(scene: Scene) -> None:
    with scene.admin() as admin:
        admin.call(f"STREAM.DELETE.{STREAM}")
        fill(admin, "new", scene.count)


def _leader_killed(run: Run) -> Outcome:
    cluster = run.shared.once("cluster", lambda: Cluster(3, name="backfill"))
    count = run.rng.randint(8_000, 12_000)
    with Admin(cluster.urls[0]) as admin:
        admin.create(STREAM, "s.>", num_replicas=3)
        admin.fill_new([(f"s.{n % 9}", payload("old", n)) for n in range(1, count + 1)])
        facts = admin.facts(STREAM)
    leader = cluster.servers[int(facts.leader.rpartition("n")[2]) - 1]  # backfill-n1, …

    def kill(_: Scene) -> None:
        leader.kill()

    with Proxy(1) as nowhere:
        scene = Scene(run, leader, nowhere, count)
        wanted = SequenceRange(STREAM, 1, count + 1, facts.created, snapshot=True)
        try:
            return _read(scene, ",".join(cluster.urls), wanted, kill, (), strict=True)
        finally:
            links.pool.close()
            leader.start()
            cluster.wait_until_ready()
            with Admin(cluster.urls[0]) as admin:
                admin.call(f"STREAM.DELETE.{STREAM}")


def _kind(act: Callable[[Scene], None], *allowed: type[JetsparkError]) -> Kind:
    return lambda run: backfill(run, act, *allowed)


KINDS: Kinds = {
    "server killed": _kind(_killed),
    "server stopped": _kind(_stopped),
    "leader of three killed": _leader_killed,
    "connections cut": _kind(_cut),
    "connections refused": _kind(_refused),
    "connections half-open": _kind(_half_open),
    "link stalled": _kind(_stalled),
    "bit flipped": _kind(_flipped),
    "bytes lost": _kind(_cut_off),
    "head purged": lambda run: backfill(run, _purged, DataLossError, times=3),
    "head purged, loss allowed": partial(backfill, act=_purged, strict=False, times=3),
    "messages deleted one by one": _kind(_deleted_one_by_one, DataLossError),
    "stream deleted": _kind(_deleted, StreamNotFoundError),
    "stream recreated": _kind(_recreated, StreamRecreatedError, DataLossError),
    "server 2.12 killed": partial(backfill, act=_killed, line="2.12"),
}
