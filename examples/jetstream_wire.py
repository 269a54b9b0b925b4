"""The JetStream API as the server has it: JSON in requests of core NATS, nothing else.

$ python examples/jetstream_wire.py [server]
io.nats.jetstream.api.v1.stream_info_response: error 404 stream not found
WIRE has 2 messages
next: wire.a b'message 1', acknowledged
next: wire.a b'message 2', acknowledged
status 404 No Messages
by sequence: 1 b'message 1'

The calls of `nc.jetstream()` do this for you, with typed answers and errors.
"""

import asyncio
import base64
import json
import sys
from typing import Any

import jetspark

NEXT = "$JS.API.CONSUMER.MSG.NEXT.WIRE.test"


async def call(nc: jetspark.Client, subject: str, request: Any = None) -> dict[str, Any]:
    payload = b"" if request is None else json.dumps(request).encode()
    reply = await nc.request(f"$JS.API.{subject}", payload, timeout=2)
    answer: dict[str, Any] = json.loads(reply.data)
    return answer


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        answer = await call(nc, "STREAM.INFO.nonexisting")
        error = answer["error"]
        print(f"{answer['type']}: error {error['code']} {error['description']}")

        await call(nc, "STREAM.CREATE.WIRE", {"name": "WIRE", "subjects": ["wire.*"]})
        for number in (1, 2):
            await nc.request("wire.a", b"message %d" % number, timeout=2)  # the reply is the ack
        answer = await call(nc, "STREAM.INFO.WIRE")
        print("WIRE has", answer["state"]["messages"], "messages")

        config = {"durable_name": "test", "ack_policy": "explicit"}
        body = {"stream_name": "WIRE", "config": config}
        await call(nc, "CONSUMER.DURABLE.CREATE.WIRE.test", body)
        pull = json.dumps({"batch": 2, "no_wait": True}).encode()
        async with nc.subscribe(nc.new_inbox()) as inbox:
            await nc.publish(NEXT, pull, reply=inbox.subject)
            for _ in range(2):
                msg = await inbox.next(timeout=2)
                print("next:", msg.subject, msg.data, end=", ")
                await nc.request(msg.reply or "", b"+ACK", timeout=2)
                print("acknowledged")
            await nc.publish(NEXT, pull, reply=inbox.subject)
            status = (await inbox.next(timeout=2)).status
            if status is not None:
                print("status", status.code, status.description)

        answer = await call(nc, "STREAM.MSG.GET.WIRE", {"seq": 1})
        message = answer["message"]
        print("by sequence:", message["seq"], base64.b64decode(message["data"]))
        await call(nc, "STREAM.DELETE.WIRE")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
