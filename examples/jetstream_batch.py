"""Messages that are stored together or not at all. Needs server 2.12.

$ python examples/jetstream_batch.py [server]
stored together: 3 messages, the last one is 3
given up: still 3 messages
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(
            name="LEDGER", subjects=["ledger.*"], storage="memory", allow_atomic=True
        )
        async with js.atomic_batch() as batch:
            await batch.publish("ledger.anna", b"-10")
            await batch.publish("ledger.bert", b"+9")
            await batch.publish("ledger.fees", b"+1")
            ack = await batch.commit()
        print("stored together:", ack.count, "messages, the last one is", ack.seq)
        try:
            async with js.atomic_batch() as batch:
                await batch.publish("ledger.anna", b"-1000000")
                raise ValueError("Anna does not have that much")
        except ValueError:
            state = (await stream.info()).state
            print("given up: still", state.messages, "messages")
        await js.delete_stream("LEDGER")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
