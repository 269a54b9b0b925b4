"""Gather many replies to one request: a list, or one after the other.

$ python examples/request_many.py [server]
stock: 10, 20, 30
two are enough
two are enough
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        for shop in (b"10", b"20", b"30"):

            async def answer(msg: jetspark.Message, stock: bytes = shop) -> None:
                await msg.respond(stock)

            nc.subscribe("stock", callback=answer)
        # Until nobody has said anything for 0.5 s.
        replies = await nc.request_many("stock", stall=0.5, timeout=2).all()
        print("stock:", ", ".join(sorted(reply.data.decode() for reply in replies)))

        async for _ in nc.request_many("stock", max_msgs=2, timeout=2):
            print("two are enough")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
