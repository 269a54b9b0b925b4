"""Errors: those that a call raises, and those that no call can raise.

$ python examples/errors.py [server]
the subject is refused: orders..eu
too large: 9000000 bytes
in the background: The callback of subscription 'orders.eu' raised ValueError('it ends nothing').
last_error is the same: True
no server: ServerRefusedError

What happens in the background is in the log "jetspark" too, which goes to standard error here.
"""

import asyncio
import sys

import jetspark


async def main(server: str) -> None:
    told: asyncio.Queue[jetspark.JetsparkError] = asyncio.Queue()
    async with jetspark.connect(server, error_callback=told.put_nowait) as nc:
        try:
            await nc.publish("orders..eu", b"")
        except jetspark.BadSubjectError as error:
            print("the subject is refused:", error.subject)
        try:
            await nc.publish("orders.eu", bytes(9_000_000))
        except jetspark.MaxPayloadError as error:
            print("too large:", error.size, "bytes")

        def broken(msg: jetspark.Message) -> None:
            raise ValueError("it ends nothing")

        nc.subscribe("orders.eu", callback=broken)
        await nc.publish("orders.eu", b"")
        reported = await asyncio.wait_for(told.get(), 2)
        print("in the background:", reported)
        print("last_error is the same:", nc.last_error is reported)
    try:
        await jetspark.connect("nats://127.0.0.1:1", connect_timeout=0.5)
    except jetspark.JetsparkError as error:
        print("no server:", type(error).__name__)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
