"""What many streams, messages and partitions cost: measured here, and a model for what is larger.

Streams: a query over N streams by pattern, driven as Spark drives it: a trigger in which nothing is
new, one in which every stream has a message, and the offset that Spark logs. Backlog: planning, up
to `--backlog` messages that no server has. With `--spark`, also what a task, a range and a message
cost in a micro-batch, and a model with these coefficients; docs/scale.md explains it.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Job
from benchmarks.raw import RawLink, publish
from benchmarks.stage import empty_stage
from benchmarks.suites.latency import our_session

_SLOTS = 2


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 10, 100, 1000], metavar="N")
    parser.add_argument("--backlog", type=float, default=1e11, metavar="MESSAGES")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--spark", action="store_true")
    parser.set_defaults(messages=0, size=128, warm_up=0)
    options = parser.parse_args()
    with empty_stage(options) as job:
        print(f"load {os.getloadavg()[0]:.1f}")
        per_stream = _streams(job, sorted(options.streams), options.rounds)
        per_partition = _backlog(options.backlog)
        if options.spark:
            costs = _batches(job, options.rounds)
            _model(Model(per_stream, per_partition, *costs))


# -- streams -----------------------------------------------------------------------------------


def _streams(job: Job, counts: Sequence[int], rounds: int) -> float:
    """Returns the seconds of an idle trigger for one stream, from the largest number."""
    print(
        f"{'streams':>8} {'idle ms':>9} {'all new ms':>11} {'plan ms':>9} {'partitions':>11} "
        f"{'offset bytes':>13} {'µs/stream':>10}"
    )
    slope = 0.0
    with RawLink(job.url) as link:
        made = 0
        for count in counts:
            for number in range(made, count):
                name = f"N{number:05}"
                config = {"name": name, "subjects": [name], "storage": "memory"}
                link.api(f"STREAM.CREATE.{name}", config)
            made = count
            idle, new, planning, parts, size = _driven(job, link, count, rounds)
            slope = idle / count
            print(
                f"{count:8,} {1e3 * idle:9.1f} {1e3 * new:11.1f} {1e3 * planning:9.1f} "
                f"{parts:11,} {size:13,} {1e6 * slope:10.0f}",
                flush=True,
            )
        for number in range(made):
            link.api(f"STREAM.DELETE.N{number:05}")
    return slope


def _driven(
    job: Job, link: RawLink, streams: int, rounds: int
) -> tuple[float, float, float, int, int]:
    from jetspark.spark.source.options import parse_options
    from jetspark.spark.source.stream_reader import JetStreamStreamReader

    options = {"servers": job.url, "streamPattern": "N.*", "startingOffsets": "earliest"}
    reader = JetStreamStreamReader(parse_options(options))
    limit = reader.getDefaultReadLimit()
    offset: Any = reader.initialOffset()
    idle, new, planning = [], [], []
    parts: Sequence[Any] = ()

    def trigger(start: Any) -> tuple[Any, float]:
        """As Spark's source runner: offsets cross a socket as JSON."""
        begun = time.perf_counter()
        end = json.loads(json.dumps(reader.latestOffset(json.loads(json.dumps(start)), limit)))
        json.dumps(reader.reportLatestOffset())
        return end, time.perf_counter() - begun

    offset, _ = trigger(offset)
    for _ in range(rounds):
        offset, seconds = trigger(offset)
        idle.append(seconds)
        for number in range(streams):
            link.send(f"PUB N{number:05} 3\r\nnew\r\n".encode())
        link.api("STREAM.NAMES")  # everything before it is stored
        end, seconds = trigger(offset)
        new.append(seconds)
        begun = time.perf_counter()
        parts = reader.partitions(offset, end)
        pickle.dumps(parts)
        planning.append(time.perf_counter() - begun)
        offset = end
    return (
        statistics.median(idle),
        statistics.median(new),
        statistics.median(planning),
        len(parts),
        len(json.dumps(offset)),
    )


# -- backlog -----------------------------------------------------------------------------------


def _backlog(most: float) -> float:
    """Returns the seconds of planning for one partition, from the largest backlog."""
    from jetspark.options.scopes import SourceScope
    from jetspark.ranges.sequence_range import SequenceRange
    from jetspark.spark.source.options import parse_options
    from jetspark.spark.source.partitions import plan_partitions

    print(f"{'backlog':>8} {'partitions':>11} {'plan s':>8} {'MB of partitions':>17}")
    options = parse_options({"stream": "S"})
    backlog, slope = 10**6, 0.0
    while backlog <= most:
        begun = time.perf_counter()
        parts = plan_partitions(
            options, [SequenceRange("S", 1, backlog + 1, "2026-01-01T00:00:00Z")]
        )
        size = sum(len(pickle.dumps(part)) for part in parts)
        seconds = time.perf_counter() - begun
        slope = seconds / len(parts)
        print(f"{backlog:8.0e} {len(parts):11,} {seconds:8.3f} {size / 1e6:17.1f}", flush=True)
        backlog *= 10
    print(f"with maxRecordsPerPartition {SourceScope.max_records_per_partition:,}")
    return slope


