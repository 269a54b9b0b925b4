"""Ask and answer; nobody there is told at once, silence at the timeout.

$ python examples/request_reply.py [server]
the price is 42
nobody listens on price.moon
price.mars did not answer in time
"""

import asyncio
import sys

import jetspark


async def answer(msg: jetspark.Message) -> None:
    await msg.respond(b"42")


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        nc.subscribe("price.eu", callback=answer)
        nc.subscribe("price.mars")  # takes the question and does not answer
        reply = await nc.request("price.eu", b"apples", timeout=2)
        print("the price is", reply.data.decode())
        try:
            await nc.request("price.moon", timeout=2)
        except jetspark.NoRespondersError:
            print("nobody listens on price.moon")
        try:
            await nc.request("price.mars", timeout=0.1)
        except jetspark.RequestTimeoutError:
            print("price.mars did not answer in time")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
