"""One instance of a member of `tests.chaos.groups`: `URL MEMBER INSTANCE ACK_WAIT TOLD`.

It writes a line into the pipe TOLD, which all instances share, before it acknowledges a message and
after that was confirmed: the lines come in the order in which these things happened. The first of
them says when the message was taken (time.monotonic, which is the same for all processes).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import threading
import time

import jetspark
from jetspark.errors import JetsparkError


async def _consume(url: str, member: str, instance: str, ack_wait: float, told: int) -> None:
    def tell(what: str, key: str = "-", number: str = "0", taken: float = 0.0) -> None:
        os.write(told, f"{what} {instance} {key} {number} {taken}\n".encode())

    async with jetspark.connect(url, ping_interval=2) as nc:
        group = await nc.jetstream().consumer_groups("S").elastic("cg")
        async with group.consume(member, ack_wait=ack_wait) as messages:
            tell("ready")
            ending = asyncio.create_task(asyncio.to_thread(os.read, 0, 1))

            async def consume() -> None:
                async for message in messages:
                    taken = time.monotonic()
                    key, number = message.subject, message.data.decode()
                    tell("handled", key, number, taken)
                    await asyncio.sleep(random.random() * 0.01)
                    try:
                        await message.ack_sync(timeout=ack_wait)
                    except JetsparkError:
                        continue  # it may come again
                    tell("confirmed", key, number)

            consuming = asyncio.create_task(consume())
            await asyncio.wait({ending, consuming}, return_when=asyncio.FIRST_COMPLETED)
            if consuming.done():
                consuming.result()
            consuming.cancel()


if __name__ == "__main__":
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    url, member, instance, ack_wait, told = sys.argv[1:]
    threading.excepthook = lambda _: None
    asyncio.run(_consume(url, member, instance, float(ack_wait), int(told)))
