"""The same names without async, for scripts and notebooks: publish, request, JetStream.

$ python examples/without_async.py [server]
reply: 42
stored: 1
fetched: b'42 apples'
"""

import sys

from jetspark.blocking import Message, connect


def answer(msg: Message) -> None:
    msg.respond(b"42")


def main(server: str) -> None:
    with connect(server) as nc:
        nc.subscribe("price", callback=answer)
        print("reply:", nc.request("price", timeout=2).data.decode())

        js = nc.jetstream()
        stream = js.create_stream(name="EXAMPLE", subjects=["example.>"], storage="memory")
        print("stored:", js.publish("example.eu", b"42 apples").seq)
        worker = stream.create_consumer(name="worker")
        for msg in worker.fetch(1, timeout=5):
            print("fetched:", msg.data)
            msg.ack()
        js.delete_stream("EXAMPLE")


main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222")
