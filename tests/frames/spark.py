"""Scripts of Spark's source and sink, without Spark: no row is lost or comes twice, whatever of a
call was lost. After an error the call is made again, as by a query that was started anew."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pyarrow as pa
from tests.frames.scene import PATIENCE, Scene, retried, within

from jetspark.spark.options import parse_options
from jetspark.spark.sink_options import SinkOptions, parse_sink_options, prepare
from jetspark.spark.stream import JetStreamStreamReader
from jetspark.spark.writer import JetStreamBatchWriter

_ATTEMPTS = 4
_SECONDS = str(4 * PATIENCE)


class Query:
    """Spark logs the end of a batch before it reads it, and reads a logged batch again."""

    def __init__(self, scene: Scene, **options: str) -> None:
        parsed = parse_options(
            {
                "servers": scene.url,
                "stream": scene.name,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "5",
                "readTimeout": _SECONDS,
                **options,
            }
        )
        scene.close_later(parsed.connection)
        self._options = parsed
        self._logged: list[str] = []
        self._done = 0
        self.sequences: list[int] = []

    async def run(self) -> None:
        """Read what there is."""
        await retried(lambda: asyncio.to_thread(self._run), _ATTEMPTS)

    def _run(self) -> None:
        reader = JetStreamStreamReader(self._options)
        start = self._offset(self._done) or reader.initialOffset()
        while True:
            end = self._offset(self._done + 1)
            if end is None:
                end = reader.latestOffset(start, reader.getDefaultReadLimit())
                if end == start:
                    return
                self._logged.append(json.dumps(end))
                if self._done:
                    reader.commit(start)
            rows: list[int] = []
            for partition in reader.partitions(start, end):
                for batch in reader.read(partition):
                    rows += batch.column("seq").to_pylist()
            self.sequences += rows
            self._done += 1
            start = end

    def _offset(self, number: int) -> dict[str, Any] | None:
        """As of so many batches."""
        if not 0 < number <= len(self._logged):
            return None
        offset: dict[str, Any] = json.loads(self._logged[number - 1])
        return offset


async def _reads(scene: Scene, query: Query, subject: Any = None) -> None:
    of = subject or (lambda number: scene.subject)
    numbers = range(1, 19)
    scene.begin()
    async with within(50, "a query"):
        for some in (numbers[:12], numbers[12:]):
            for number in some:
                await scene.near.publish(of(number), b"%d" % number)
            await query.run()
    assert query.sequences == list(numbers)


async def query(scene: Scene) -> None:
    await scene.stream()
    await _reads(scene, Query(scene))


async def query_of_keys(scene: Scene) -> None:
    """Where newer messages replace older ones, one is remembered with each offset."""
    await scene.stream(max_msgs_per_subject=1)
    await _reads(scene, Query(scene), lambda number: f"{scene.name}.{number}")


async def query_of_a_work_queue(scene: Scene) -> None:
    """What was read is removed, and nothing else."""
    await scene.stream(retention="workqueue", allow_direct=True)
    await _reads(scene, Query(scene, soleReader="true"))


async def query_by_interest(scene: Scene) -> None:
    await scene.stream(retention="interest", allow_direct=True)
    query = Query(scene, interestConsumer="spark")
    await asyncio.to_thread(query._run)  # from here on the stream keeps messages
    await _reads(scene, query)


# -- the sink --------------------------------------------------------------------------------


def _options(scene: Scene, **options: str) -> SinkOptions:
    where = {"servers": scene.url, "publishTimeout": _SECONDS}
    parsed = parse_sink_options(where | options).for_batch()
    scene.close_later(parsed.connection)
    return parsed


def _write(options: SinkOptions, tasks: list[dict[str, list[Any]]]) -> None:
    writer = JetStreamBatchWriter(options, prepare(options))
    writer.commit([writer.write(iter([pa.record_batch(rows)])) for rows in tasks])


async def transaction(scene: Scene) -> None:
    """The stream is prepared, and the rows are written once; so again by another attempt."""
    await scene.stream()
    options = _options(
        scene,
        stream=scene.name,
        guarantee="exactly-once",
        prepareStream="true",
        transactionId="t",
        subject=scene.subject,
    )
    rows = [b"%d" % number for number in range(12)]
    scene.begin()
    async with within(50, "a transaction"):
        for parts in (2, 3):
            tasks = [{"data": rows[part::parts]} for part in range(parts)]
            await retried(lambda it=tasks: asyncio.to_thread(_write, options, it), _ATTEMPTS)  # type: ignore[misc]
    try:
        assert Counter(await scene.stored(scene.subject)) == Counter(rows)
    finally:
        await scene.near.delete_stream(f"{scene.name}_SPARK")


async def entries(scene: Scene) -> None:
    """A bucket's last values are those of the last rows."""
    bucket = await scene.near.create_bucket(scene.name, storage="memory")
    options = _options(scene, bucket=scene.name)
    rows: dict[str, list[Any]] = {
        "key": ["ab"[n % 2] for n in range(20)],
        "value": [b"%d" % n for n in range(20)],
    }
    scene.begin()
    async with within(30, "writing entries"):
        await retried(lambda: asyncio.to_thread(_write, options, [rows]), _ATTEMPTS)
    assert [await bucket.get_value(key) for key in "ab"] == [b"18", b"19"]


async def effectively_once(scene: Scene) -> None:
    await scene.stream()
    options = _options(
        scene, stream=scene.name, guarantee="effectively-once", subject=scene.subject
    )
    rows = [b"%d" % number for number in range(20)]
    task: dict[str, list[Any]] = {"data": rows, "msg_id": [row.decode() for row in rows]}
    scene.begin()
    async with within(30, "writing with ids"):
        await retried(lambda: asyncio.to_thread(_write, options, [task]), _ATTEMPTS)
    assert Counter(await scene.stored()) == Counter(rows)


SCRIPTS = [
    *(query, query_of_keys, query_of_a_work_queue, query_by_interest),
    *(transaction, entries, effectively_once),
]
