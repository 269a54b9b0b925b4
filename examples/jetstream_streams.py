"""Streams: make, change, look at, list, purge, delete; what the account uses.

$ python examples/jetstream_streams.py [server]
made STREAMS for orders.>, messages live 7 days, 0:00:00
now at most 1000 messages, still 7 days, 0:00:00
3 messages: orders.eu 2, orders.us 1
listen to orders.eu: ['STREAMS']
purged 2 of orders.eu
deleted message 3
the account has streams: True
deleted; Stream "STREAMS" not found.
"""

import asyncio
import sys
from datetime import timedelta

import jetspark
from jetspark.errors import StreamNotFoundError


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        week = timedelta(days=7)
        stream = await js.create_stream(name="STREAMS", subjects=["orders.>"], max_age=week)
        config = stream.cached_info.config
        print("made", stream.name, "for", *(config.subjects or ()), end=", ")
        print("messages live", config.max_age)
        info = await stream.update(max_msgs=1000)  # the rest stays as it is
        print("now at most", info.config.max_msgs, "messages, still", info.config.max_age)

        for subject in ("orders.eu", "orders.eu", "orders.us"):
            await js.publish(subject, b"42 apples")
        state = (await stream.info(subjects_filter=">")).state
        counts = ", ".join(
            f"{subject} {count}" for subject, count in (state.subjects or {}).items()
        )
        print(state.messages, "messages:", counts)
        print("listen to orders.eu:", await js.stream_names("orders.eu").all())

        print("purged", await stream.purge(filter="orders.eu"), "of orders.eu")
        await stream.delete_msg(3)
        print("deleted message 3")
        print("the account has streams:", (await js.account_info()).streams > 0)
        await js.delete_stream("STREAMS")
        try:
            await stream.info()
        except StreamNotFoundError as error:
            print("deleted;", error)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
