"""A queue group shares the work: each message goes to one member.

$ python examples/queue_group.py [server]
100 messages, each done once
both workers were busy: True
"""

import asyncio
import sys
from collections import Counter

import jetspark


async def main(server: str) -> None:
    done: Counter[str] = Counter()
    async with jetspark.connect(server) as nc:
        for worker in ("anna", "bert"):

            def work(msg: jetspark.Message, worker: str = worker) -> None:
                done[worker] += 1

            nc.subscribe("jobs", queue="workers", callback=work)
        for number in range(100):
            await nc.publish("jobs", str(number).encode())
        await nc.flush()
        await nc.drain()
    print(done.total(), "messages, each done once")
    print("both workers were busy:", len(done) == 2)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
