"""Publish and know that it is stored: duplicates, expectations, no stream.

$ python examples/jetstream_publish.py [server]
stored as 1 in PUBLISHED
again with its id: sequence 1, duplicate True
stored as 2, because the last one was 1
refused: wrong last sequence: 2
nobody stores nowhere.eu
"""

import asyncio
import sys

import jetspark
from jetspark.errors import NoStreamResponseError, WrongLastSequenceError


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        await js.create_stream(name="PUBLISHED", subjects=["orders.*"], storage="memory")
        ack = await js.publish(
            "orders.eu", b"42 apples", msg_id="o-1", headers={"Source": "shop 7"}
        )
        print("stored as", ack.seq, "in", ack.stream)
        ack = await js.publish("orders.eu", b"42 apples", msg_id="o-1")
        print(f"again with its id: sequence {ack.seq}, duplicate {ack.duplicate}")

        ack = await js.publish(
            "orders.eu", b"7 pears", expect_stream="PUBLISHED", expect_last_subject_seq=1
        )
        print("stored as", ack.seq, end=", ")
        print("because the last one was 1")
        try:
            await js.publish("orders.eu", b"too late", expect_last_subject_seq=1)
        except WrongLastSequenceError as error:
            print("refused:", error.description)
        try:
            await js.publish("nowhere.eu", b"lost?")
        except NoStreamResponseError as error:
            print("nobody stores", error.subject)
        await js.delete_stream("PUBLISHED")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
