"""What must not grow and not work: `python -m tests.soak.quiet`.

An idle connection uses no CPU worth mentioning in 60 s, and memory stays flat over 10 million
received messages (`--idle`, `--messages`).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support import campaign
from tests.support.campaign import command

import jetspark
from jetspark.server import NatsServer


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


async def run(idle: float = 60.0, messages: int = 10_000_000) -> Figures:
    figures = Figures()
    with NatsServer(jetstream=False) as server:
        async with jetspark.connect(server.url) as nc:
            nc.subscribe("quiet", callback=lambda _: None)
            await nc.flush()
            gc.collect()
            before = time.process_time()
            await asyncio.sleep(idle)
            figures.idle_cpu_seconds = time.process_time() - before
        begin = time.monotonic()
        figures.early, figures.late = await _receive(server.url, messages)
        figures.seconds = time.monotonic() - begin
    return figures


async def _receive(url: str, messages: int) -> tuple[float, float]:
    step, payload = 1000, bytes(128)
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


if __name__ == "__main__":
    sys.exit(command(run))
