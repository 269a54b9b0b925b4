"""A push consumer: its messages, and what a plain subscription sees of it.

$ python examples/jetstream_push.py [server]
its messages: push.1 b'42 apples'
push.1 b'42 apples'
the consumer is alive
push.2 b'7 pears'
"""

import asyncio
import sys
from datetime import timedelta

import jetspark


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="PUSHED", subjects=["push.*"], storage="memory")
        await js.publish("push.1", b"42 apples")

        pushing = await stream.create_push_consumer(deliver_subject=nc.new_inbox())
        async with pushing.subscribe() as messages:  # heartbeats and flow control are answered
            msg = await messages.next(timeout=2)
            print("its messages:", msg.subject, msg.data)
            await msg.ack()

        async with nc.subscribe(nc.new_inbox()) as inbox:
            await stream.create_push_consumer(
                deliver_subject=inbox.subject,
                flow_control=True,
                idle_heartbeat=timedelta(milliseconds=200),
            )
            beats = 0
            async for message in inbox:
                if message.flow_control:
                    await message.respond()  # or the server stops sending
                elif message.idle_heartbeat:
                    beats += 1
                    if beats == 1:
                        print("the consumer is alive")
                        await js.publish("push.2", b"7 pears")
                else:
                    print(message.subject, message.data)
                    await message.respond(b"+ACK")
                    if message.seq == 2:
                        break
        await js.delete_stream("PUSHED")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
