"""Headers: several values for a name, names by pattern, a message made before it is sent.

$ python examples/headers.py [server]
Source: ['shop 7', 'shop 8']
first: shop 7
names: ['Trace-Id', 'Trace-Level']
missing: none
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc, nc.subscribe("orders") as orders:
        message = jetspark.PreparedMessage("orders", b"42 apples")
        message.headers.add("Source", "shop 7")
        message.headers.add("Source", "shop 8")
        message.headers.set("Trace-Id", "4711")
        message.headers.set("Trace-Level", "1")
        await nc.publish_msg(message)

        received = await orders.next(timeout=2)
        headers = received.headers
        assert headers is not None
        print("Source:", headers.values("Source"))
        print("first:", headers["Source"])
        print("names:", headers.keys("Trace-*"))
        print("missing:", headers.get("source", "none"))  # names are case-sensitive


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
