"""Stored messages without a consumer: by sequence, the last of a subject, a range, all last ones.

$ python examples/jetstream_get.py [server]
1: price.eu b'10'
last of price.eu: 3 b'12'
first of price.us from 3 on: 4 b'21'
from 2 on: 2, 3, 4
last of each: price.eu 12, price.us 21
message 2 is gone: True

The range and the last ones of several subjects need server 2.11.
"""

import asyncio
import sys

import jetspark
from jetspark.errors import MessageNotFoundError


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(
            name="PRICES", subjects=["price.*"], storage="memory", allow_direct=True
        )
        for subject, price in (("eu", b"10"), ("us", b"20"), ("eu", b"12"), ("us", b"21")):
            await js.publish(f"price.{subject}", price)

        msg = await stream.get(1)
        print(f"{msg.seq}:", msg.subject, msg.data)
        msg = await stream.get(last_by_subject="price.eu")
        print("last of price.eu:", msg.seq, msg.data)
        msg = await stream.get(3, next_by_subject="price.us")
        print("first of price.us from 3 on:", msg.seq, msg.data)
        print("from 2 on:", ", ".join([str(m.seq) async for m in stream.get_many(2)]))
        last = stream.get_last("price.*")
        print("last of each:", ", ".join([f"{m.subject} {m.data.decode()}" async for m in last]))

        await stream.delete_msg(2)
        try:
            await stream.get(2)
        except MessageNotFoundError:
            print("message 2 is gone:", True)
        await js.delete_stream("PRICES")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
