"""Watch a bucket: first what is there, then None once, then every change.

$ python examples/key_value_watch.py [server]
there: eu.apples b'1.20'
that was all
changed: eu.pears b'0.90'
changed: eu.apples deleted
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        prices = await js.create_bucket("WATCHED_KV", storage="memory")
        await prices.put("eu.apples", b"1.20")
        await prices.put("us.apples", b"1.50")
        initial = True
        async with prices.watch("eu.>") as changes:
            async for entry in changes:
                if entry is None:
                    print("that was all")
                    initial = False
                    await prices.put("eu.pears", b"0.90")
                    await prices.delete("eu.apples")
                    continue
                what = "deleted" if entry.is_deleted else entry.value
                print("there:" if initial else "changed:", entry.key, what)
                if entry.is_deleted:
                    break
        await js.delete_bucket("WATCHED_KV")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
