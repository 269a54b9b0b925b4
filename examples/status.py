"""What happens to the connection: events, the status, a reconnect that loses nothing.

$ python examples/status.py [server]
Disconnected
Reconnected
published while there was no link: b'not lost'
closed
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    nc = await jetspark.connect(server, reconnect_wait=0.1, name="status example")
    sub = nc.subscribe("orders")
    await nc.flush()

    async def follow() -> None:
        async for event in nc.events():
            if isinstance(event, jetspark.Disconnected | jetspark.Reconnected):
                print(type(event).__name__)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    leaving = asyncio.create_task(nc.force_reconnect())
    await asyncio.sleep(0)
    await nc.publish("orders", b"not lost")
    await leaving
    msg = await sub.next(timeout=5)
    print("published while there was no link:", msg.data)
    await nc.close()
    await following
    print(nc.status)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
