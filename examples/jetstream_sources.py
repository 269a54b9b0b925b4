"""Streams made of streams: an aggregate of two, subjects changed on the way, a mirror.

$ python examples/jetstream_sources.py [server]
aggregate: foo2.1 apples, bar2.7 pears
mirror: foo.1 apples
"""

import asyncio
import sys

import jetspark
from jetspark.documents import Source, SubjectTransform


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        await js.create_stream(name="FOO", subjects=["foo.*"], storage="memory")
        await js.create_stream(name="BAR", subjects=["bar.*"], storage="memory")
        await js.publish("foo.1", b"apples")
        await js.publish("bar.7", b"pears")

        foo = SubjectTransform(src="foo.*", dest="foo2.{{wildcard(1)}}")
        bar = SubjectTransform(src="bar.*", dest="bar2.{{wildcard(1)}}")
        aggregate = await js.create_stream(
            name="AGGREGATE",
            storage="memory",
            sources=[
                Source(name="FOO", subject_transforms=[foo]),
                Source(name="BAR", subject_transforms=[bar]),
            ],
        )
        mirror = await js.create_stream(name="MIRROR", storage="memory", mirror=Source(name="FOO"))

        reader = await aggregate.create_consumer(name="reader")
        messages = await reader.fetch(2, timeout=5)
        shown = sorted((f"{m.subject} {m.data.decode()}" for m in messages), reverse=True)
        print("aggregate:", ", ".join(shown))
        reader = await mirror.create_consumer(name="reader")
        (msg,) = await reader.fetch(1, timeout=5)
        print("mirror:", msg.subject, msg.data.decode())
        for name in ("MIRROR", "AGGREGATE", "FOO", "BAR"):
            await js.delete_stream(name)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
