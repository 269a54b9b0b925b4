"""Consumers: make, look at, change, list, delete.

$ python examples/jetstream_consumers.py [server]
made worker for work.eu, 2 pending
max_deliver is now 5, the filter still work.eu
consumers: ['other', 'worker']
another configuration is refused: True
left: ['other']
"""

import asyncio
import sys
from datetime import timedelta

import jetspark
from jetspark.errors import NameInUseError


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="WORK", subjects=["work.*"], storage="memory")
        for subject in ("work.eu", "work.us", "work.eu"):
            await js.publish(subject)

        worker = await stream.create_consumer(
            durable_name="worker", filter_subject="work.eu", ack_wait=timedelta(seconds=5)
        )
        info = await worker.info()
        print("made", info.name, "for", info.config.filter_subject, end=", ")
        print(info.num_pending, "pending")
        info = await (await stream.consumer("worker")).update(max_deliver=5)
        print("max_deliver is now", info.config.max_deliver, end=", ")
        print("the filter still", info.config.filter_subject)

        await stream.create_consumer(name="other", inactive_threshold=timedelta(minutes=1))
        print("consumers:", sorted(await stream.consumer_names().all()))
        try:
            await stream.create_consumer(durable_name="worker", filter_subject="work.us")
        except NameInUseError:
            print("another configuration is refused:", True)
        await worker.delete()
        print("left:", [info.name async for info in stream.consumers()])
        await js.delete_stream("WORK")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
