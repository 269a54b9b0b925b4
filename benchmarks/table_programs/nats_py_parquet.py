"""A stream into Parquet with a loop on nats-py: `URL STREAM SUBJECT FOLDER MESSAGES`.

As one writes it by hand: fetch, parse with PyArrow, write a file, acknowledge. After a kill the
messages without an ack come again.
"""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

_BATCH = 10_000
_OF_A_FILE = 100_000


async def main(url: str, stream: str, subject: str, folder: str) -> None:
    nc = await nats.connect(url)
    js = nc.jetstream()
    config = nats.js.api.ConsumerConfig(max_ack_pending=-1, ack_wait=30)
    reader = await js.pull_subscribe(f"{subject}.*", "table", stream=stream, config=config)
    left = (await reader.consumer_info()).num_pending
    while left:
        messages: list[Any] = []
        while len(messages) < min(left, _OF_A_FILE):
            messages += await reader.fetch(min(_BATCH, left - len(messages)), timeout=5)
        text = b"\n".join(one.data for one in messages)
        rows = pa.json.read_json(io.BytesIO(text))
        last = messages[-1].metadata.sequence.stream
        pq.write_table(rows, f"{folder}/{last}.parquet", compression="zstd")
        for one in messages:
            await one.ack()
        await nc.flush()
        left -= len(messages)
    await nc.close()


if __name__ == "__main__":
    url, stream, subject, folder, _ = sys.argv[1:]
    Path(folder).mkdir(exist_ok=True)
    asyncio.run(main(url, stream, subject, folder))
