"""A bucket as a mapping in this process, which follows every change.

$ python examples/key_value_live.py [server]
complete at once: {'eu.apples': b'1.20', 'us.apples': b'1.50'}
told: eu.pears b'0.90'
there: b'0.90', 3 keys
"""

import asyncio
import sys

import jetspark
from jetspark.kv import Entry


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        prices = await js.create_bucket("LIVE_KV", storage="memory")
        await prices.put("eu.apples", b"1.20")
        await prices.put("us.apples", b"1.50")
        told: asyncio.Queue[Entry] = asyncio.Queue()
        async with prices.live(on_change=told.put_nowait) as live:
            print("complete at once:", dict(live))
            await prices.put("eu.pears", b"0.90")
            while (entry := await told.get()).key != "eu.pears":
                pass
            print("told:", entry.key, entry.value)
            print(f"there: {live['eu.pears']!r}, {len(live)} keys")
        await js.delete_bucket("LIVE_KV")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
