"""Payloads are bytes; what they mean is yours. Here: typed JSON with msgspec.

$ python examples/json_messages.py [server]
sent: {"id":"o-1","region":"eu","amount":12.5}
received: Order(id='o-1', region='eu', amount=12.5)
refused: Object missing required field `region`
"""

import asyncio
import sys

import msgspec

import jetspark


class Order(msgspec.Struct):
    id: str
    region: str
    amount: float


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc, nc.subscribe("orders") as orders:
        payload = msgspec.json.encode(Order(id="o-1", region="eu", amount=12.5))
        print("sent:", payload.decode())
        await nc.publish("orders", payload)
        await nc.publish("orders", b'{"id": "o-2"}')
        received = await orders.next(timeout=2)
        print("received:", msgspec.json.decode(received.data, type=Order))
        received = await orders.next(timeout=2)
        try:
            msgspec.json.decode(received.data, type=Order)
        except msgspec.ValidationError as error:
            print("refused:", error)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
