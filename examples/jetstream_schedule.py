"""Have the stream publish later, and let messages go after their time. Needs server 2.12.

$ python examples/jetstream_schedule.py [server]
scheduled
it came: todo.mail b'remind Anna'
cancelled: True
gone after a second: True
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

import jetspark
from jetspark.errors import MessageNotFoundError


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(
            name="TODO",
            subjects=["todo.*", "plan.*"],
            storage="memory",
            allow_msg_schedules=True,
            allow_msg_ttl=True,
        )
        short = await js.publish("todo.tea", b"ready", ttl=1)  # seconds, or a timedelta

        worker = await stream.create_consumer(name="worker", filter_subject="todo.mail")
        soon = datetime.now(UTC) + timedelta(seconds=1)
        await js.schedule("plan.anna", b"remind Anna", target="todo.mail", at=soon)
        print("scheduled")
        msg = await worker.next(timeout=5)
        print("it came:", msg.subject, msg.data)
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        await js.schedule("plan.bert", b"remind Bert", target="todo.mail", at=tomorrow)
        print("cancelled:", await stream.cancel_schedule("plan.bert"))

        async with asyncio.timeout(5):
            try:
                while True:
                    await stream.get(short.seq)
                    await asyncio.sleep(0.1)
            except MessageNotFoundError:
                print("gone after a second:", True)
        await js.delete_stream("TODO")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
