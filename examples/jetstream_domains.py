"""A hub and a leaf node: at the leaf, streams that source from the hub's domain.

$ python examples/jetstream_domains.py leaf-server
here: leaf, there: hub
aggregate at the leaf: SOURCE_1 apples, SOURCE_2 pears

The leaf's connection reaches both: `nc.jetstream()` is its own JetStream, `domain="hub"` the hub's.
"""

import asyncio
import sys

import jetspark
from jetspark.documents import External, Source


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        here, hub = nc.jetstream(), nc.jetstream(domain="hub")
        domains = (await here.account_info()).domain, (await hub.account_info()).domain
        print(f"here: {domains[0]}, there: {domains[1]}")
        for name, what in (("SOURCE_1", b"apples"), ("SOURCE_2", b"pears")):
            await hub.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
            await hub.publish(f"{name}.eu", what)

        external = External.of_domain("hub")
        sources = [Source(name=name, external=external) for name in ("SOURCE_1", "SOURCE_2")]
        await here.create_stream(name="AGGREGATE_STREAM", storage="memory", sources=sources)
        reader = await here.stream("AGGREGATE_STREAM").create_consumer(name="reader")
        messages = await reader.fetch(2, timeout=5)
        shown = sorted(f"{m.subject.removesuffix('.eu')} {m.data.decode()}" for m in messages)
        print("aggregate at the leaf:", ", ".join(shown))
        await here.delete_stream("AGGREGATE_STREAM")
        for name in ("SOURCE_1", "SOURCE_2"):
            await hub.delete_stream(name)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
