"""The same over Spark: `python -m tests.chaos leaders_spark --runs 40 --seed 1`.

"source": the calls that Spark makes, in its order, over links that were open before the leader
stood still. "Spark": real queries, whose first connection waits for the leader to go on.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.campaign import Kind, Kinds, Run
from tests.chaos.leaders import Streams, Verdict, cluster_of, new_leaders, until
from tests.chaos.outcome import Outcome
from tests.chaos.reading_scene import spark_session
from tests.support.driven_query import DrivenQuery

from jetspark.bulk import links
from jetspark.spark.batch import JetStreamBatchReader
from jetspark.spark.options import parse_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def _kind(act: Callable[[Run, Streams, Verdict], None]) -> Kind:
    def kind(run: Run) -> Outcome:
        cluster, verdict = cluster_of(run), Verdict()
        try:
            streams = Streams(run, cluster)
            act(run, streams, verdict)
            streams.delete()
        except BaseException:
            run.shared.drop("cluster")  # somebody may still stand still
            raise
        return Outcome(
            1,
            verdict.expected,
            verdict.missing,
            verdict.repeated,
            verdict.unexpected,
            failure=verdict.failures,
        )

    return kind


def _options(run: Run, streams: Streams, **more: str) -> dict[str, str]:
    return {
        "servers": streams.leader.url,
        "stream": streams.orders,
        "failOnDataLoss": run.rng.choice(["true", "false"]),
        **more,
    }


def _replace_leader(streams: Streams) -> int:
    """It stands still, others lead; the sequence behind what they have taken."""
    streams.leader.pause()
    other = streams.followers[0]
    new_leaders(streams, other.url)
    streams.change(other.url)
    return streams.facts[streams.orders].last_seq + 1


def _refresh_links() -> None:
    for kept in links._idle.values():
        kept[:] = [(link, time.monotonic()) for link, _ in kept]


def _go_on_meanwhile(run: Run, streams: Streams) -> threading.Thread:
    """The leader goes on in a moment; what is asked until then waits in its sockets."""
    thread = threading.Timer(run.rng.choice([0.0, run.rng.uniform(0, 0.1)]), streams.leader.resume)
    thread.start()
    _refresh_links()
    return thread


def source_batch(run: Run, streams: Streams, verdict: Verdict) -> None:
    options = parse_options(_options(run, streams))
    JetStreamBatchReader(options).partitions()  # its link stays open
    end = _replace_leader(streams)
    thread = _go_on_meanwhile(run, streams)
    reader = JetStreamBatchReader(options)
    found = [
        seq
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for seq in batch.column("seq").to_pylist()
    ]
    thread.join()
    verdict.rows("batch", found, range(1, end))


def source_stream(run: Run, streams: Streams, verdict: Verdict) -> None:
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
    thread = _go_on_meanwhile(run, streams)
    query.run(batches=9, limit=90)
    thread.join()
    query.run(batches=9, limit=90)
    verdict.rows("stream", query.sequences, range(1, end))


# -- real Spark ----------------------------------------------------------------------------------


def _connections(port: int) -> int:
    """Connections to a port, those too that nobody has accepted."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(
        line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines
    )


def _collected(spark: SparkSession, options: dict[str, str], into: list[Any]) -> None:
    try:
        frame = spark.read.format("jetstream").options(**options).load().select("seq")
        into += [row.seq for row in frame.collect()]
    except Exception as error:
        into.append(error)


def spark_batch(run: Run, streams: Streams, verdict: Verdict) -> None:
    spark = run.shared.once("spark", spark_session)
    end = _replace_leader(streams)
    found: list[Any] = []
    before = _connections(streams.leader.port)
    thread = threading.Thread(
        target=_collected, args=(spark, _options(run, streams, minPartitions="2"), found)
    )
    thread.start()
    until(lambda: _connections(streams.leader.port) > before or not thread.is_alive(), "Spark")
    streams.leader.resume()
    thread.join()
    if found and isinstance(found[-1], Exception):
        verdict.fail(f"Spark batch: {str(found[-1]).splitlines()[0]}")
    else:
        verdict.rows("Spark batch", found, range(1, end))


def spark_stream(run: Run, streams: Streams, verdict: Verdict) -> None:
    spark = run.shared.once("spark", spark_session)
    options = _options(run, streams, startingOffsets="earliest", maxOffsetsPerTrigger="150")
    name = f"q{run.number}"
    query = (
        spark.readStream.format("jetstream")
        .options(**options)
        .load()
        .select("seq")
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(run.folder / "checkpoint"))
        .start()
    )
    try:
        until(lambda: spark.table(name).count() > 0 or not query.isActive, "a first batch")
        end = _replace_leader(streams)
        streams.leader.resume()
        until(
            lambda: spark.table(name).count() >= end - 1 or not query.isActive,
            "all rows",
        )
        if (error := query.exception()) is not None:
            verdict.fail(f"Spark stream: {str(error).splitlines()[0]}")
        verdict.rows(
            "Spark stream", [row.seq for row in spark.table(name).collect()], range(1, end)
        )
    finally:
        query.stop()


KINDS: Kinds = {
    "source, batch": _kind(source_batch),
    "source, stream": _kind(source_stream),
    "Spark batch": _kind(spark_batch),
    "Spark stream": _kind(spark_stream),
}