# -- micro-batches -----------------------------------------------------------------------------


def _batches(job: Job, rounds: int) -> tuple[float, float, float, float]:
    """Seconds of a batch with one task, a further task, a further range, a further message."""

    def batch(streams: int, messages: int, partitions: int) -> tuple[int, int, int]:
        return streams, messages, partitions

    kinds = {  # the smallest last, when the JVM has compiled what matters
        "tasks": batch(1, 40, 40),
        "messages": batch(1, 400_000, 1),
        "ranges": batch(40, 1, 1),
        "one": batch(1, 1, 1),
    }
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        this = Job(
            url=job.url, messages=0, size=job.size, warm_messages=0, settings={"partitions": _SLOTS}
        )
        with our_session(this) as spark:
            found = {name: _batch(spark, job, rounds, *kind) for name, kind in kinds.items()}
    for name, seconds in found.items():
        streams, messages, partitions = kinds[name]
        print(
            f"batch of {streams} streams, {messages:,} messages each, {partitions} partitions: "
            f"{1e3 * seconds:,.0f} ms"
        )
    one = found["one"]
    return (
        one,
        (found["tasks"] - one) / 39 * _SLOTS,
        (found["ranges"] - one) / 39,
        (found["messages"] - one) / 400_000,
    )


def _batch(
    spark: Any, job: Job, rounds: int, streams: int, messages: int, partitions: int
) -> float:
    """The median of Spark's addBatch, into noop."""
    whole = streams * messages
    with RawLink(job.url) as link:
        names = [f"B{number:03}" for number in range(streams)]
        for name in names:
            config = {"name": name, "subjects": [f"{name}.*"], "storage": "memory"}
            link.api(f"STREAM.CREATE.{name}", config)
        rows = (
            spark.readStream.format("jetstream")
            .options(
                servers=job.url,
                streams=",".join(names),
                startingOffsets="latest",
                minPartitions=partitions,
                maxRecordsPerPartition=10**9,
                minOffsetsPerTrigger=whole,
                maxTriggerDelay="3s",
            )
            .load()
        )
        query = rows.writeStream.format("noop").trigger(processingTime="0 seconds").start()
        try:
            _wait(lambda: query.lastProgress is not None)
            for number in range(1, rounds + 3):
                for name in names:
                    publish(link, name, messages, job.size)
                _wait(lambda wanted=number * whole: _rows(query) >= wanted)  # type: ignore[misc]
            full = [one for one in query.recentProgress if one["numInputRows"] == whole]
            return float(statistics.median(one["durationMs"]["addBatch"] / 1e3 for one in full[1:]))
        finally:
            query.stop()
            for name in names:
                link.api(f"STREAM.DELETE.{name}")


def _rows(query: Any) -> int:
    return sum(one["numInputRows"] for one in query.recentProgress)


def _wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError("no micro-batch within 40 seconds")
        time.sleep(0.02)


# -- the model ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """Seconds."""

    stream: float
    """The driver, in each trigger, for one stream."""
    partition: float
    """The driver, for planning a partition."""
    batch: float
    """A micro-batch with one task and one message."""
    task: float
    """A further task, in one slot."""
    range: float
    """A further range in a task."""
    message: float
    """A further message in a task, of the size that was measured."""

    def seconds(self, streams: int, messages: float, partitions: int, slots: int) -> float:
        """One micro-batch that reads `messages` in all from `streams`."""
        driver = self.stream * streams + self.partition * partitions
        work = (
            self.task * max(0, partitions - 1)
            + self.range * max(0, streams - 1)
            + self.message * messages
        )
        return driver + self.batch + work / min(slots, max(1, partitions))


def _model(model: Model) -> None:
    print("coefficients:", {name: f"{1e6 * value:,.2f} µs" for name, value in vars(model).items()})
    print(f"{'streams':>8} {'messages':>9} {'partitions':>11} {'slots':>6} {'seconds':>10}")
    for streams, messages, slots in (
        (1, 1e6, 2),
        (1, 1e9, 200),
        (1000, 1e3, 2),
        (1000, 1e9, 200),
        (10_000, 1e4, 2),
        (10_000, 1e10, 1000),
        (10_000, 1e12, 1000),
    ):
        partitions = max(1, round(messages / 250_000), streams // 64)
        seconds = model.seconds(streams, messages, partitions, slots)
        print(f"{streams:8,} {messages:9.0e} {partitions:11,} {slots:6,} {seconds:10,.1f}")


if __name__ == "__main__":
    main()
