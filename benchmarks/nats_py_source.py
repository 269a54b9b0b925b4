"""A PySpark data source on nats-py, as good as one can be made: what jetspark is compared with.

It plans the same ranges of sequences as jetspark does, asks with fetch in batches, and hands Arrow
record batches of the same schema to Spark. Sequence and time are cut out of the reply subject by
hand, because Msg.metadata makes three more objects for each message. It leaves out what a careful
source needs besides speed: proofs of completeness, reconnecting, data loss, limits of bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import pairwise

import nats
import pyarrow as pa
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from jetspark.ranges.arrow import SCHEMA as ARROW_SCHEMA
from jetspark.spark.data_source import SCHEMA

_ROWS = 10_000  # in one record batch, as many as jetspark puts there
_TIMEOUT = 30.0


@dataclass
class Range(InputPartition):
    """Sequences `start` (included) to `end` (not included)."""

    start: int
    end: int


class NatsPySource(DataSource):
    """format("natspy") with the options servers, stream, partitions, fetch."""

    @classmethod
    def name(cls) -> str:
        return "natspy"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return NatsPyReader(dict(self.options))


class NatsPyReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._url = options["servers"]
        self._stream = options["stream"]
        self._partitions = int(options["partitions"])
        self._fetch = int(options["fetch"])

    def partitions(self) -> list[Range]:
        last = asyncio.run(self._last_sequence())
        cuts = [last * i // self._partitions + 1 for i in range(self._partitions + 1)]
        return [Range(a, b) for a, b in pairwise(cuts)]

    async def _last_sequence(self) -> int:
        client = await nats.connect(self._url)
        info = await client.jetstream().stream_info(self._stream)
        await client.close()
        return info.state.last_seq

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        batches = self._batches(partition)
        with asyncio.Runner() as runner:
            try:
                while True:
                    yield runner.run(anext(batches))  # type: ignore[arg-type]
            except StopAsyncIteration:
                pass

    async def _batches(self, wanted: Range) -> AsyncIterator[pa.RecordBatch]:
        client = await nats.connect(self._url)
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=wanted.start,
            ack_policy=AckPolicy.NONE,
            mem_storage=True,
            inactive_threshold=60.0,
        )
        info = await client.jetstream().add_consumer(self._stream, config)
        consumer = await client.jetstream().pull_subscribe_bind(info.name, self._stream)
        messages: list[Msg] = []
        left = wanted.end - wanted.start  # the benchmark's streams have no gaps
        while left:
            batch = await consumer.fetch(min(self._fetch, left), timeout=_TIMEOUT)
            left -= len(batch)
            messages += batch
            if len(messages) >= _ROWS or not left:
                yield self._to_batch(messages)
                messages = []
        await client.close()

    def _to_batch(self, messages: list[Msg]) -> pa.RecordBatch:
        tokens = [message.reply.split(".") for message in messages]
        times = pa.array([int(one[7]) // 1000 for one in tokens], pa.int64())
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(self._stream, len(messages)),
                pa.array([message.subject for message in messages], pa.string()),
                pa.array([int(one[5]) for one in tokens], pa.int64()),
                times.view(pa.timestamp("us", tz="UTC")),
                pa.array([message.data for message in messages], pa.binary()),
                pa.array(
                    [message.headers and list(message.headers.items()) for message in messages],
                    ARROW_SCHEMA.field("headers").type,
                ),
            ],
            schema=ARROW_SCHEMA,
        )
