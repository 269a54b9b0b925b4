"""The campaign of backfills.

Each run reads a range through a snapshot over a slow link, and once a random part of the rows has
come, something breaks. Then every message is there once, in order, as it was published; or there
is a typed error, and what came before it is right.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from tests.chaos import faults
from tests.chaos.campaign import Figures, Kind, Kinds, Run, run_kinds
from tests.chaos.faults import Fault, Site
from tests.chaos.outcome import Outcome
from tests.chaos.proxy import Proxy
from tests.support.cluster import Cluster
from tests.support.server_lines import server_of
from tests.support.streams import Admin

from jetspark.connection.options import make_options
from jetspark.errors import DataLossError, JetsparkError, StreamNotFoundError, StreamRecreatedError
from jetspark.links.link_pool import pool
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
from jetspark.server import NatsServer

STREAM = "S"
_RATE = 12 << 20  # bytes per second on the link
_LIMITS = ReadLimits(max_rows=500, max_bytes=1 << 20, timeout=90)
_BULK = 4096  # a piece of at least so many bytes is one of an archive


class Scene(Site):
    """A stream on a server, and what happens to it while it is read."""

    def __init__(self, run: Run, servers: Sequence[NatsServer], proxy: Proxy, count: int) -> None:
        super().__init__(run.rng, servers, [STREAM], proxy)
        self.count = count
        self.gone: set[int] = set()
        """Sequences that were removed meanwhile."""
        self.single = False
        """They were removed one by one, so they may be missing without an error."""
        self.faults = 0
        self.spoils = False
        """The fault is bytes that the proxy changes."""

    def admin(self) -> Admin:
        return Admin(self.servers[0].url)


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
        scene = Scene(run, [server], proxy, times * run.rng.randint(12_000, 25_000))
        with scene.admin() as admin:
            fill(admin, "old", scene.count)
            facts = admin.facts(STREAM)
        proxy.slow(_RATE)
        wanted = SequenceRange(
            STREAM, 1, scene.count + 1, facts.created, snapshot=True, blocking=line is not None
        )
        return _read(scene, proxy.url, wanted, act, allowed, strict)


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
        pool.close()
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
        self._logger = logging.getLogger("jetspark.ranges")
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


def _for(fault: Fault, longest: float = 0.0) -> Callable[[Scene], None]:
    """A fault that lasts up to so many seconds."""

    def act(scene: Scene) -> None:
        with fault(scene):
            scene.pause(0, longest)

    return act


def _stalled(scene: Scene) -> None:
    scene.proxy.slow(2000)
    scene.pause(3, 8)
    scene.proxy.slow(_RATE)


def _spoilt(spoil: Callable[[random.Random, bytes], bytes]) -> Callable[[Scene], None]:
    """A piece of an archive is not as it was sent."""

    def act(scene: Scene) -> None:
        scene.spoils = True
        scene.proxy.corrupt(lambda data: data if len(data) < _BULK else spoil(scene.rng, data))

    return act


def _flip(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _lose(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) // 2)
    return data[:at] + data[at + rng.randint(1, len(data) // 2) :]


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
    wanted = SequenceRange(STREAM, 1, count + 1, facts.created, snapshot=True)
    with Proxy(1) as nowhere, ExitStack() as away:
        scene = Scene(run, cluster.servers, nowhere, count)

        def kill(_: Scene) -> None:  # until the end
            away.enter_context(faults.leader_killed(scene))

        try:
            return _read(scene, ",".join(cluster.urls), wanted, kill, (), strict=True)
        finally:
            away.close()
            cluster.wait_until_ready()
            with Admin(cluster.urls[0]) as admin:
                admin.call(f"STREAM.DELETE.{STREAM}")


def _kind(act: Callable[[Scene], None], *allowed: type[JetsparkError]) -> Kind:
    return lambda run: backfill(run, act, *allowed)


KINDS: Kinds = {
    "server killed": _kind(_for(faults.server_killed, 1)),
    "server stopped": _kind(_for(faults.server_stopped)),
    "leader of three killed": _leader_killed,
    "connections cut": _kind(_for(faults.network_cut)),
    "connections refused": _kind(_for(faults.network_refused, 2)),
    "connections half-open": _kind(_for(faults.half_open, 2)),
    "link stalled": _kind(_stalled),
    "bit flipped": _kind(_spoilt(_flip)),
    "bytes lost": _kind(_spoilt(_lose)),
    "head purged": lambda run: backfill(run, _purged, DataLossError, times=3),
    "head purged, loss allowed": partial(backfill, act=_purged, strict=False, times=3),
    "messages deleted one by one": _kind(_deleted_one_by_one, DataLossError),
    "stream deleted": _kind(_deleted, StreamNotFoundError),
    "stream recreated": _kind(_recreated, StreamRecreatedError, DataLossError),
    "server 2.12 killed": partial(backfill, act=_for(faults.server_killed, 1), line="2.12"),
}


def run(runs: int = 105, seed: int = 0, first: int = 0, only: str = "") -> Figures:
    return run_kinds(KINDS, runs, seed, first, only)
