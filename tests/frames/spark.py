"""Scripts of Spark's source and sink, without Spark: no row is lost or comes twice, whatever of a
call was lost. After an error the call is made again, as by a query that was started anew."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pyarrow as pa
from tests.frames.scene import PATIENCE, Scene, retried, within
from tests.support.query import Query

from jetspark.spark.stream_sink.options import SinkOptions, parse_sink_options
from jetspark.spark.stream_sink.target import prepare
from jetspark.spark.stream_sink.writers import JetStreamBatchWriter

_ATTEMPTS = 4
_SECONDS = str(4 * PATIENCE)


def _query(scene: Scene, **options: str) -> Query:
    base = {"servers": scene.url, "stream": "S", "startingOffsets": "earliest"}
    base |= {"maxOffsetsPerTrigger": "5", "readTimeout": _SECONDS}
    query = Query(scene.name, base | options)
    scene.close_later(query.parsed().connection)
    return query


async def _read(query: Query) -> None:
    """What there is."""

    def process() -> None:
        for _ in query.steps({}):
            pass

    await retried(lambda: asyncio.to_thread(process), _ATTEMPTS)


async def _reads(scene: Scene, query: Query, subject: Any = None) -> None:
    of = subject or (lambda number: scene.subject)
    numbers = range(1, 19)
    scene.begin()
    async with within(50, "a query"):
        for some in (numbers[:12], numbers[12:]):
            for number in some:
                await scene.near.publish(of(number), b"%d" % number)
            await _read(query)
    assert [seq for seq, _ in query.rows] == list(numbers)


async def query(scene: Scene) -> None:
    await scene.stream()
    await _reads(scene, _query(scene))


async def query_of_keys(scene: Scene) -> None:
    """Where newer messages replace older ones, one is remembered with each offset."""
    await scene.stream(max_msgs_per_subject=1)
    await _reads(scene, _query(scene), lambda number: f"{scene.name}.{number}")


async def query_of_a_work_queue(scene: Scene) -> None:
    """What was read is removed, and nothing else."""
    await scene.stream(retention="workqueue", allow_direct=True)
    await _reads(scene, _query(scene, soleReader="true"))


async def query_by_interest(scene: Scene) -> None:
    await scene.stream(retention="interest", allow_direct=True)
    query = _query(scene, interestConsumer="spark")
    await _read(query)  # from here on the stream keeps messages
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
