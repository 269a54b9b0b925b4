"""Consume without end: it pulls ahead by itself; an iterator, then a callback.

$ python examples/jetstream_consume.py [server]
1000 messages, the last one is 999
called back 10 times
"""

import asyncio
import sys

import jetspark
from jetspark.jetstream import JsMsg


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="EVENTS", subjects=["events"], storage="memory")
        async with js.publisher() as publisher:
            for number in range(1000):
                await publisher.publish("events", b"%d" % number)
        worker = await stream.create_consumer(durable_name="worker")

        count = 0
        async with worker.consume(max_messages=200) as messages:
            async for msg in messages:
                await msg.ack()
                count += 1
                if count == 1000:
                    print(count, "messages, the last one is", msg.data.decode())
                    break

        called: list[bytes] = []
        enough = asyncio.Event()

        async def work(msg: JsMsg) -> None:
            called.append(msg.data)
            await msg.ack()
            if len(called) == 10:
                enough.set()

        async with worker.consume(callback=work):
            for number in range(10):
                await js.publish("events", b"%d" % number)
            await enough.wait()
        print("called back", len(called), "times")
        await js.delete_stream("EVENTS")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
