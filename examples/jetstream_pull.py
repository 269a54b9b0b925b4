"""Fetch from a pull consumer; acknowledge, ask for it again, give it up.

$ python examples/jetstream_pull.py [server]
fetched: job 1, job 2, job 3
job 1 is done
job 2 again, delivery 2
job 3 is given up
nothing there: []
waited for one: job 4
left to do: 0
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="JOBS", subjects=["jobs"], retention="workqueue")
        for number in (1, 2, 3):
            await js.publish("jobs", b"job %d" % number)
        worker = await stream.create_consumer(durable_name="worker")

        first, second, third = await worker.fetch(3, timeout=2)
        print("fetched:", ", ".join(msg.data.decode() for msg in (first, second, third)))
        await first.ack_sync()  # the server has confirmed it; ack() does not wait
        print(first.data.decode(), "is done")
        await second.nak()
        again = await worker.next(timeout=2)
        print(again.data.decode(), "again, delivery", again.metadata.deliveries)
        await again.ack_sync()
        await third.term()
        print(third.data.decode(), "is given up")

        print("nothing there:", await worker.fetch(10))  # without a timeout: what is there now
        asyncio.get_running_loop().call_later(0.2, nc.publish_nowait, "jobs", b"job 4")
        last = await worker.next(timeout=2)
        print("waited for one:", last.data.decode())
        await last.ack_sync()
        print("left to do:", (await stream.info()).state.messages)
        await js.delete_stream("JOBS")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
