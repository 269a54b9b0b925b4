"""Read a stream in order, without gaps and without acks.

$ python examples/jetstream_ordered.py [server]
from the beginning: 1000 messages, in order True
from 990 on: 990 to 1000, only log.info
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="LOG", subjects=["log.*"], storage="memory")
        async with js.publisher() as publisher:
            for number in range(1000):
                await publisher.publish("log.info" if number % 2 else "log.debug", b"%d" % number)

        numbers: list[int] = []
        async with stream.ordered() as messages:
            async for msg in messages:
                numbers.append(int(msg.data))
                if msg.metadata.pending == 0:
                    break
        print("from the beginning:", len(numbers), "messages, in order", numbers == sorted(numbers))

        numbers.clear()
        subjects: set[str] = set()
        async with stream.ordered(subjects="log.info", start_seq=990) as messages:
            async for msg in messages:
                numbers.append(msg.seq)
                subjects.add(msg.subject)
                if msg.metadata.pending == 0:
                    break
        print("from 990 on:", numbers[0], "to", numbers[-1], end=", ")
        print("only", *subjects)
        await js.delete_stream("LOG")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
