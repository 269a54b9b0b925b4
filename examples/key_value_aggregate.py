"""A hub and a leaf node: at the leaf, a writable bucket that takes a part of a bucket of the hub.

$ python examples/key_value_aggregate.py leaf-server
from the hub: new.1 b'from the hub'
of its own: b'of the leaf'
not taken: old.1
"""

import asyncio
import sys

import jetspark
from jetspark.errors import KeyNotFoundError
from jetspark.kv import Origin


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        here, hub = nc.jetstream(), nc.jetstream(domain="hub")
        bucket = await hub.create_bucket("HUB_BUCKET", storage="memory")
        await bucket.put("old.1", b"stays there")
        await bucket.put("new.1", b"from the hub")

        origin = Origin("HUB_BUCKET", keys=["new.>"], domain="hub")
        leaf = await here.create_bucket_aggregate("LEAF_KV", [origin], storage="memory")
        async with leaf.watch("new.>") as changes:
            async for entry in changes:
                if entry is not None:
                    print("from the hub:", entry.key, entry.value)
                    break
        await leaf.put("new.2", b"of the leaf")
        print("of its own:", await leaf.get_value("new.2"))
        try:
            await leaf.get("old.1")
        except KeyNotFoundError:
            print("not taken: old.1")
        await here.delete_bucket("LEAF_KV")
        await hub.delete_bucket("HUB_BUCKET")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
