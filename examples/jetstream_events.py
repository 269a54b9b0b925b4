"""What JetStream tells of itself: advisories, samples of acks, the log of API calls.

$ python examples/jetstream_events.py [server]
StreamActionEvent create SAMPLED
ApiAuditEvent $JS.API.STREAM.CREATE.SAMPLED
ConsumerActionEvent create worker
ConsumerAckMetric of worker, delivery 1
"""

import asyncio
import sys

import jetspark
from jetspark.documents.events import (
    ApiAuditEvent,
    ConsumerAckMetric,
    ConsumerActionEvent,
    StreamActionEvent,
)


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        async with js.events() as events:
            await nc.flush()  # from here on the server tells us
            stream = await js.create_stream(name="SAMPLED", subjects=["sampled"], storage="memory")
            worker = await stream.create_consumer(name="worker", sample_freq="100%")
            await js.publish("sampled")
            for msg in await worker.fetch(1, timeout=2):
                await msg.ack()
            told: dict[str, str] = {}
            async for event in events:
                if isinstance(event, StreamActionEvent):
                    text = f"{event.action} {event.stream}"
                elif isinstance(event, ConsumerActionEvent):
                    text = f"{event.action} {event.consumer}"
                elif isinstance(event, ApiAuditEvent):
                    text = event.subject
                elif isinstance(event, ConsumerAckMetric):
                    text = f"of {event.consumer}, delivery {event.deliveries}"
                else:
                    continue
                told.setdefault(type(event).__name__, text)
                if len(told) == 4:
                    break
        for kind in (
            "StreamActionEvent",
            "ApiAuditEvent",
            "ConsumerActionEvent",
            "ConsumerAckMetric",
        ):
            print(kind, told[kind])
        await js.delete_stream("SAMPLED")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
