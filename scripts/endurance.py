"""Two questions that need time: what does an idle connection cost, and does memory stay flat?

    python scripts/endurance.py idle --seconds 60
    python scripts/endurance.py memory --messages 10000000

Prints one line of figures each, and fails with exit code 1 when the answer is not the one hoped
for: less than 0.1 % of a core, and less than 8 MB more at the end than after a tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from pathlib import Path

import jetspark
from jetspark.server import NatsServer

_IDLE_SHARE = 0.001
_GROWTH_BYTES = 8_000_000
_PIECE = 10_000

_PUBLISHER = """
import asyncio, sys, jetspark
async def main(url, messages):
    async with jetspark.connect(url) as nc:
        for _ in range(messages // 10_000):
            # One piece for each request of the reader, so that it is never a slow consumer.
            await nc.request("next", timeout=60)
            for _ in range(10_000):
                await nc.publish("endurance", b"." * 128)
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def idle(url: str, seconds: float) -> bool:
    """CPU time of a connection with a subscription and nothing to do."""
    async with jetspark.connect(url) as nc:
        nc.subscribe("nothing")
        await nc.flush()
        before = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - before
    print(f"idle for {seconds:g} s: {used * 1000:.1f} ms of CPU, {used / seconds:.4%} of a core")
    return used / seconds < _IDLE_SHARE


async def memory(url: str, messages: int) -> bool:
    """Resident memory while messages are received and dropped."""
    command = [sys.executable, "-c", _PUBLISHER, url, str(messages)]
    publisher = subprocess.Popen(command)  # noqa: ASYNC220 - nothing else waits yet
    received, early = 0, 0
    try:
        async with jetspark.connect(url) as nc, nc.subscribe("endurance") as sub:
            async with nc.subscribe("next", callback=lambda request: request.respond(b"")):
                async for _ in sub:
                    received += 1
                    if received == messages // 10:
                        early = _resident()
                    if received == messages // _PIECE * _PIECE:
                        break
            if sub.dropped:
                print(f"dropped {sub.dropped}")
    finally:
        publisher.kill()
        publisher.wait()
    late = _resident()
    print(
        f"received {received:,} messages: {early / 1e6:.1f} MB resident after a tenth, "
        f"{late / 1e6:.1f} MB at the end"
    )
    return late - early < _GROWTH_BYTES


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("question", choices=["idle", "memory"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--messages", type=int, default=10_000_000)
    options = parser.parse_args()
    with NatsServer(jetstream=False) as server:
        if options.question == "idle":
            good = asyncio.run(idle(server.url, options.seconds))
        else:
            good = asyncio.run(memory(server.url, options.messages))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
