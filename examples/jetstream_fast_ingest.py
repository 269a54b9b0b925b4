"""Fast ingest: one ack for hundreds of messages, and the fate of each is known. Server 2.14.

$ python examples/jetstream_fast_ingest.py [server]
acknowledged: 10000, the last one is 10000
failed: []
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        await js.create_stream(
            name="INGESTED", subjects=["ingest.*"], storage="memory", allow_batched=True
        )
        async with js.fast_ingest() as ingest:
            for number in range(10_000):
                await ingest.publish("ingest.eu", b"%d" % number)
            ack = await ingest.commit()
        assert ack  # None when nothing was sent
        print(f"acknowledged: {ingest.acked}, the last one is {ack.seq}")
        print("failed:", ingest.failed)
        await js.delete_stream("INGESTED")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
