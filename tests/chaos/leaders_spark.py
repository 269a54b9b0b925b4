"""The same over Spark: `python -m tests.chaos leaders_spark --runs 40 --seed 1`.

"source": the calls that Spark makes, in its order, over links that were open before the leader
stood still. "Spark": real queries, whose first connection waits for the leader to go on.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.campaign import Kinds, Run
from tests.chaos.leaders import Streams, Verdict, kind, replace_leader
from tests.chaos.reading_scene import eventually, spark_session
from tests.support.driven_query import DrivenQuery

from jetspark.bulk import links
from jetspark.spark.options import parse_options
from jetspark.spark.source import JetStreamBatchReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MOST_STARTS = 12


def _options(run: Run, streams: Streams, **more: str) -> dict[str, str]:
    return {
        "servers": streams.leader.url,
        "stream": streams.orders,
        "failOnDataLoss": run.rng.choice(["true", "false"]),
        **more,
    }


def _replace_leader(streams: Streams) -> int:
    """It stands still, others lead; the sequence behind what they have taken.

    In half of the runs it is cut off from the others, too, and stays so for a while.
    """
    streams.leader.pause()
    if streams.run.rng.random() < 0.5:
        streams.cluster.cut_off(streams.leader)
    replace_leader(streams, streams.followers[0])
    return streams.facts[streams.orders].last_seq + 1


def _refresh_links() -> None:
    for kept in links._idle.values():
        kept[:] = [(link, time.monotonic()) for link, _ in kept]


def _comes_back(streams: Streams, after: float = 0.0) -> threading.Thread:
    """The leader goes on after so many seconds, and is joined to the others."""
    apart = streams.run.rng.uniform(0, 3)

    def come_back() -> None:
        streams.leader.resume()
        time.sleep(apart)
        streams.cluster.join(streams.leader)

    thread = threading.Timer(after, come_back)
    thread.start()
    return thread


def _go_on_meanwhile(streams: Streams) -> threading.Thread:
    """The leader goes on in a moment; what is asked until then waits in its sockets."""
    rng = streams.run.rng
    thread = _comes_back(streams, rng.choice([0.0, rng.uniform(0, 0.1)]))
    _refresh_links()
    return thread


def source_batch(streams: Streams) -> Verdict:
    run, verdict = streams.run, Verdict()
    options = parse_options(_options(run, streams))
    JetStreamBatchReader(options).partitions()  # its link stays open
    end = _replace_leader(streams)
    thread = _go_on_meanwhile(streams)
    reader = JetStreamBatchReader(options)
    found = [
        seq
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for seq in batch.column("seq").to_pylist()
    ]
    thread.join()
    verdict.rows("batch", found, range(1, end))
    return verdict


def source_stream(streams: Streams) -> Verdict:
    run, verdict = streams.run, Verdict()
    more = _options(run, streams)
    query = DrivenQuery(more.pop("servers"), more.pop("stream"), **more)
    query.run(batches=2, limit=200)
    if run.rng.random() < 0.5:
        # It has read what the old leader has never seen.
        query.options["servers"] = streams.followers[0].url
        end = _replace_leader(streams)
        query.run(batches=9, limit=90)
        query.options["servers"] = streams.leader.url
    else:
        end = _replace_leader(streams)
    thread = _go_on_meanwhile(streams)

    def has_the_end() -> bool:
        query.run(batches=9, limit=90)
        return max(query.sequences) >= end - 1

    # A trigger that finds nothing new is no loss: an old leader may have answered it.
    eventually(has_the_end, "the last row")
    thread.join()
    query.run(batches=9, limit=90)
    verdict.rows("stream", query.sequences, range(1, end))
    return verdict


# -- real Spark ----------------------------------------------------------------------------------


def _at_the_door(port: int) -> set[tuple[str, ...]]:
    """Connections at a port, also those that nobody has accepted, and how much each has unread."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {
        (remote, queues)
        for _, local, remote, state, queues, *_ in lines
        if local.endswith(f":{port:04X}") and state == "01"
    }


def _collected(spark: SparkSession, options: dict[str, str], into: list[Any]) -> None:
    try:
        frame = spark.read.format("jetstream").options(**options).load().select("seq")
        into += [row.seq for row in frame.collect()]
    except Exception as error:
        into.append(error)


def spark_batch(streams: Streams) -> Verdict:
    run, verdict = streams.run, Verdict()
    spark = run.shared.once("spark", spark_session)
    end = _replace_leader(streams)
    found: list[Any] = []
    before = _at_the_door(streams.leader.port)
    thread = threading.Thread(
        target=_collected, args=(spark, _options(run, streams, minPartitions="2"), found)
    )
    thread.start()
    eventually(
        lambda: not _at_the_door(streams.leader.port) <= before or not thread.is_alive(),
        "Spark asks the leader",
    )
    back = _comes_back(streams)
    thread.join()
    back.join()
    if found and isinstance(found[-1], Exception):
        verdict.fail(f"Spark batch: {str(found[-1]).splitlines()[0]}")
    else:
        verdict.rows("Spark batch", found, range(1, end))
    return verdict


def _rows_read(query: StreamingQuery) -> int:
    return sum(one["numInputRows"] for one in query.recentProgress)


def _read_something(query: StreamingQuery) -> bool:
    """Waits for a first batch; whether there was one, and not a worker that was too slow.

    Spark gives a worker ten seconds to start, which a busy machine may need.
    """
    eventually(lambda: _rows_read(query) > 0 or not query.isActive, "a first batch")
    return query.isActive or "failed to connect back" not in str(query.exception())


def _started(run: Run, spark: SparkSession, options: dict[str, str]) -> StreamingQuery:
    """A query into a table in memory of its name, which has a first batch."""
    for attempt in range(_MOST_STARTS):
        query = (
            spark.readStream.format("jetstream")
            .options(**options)
            .load()
            .select("seq")
            .writeStream.format("memory")
            .queryName(f"q{run.number}_{attempt}")
            .option("checkpointLocation", str(run.folder / f"checkpoint{attempt}"))
            .start()
        )
        if _read_something(query):
            break
    return query


def spark_stream(streams: Streams) -> Verdict:
    run, verdict = streams.run, Verdict()
    more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}
    spark = run.shared.once("spark", spark_session)
    query = _started(run, spark, _options(run, streams, **more))
    try:
        end = _replace_leader(streams)
        back = _comes_back(streams)
        eventually(lambda: _rows_read(query) >= end - 1 or not query.isActive, "all rows")
        back.join()
        if (error := query.exception()) is None:
            query.processAllAvailable()  # nothing may come again
        else:
            verdict.fail(f"Spark stream: {str(error).splitlines()[0]}")
        found = spark.table(query.name).collect()
        verdict.rows("Spark stream", [row.seq for row in found], range(1, end))
    finally:
        query.stop()
    return verdict


KINDS: Kinds = {
    "source, batch": kind(source_batch),
    "source, stream": kind(source_stream),
    "Spark batch": kind(spark_batch),
    "Spark stream": kind(spark_stream),
}
