"""Publish many without waiting for each ack: a window, back-pressure, one result a message.

$ python examples/jetstream_publisher.py [server]
10000 messages in the stream
the last one has sequence 10001
not stored: full.up maximum messages exceeded (code 503, err_code 10077)
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        many = await js.create_stream(name="MANY", subjects=["many.*"], storage="memory")
        async with js.publisher(window=4000) as publisher:  # leaving it waits for every ack
            for number in range(10_000):
                await publisher.publish("many.eu", b"%d" % number)
        print((await many.info()).state.messages, "messages in the stream")

        async with js.publisher() as publisher:
            result = await publisher.publish_async("many.us", b"with a result of its own")
            print("the last one has sequence", (await result).seq)

        # Messages that were not stored are told: in .failed, or else by an exception at the end.
        await js.create_stream(
            name="FULL", subjects=["full.*"], storage="memory", max_msgs=1, discard="new"
        )
        async with js.publisher() as publisher:
            await publisher.publish("full.up", b"stored")
            await publisher.publish("full.up", b"one too many")
            await publisher.flush()
            for failure in publisher.failed:
                print("not stored:", failure.subject, failure.error)
        await js.delete_stream("MANY")
        await js.delete_stream("FULL")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
