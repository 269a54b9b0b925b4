"""An idle connection uses no CPU worth mentioning, and memory stays flat over received messages."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.support import campaign

import jetspark
from jetspark.server import NatsServer

MAX_IDLE_CPU = 0.02
"""Seconds."""
MAX_GROWTH = 4.0
"""Megabytes, between a tenth of the messages and all."""


@dataclass
class Figures(campaign.Figures):
    """`early` and `late`: megabytes after a tenth of the messages, and at the end."""

    idle_cpu_seconds: float = 0.0
    early: float = 0.0
    late: float = 0.0


def resident() -> int:
    """Bytes of memory of this process now; 0 where the machine does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * 4096


async def run(
    runs: int = 1, seed: int = 0, idle: float = 60.0, messages: int = 10_000_000
) -> Figures:
    """A run is `idle` seconds without a message, and then so many messages."""
    figures, payload = Figures(), Random(seed).randbytes(128)
    with NatsServer(jetstream=False) as server:
        for _ in range(runs):
            await _run_on(server.url, figures, idle, messages, payload)
    return figures


async def _run_on(url: str, figures: Figures, idle: float, messages: int, payload: bytes) -> None:
    async with jetspark.connect(url) as nc:
        nc.subscribe("quiet", callback=lambda _: None)
        await nc.flush()
        gc.collect()
        before = time.process_time()
        await asyncio.sleep(idle)
        used = time.process_time() - before
    early, late = await _receive(url, messages, payload)
    if used > MAX_IDLE_CPU:
        figures.wrong.append(f"an idle connection used {used:.3f} s of CPU in {idle:g} s")
    if late - early > MAX_GROWTH:
        figures.wrong.append(f"memory grew from {early:.1f} MB to {late:.1f} MB")
    figures.idle_cpu_seconds, figures.early, figures.late = used, early, late
    figures.count_run()


async def _receive(url: str, messages: int, payload: bytes) -> tuple[float, float]:
    step = 1000
    async with jetspark.connect(url) as nc, nc.subscribe("flow") as sub:
        early = 0
        for sent in range(0, messages, step):
            if early == 0 and sent >= messages // 10:
                early = resident()
            for _ in range(step):
                nc.publish_nowait("flow", payload, headers={"k": "v"} if sent % 10 else None)
            for _ in range(step):
                assert len((await sub.next()).data) == len(payload)
        assert nc.stats.in_msgs == messages
        return early / 1e6, resident() / 1e6
