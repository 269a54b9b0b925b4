"""Counters: the stream adds up. Needs server 2.12.

$ python examples/jetstream_counter.py [server]
one more: 1
ten more: 11
two less: 9
read: 9
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(
            name="HITS",
            subjects=["hits.*"],
            storage="memory",
            allow_msg_counter=True,
            allow_direct=True,
        )
        print("one more:", await js.increment("hits.home"))
        print("ten more:", await js.increment("hits.home", 10))
        print("two less:", await js.increment("hits.home", -2))
        print("read:", (await stream.get_counter("hits.home")).value)
        await js.delete_stream("HITS")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
