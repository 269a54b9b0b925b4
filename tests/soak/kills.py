"""Servers that end under clients.

One server, or a cluster of three, is disturbed while clients do one of LOADS: servers are killed
(kill -9) or stopped, and started again; they are paused; a leader steps down; a consumer is
deleted; a link is cut. After each fault the load has to make progress within `RECOVERED_WITHIN`,
and the count of tasks does not grow. At the end the load's own oracle looks, and no task is left.
`--kinds kill,stop` chooses the faults, `--away` how long a server is away at most.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from tests.soak.kills_bucket import BucketLoad
from tests.soak.kills_core import CoreLoad
from tests.soak.kills_load import Figures, Load
from tests.soak.kills_streams import Ingesting, OrderedReading, Publishing, Reading
from tests.support.cluster import Cluster

from jetspark.server import NatsServer

RECOVERED_WITHIN = 60.0  # seconds
LOADS: dict[str, type[Load]] = {
    "core": CoreLoad,
    "identified": Publishing,
    "plain": Publishing,
    "ingest-fail": Ingesting,
    "ingest-ok": Ingesting,
    "fetch": Reading,
    "consume": Reading,
    "ordered": OrderedReading,
    "bucket": BucketLoad,
}


@contextmanager
def started(count: int, load: type[Load]) -> Iterator[list[NatsServer]]:
    """One server, or a cluster, as the load needs them."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="soak-"))
        config = Path(folder) / "soak.conf"
        config.write_text(load.CONFIG, "utf-8")
        if count > 1:
            extra = ("--config", str(config))
            cluster = Cluster(count, name="soak", jetstream=load.JETSTREAM, extra=extra)
            yield stack.enter_context(cluster).servers
        else:
            server = NatsServer(0, host="127.0.0.1", jetstream=load.JETSTREAM, config=config)
            yield [stack.enter_context(server)]


async def _disturb(kind: str, load: Load, rng: random.Random, away: float) -> None:
    if kind in ("kill", "stop", "pause"):
        leader = await load.leader()
        server = rng.choice(load.servers) if leader is None or rng.random() < 0.2 else leader
        await asyncio.to_thread(getattr(server, kind))
        await asyncio.sleep(away * (0.5 + rng.random() / 2))
        await asyncio.to_thread(server.resume if kind == "pause" else server.start)
    else:
        with suppress(load.PASSING):
            await getattr(load, kind)()


async def run(
    runs: int = 100,
    seed: int = 0,
    load: Annotated[str, LOADS] = "core",
    servers: int = 1,
    kinds: str = "",
    pause: float = 0.1,
    away: float = 0.2,
) -> Figures:
    """A run is a fault; there are at most `pause` seconds between two.

    Raises AssertionError for what must not be, TimeoutError when something hangs.
    """
    rng = random.Random(seed)
    before = asyncio.all_tasks()
    chosen = LOADS[load]
    with started(servers, chosen) as nodes:
        async with chosen(load, nodes, rng) as running:
            figures = running.figures
            await asyncio.wait_for(running.progress(), RECOVERED_WITHIN)
            tasks = len(asyncio.all_tasks()) + running.COMING_AND_GOING
            for _ in range(runs):
                await asyncio.sleep(rng.random() * pause)
                kind = rng.choice(kinds.split(",") if kinds else running.FAULTS)
                ended = time.perf_counter()
                await _disturb(kind, running, rng, away)
                await asyncio.wait_for(running.progress(), RECOVERED_WITHIN)
                figures.longest_recovery = max(
                    figures.longest_recovery, time.perf_counter() - ended
                )
                figures.faults[kind] += 1
                assert len(asyncio.all_tasks()) <= tasks, asyncio.all_tasks()
                figures.count_run()
            await asyncio.wait_for(running.finish(), RECOVERED_WITHIN)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    return figures
