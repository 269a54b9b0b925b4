"""A Key-Value bucket: put, get, update only if nobody was faster, delete, history, keys.

$ python examples/key_value.py [server]
apples: b'1.20', revision 1
made once only: b'0.90'
changed: b'1.30', revision 3
somebody was faster
history: 1.20, 1.30, deleted
keys: ['eu.pears']
no such key: eu.apples
bucket PRICES_KV: 4 values, history 5
"""

import asyncio
import sys

import jetspark
from jetspark.errors import KeyExistsError, KeyNotFoundError, WrongLastSequenceError


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        prices = await js.create_bucket("PRICES_KV", history=5, storage="memory")
        await prices.put("eu.apples", b"1.20")
        entry = await prices.get("eu.apples")
        print(f"apples: {entry.value!r}, revision {entry.revision}")

        await prices.create("eu.pears", b"0.90")
        try:
            await prices.create("eu.pears", b"0.95")
        except KeyExistsError:
            print("made once only:", await prices.get_value("eu.pears"))

        revision = await prices.update("eu.apples", b"1.30", entry.revision)
        print(f"changed: {await prices.get_value('eu.apples')!r}, revision {revision}")
        try:
            await prices.update("eu.apples", b"1.40", entry.revision)
        except WrongLastSequenceError:
            print("somebody was faster")

        await prices.delete("eu.apples")
        entries = await prices.history("eu.apples").all()
        print("history:", ", ".join(e.value.decode() or "deleted" for e in entries))
        print("keys:", await prices.keys().all())
        try:
            await prices.get("eu.apples")
        except KeyNotFoundError:
            print("no such key: eu.apples")
        status = await prices.status()
        print(f"bucket {status.bucket}: {status.values} values, history {status.history}")
        await js.delete_bucket("PRICES_KV")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
