"""What must not grow and not work: `python -m tests.soak.quiet`.

An idle connection uses no CPU worth mentioning in 60 s, and memory stays flat over 10 million
received messages (`--seconds`, `--messages`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from pathlib import Path

import jetspark
from jetspark.server import NatsServer


def resident() -> int:
    """Bytes of memory of this process now; 0 where the machine does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * 4096


async def idle(url: str, seconds: float) -> float:
    """CPU seconds that a connection with a subscription uses while nothing happens."""
    async with jetspark.connect(url) as nc:
        nc.subscribe("quiet", callback=lambda _: None)
        await nc.flush()
        gc.collect()
        before = time.process_time()
        await asyncio.sleep(seconds)
        return time.process_time() - before


async def receive(url: str, messages: int, size: int = 128) -> tuple[int, int]:
    """Resident bytes after a tenth of the messages, and after all of them."""
    step = 1000
    async with jetspark.connect(url) as nc, nc.subscribe("flow") as sub:
        payload = bytes(size)
        early = 0
        for sent in range(0, messages, step):
            if early == 0 and sent >= messages // 10:
                early = resident()
            for _ in range(step):
                nc.publish_nowait("flow", payload, headers={"k": "v"} if sent % 10 else None)
            for _ in range(step):
                message = await sub.next()
                assert len(message.data) == size
        assert nc.stats.in_msgs == messages
        return early, resident()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--messages", type=int, default=10_000_000)
    options = parser.parse_args()
    with NatsServer(jetstream=False) as server:
        used = asyncio.run(idle(server.url, options.seconds))
        print(f"idle for {options.seconds:g} s: {used * 1000:.1f} ms of CPU", flush=True)
        start = time.perf_counter()
        early, late = asyncio.run(receive(server.url, options.messages))
        print(
            f"{options.messages:,} messages in {time.perf_counter() - start:.0f} s: "
            f"{early / 1e6:.1f} MB after a tenth, {late / 1e6:.1f} MB at the end"
        )


if __name__ == "__main__":
    main()
