"""Streams and consumers straight from JSON, as the `nats` tool writes it, and raw answers.

$ python examples/jetstream_json.py [server]
from a file: JSON_EXAMPLE ['json.>'] 1:00:00
from text: worker explicit 0:00:30
as it came: io.nats.jetstream.api.v1.stream_info_response max_age 3600000000000
errors stay typed: StreamNotFoundError 10059

Such a document is what `nats stream info JSON_EXAMPLE --json` shows below "config". It is sent as
it is, so a field that only a newer server knows works too.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import jetspark
from jetspark.errors import StreamNotFoundError

STREAM = """{
  "name": "JSON_EXAMPLE",
  "subjects": ["json.>"],
  "storage": "memory",
  "max_age": 3600000000000
}"""
CONSUMER = '{"durable_name": "worker", "ack_policy": "explicit", "ack_wait": 30000000000}'


async def main(server: str) -> None:
    async with jetspark.connect(server) as nc:
        js = nc.jetstream()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "stream.json"
            file.write_text(STREAM)
            config = (await js.create_stream(file)).cached_info.config
        print("from a file:", config.name, config.subjects, config.max_age)
        worker = await js.stream("JSON_EXAMPLE").create_consumer(CONSUMER)
        rules = worker.cached_info.config
        print("from text:", worker.name, rules.ack_policy, rules.ack_wait)

        answer = await js.api_request("STREAM.INFO.JSON_EXAMPLE")
        print("as it came:", answer["type"], "max_age", answer["config"]["max_age"])
        try:
            await js.api_request("STREAM.INFO.NOT_THERE")
        except StreamNotFoundError as error:
            print("errors stay typed:", type(error).__name__, error.err_code)
        await js.delete_stream("JSON_EXAMPLE")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
