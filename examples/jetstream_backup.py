"""Back a stream up into a folder, and bring it back with its messages and consumers.

$ python examples/jetstream_backup.py [server]
saved: 100 messages
restored: 100 messages, the consumer is at 10
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="SAVED", subjects=["saved"])
        async with js.publisher() as publisher:
            for number in range(100):
                await publisher.publish("saved", b"%d" % number)
        worker = await stream.create_consumer(durable_name="worker")
        for msg in await worker.fetch(10, timeout=5):
            await msg.ack_sync()

        with tempfile.TemporaryDirectory() as folder:
            backup = await js.backup_stream("SAVED", Path(folder) / "saved.backup")
            print("saved:", backup.state.messages, "messages")
            await js.delete_stream("SAVED")
            stream = await js.restore_stream(Path(folder) / "saved.backup")
        consumer = (await stream.consumer("worker")).cached_info
        print("restored:", stream.cached_info.state.messages, "messages", end=", ")
        print("the consumer is at", consumer.ack_floor.stream_seq)
        await js.delete_stream("SAVED")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
