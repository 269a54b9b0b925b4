"""Publish and subscribe: with an iterator, with a wildcard, with a callback.

$ python examples/publish_subscribe.py [server]
iterated: orders.eu b'42 apples'
called back: orders.us b'7 pears'
closed
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        async with nc.subscribe("orders.*") as orders:
            await nc.publish("orders.eu", b"42 apples")
            async for msg in orders:
                print("iterated:", msg.subject, msg.data)
                break

        def show(msg: jetspark.Message) -> None:
            print("called back:", msg.subject, msg.data)

        nc.subscribe("orders.us", callback=show)
        await nc.publish("orders.us", b"7 pears")
        await nc.drain()  # callbacks get what has arrived, then the connection ends
    print(nc.status)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
