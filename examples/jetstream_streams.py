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
        info = await js.create_stream(name="STREAMS", subjects=["orders.>"], max_age=week)
        print("made", info.name, "for", *info.config.subjects, end=", ")
        print("messages live", info.config.max_age)
        info = await js.update_stream(name="STREAMS", max_msgs=1000)  # the rest stays as it is
        print("now at most", info.config.max_msgs, "messages, still", info.config.max_age)

        for subject in ("orders.eu", "orders.eu", "orders.us"):
            await js.publish(subject, b"42 apples")
        state = (await js.stream_info("STREAMS", subjects_filter=">")).state
        counts = ", ".join(f"{subject} {count}" for subject, count in state.subjects.items())
        print(state.messages, "messages:", counts)
        print("listen to orders.eu:", await js.stream_names("orders.eu").all())

        print("purged", await js.purge_stream("STREAMS", filter="orders.eu"), "of orders.eu")
        await js.delete_msg("STREAMS", 3)
        print("deleted message 3")
        print("the account has streams:", (await js.account_info()).streams > 0)
        await js.delete_stream("STREAMS")
        try:
            await js.stream_info("STREAMS")
        except StreamNotFoundError as error:
            print("deleted;", error)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
