"""A large stream through Structured Streaming into Parquet: does the rate hold, and the memory?

One query with AvailableNow in local mode; every micro-batch has an equal share of the stream. The
figures are those of the first and of the last fifth of the micro-batches behind a warm-up of five,
and the memory of all processes at the end of each fifth. Then the same query runs on while nothing
arrives but one message now and then: what a micro-batch costs the driver.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import chdir, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import STREAM, Job, session_pids
from benchmarks.raw import RawLink, publish
from benchmarks.stage import stage
from benchmarks.suites.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SINGLE = 20
_WARM_UP = 5  # micro-batches in which the JVM compiles what matters


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steady", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000, metavar="N")
    parser.add_argument("--size", type=int, default=128, metavar="BYTES")
    parser.add_argument("--batches", type=int, default=50, metavar="N")
    parser.add_argument("--partitions", type=int, default=2, metavar="N")
    parser.set_defaults(warm_up=1_000)
    options = parser.parse_args()
    with suppress(PermissionError):
        os.setsid()  # so that Spark's processes can be told from others
    with (
        tempfile.TemporaryDirectory() as folder,
        stage(options, partitions=options.partitions) as job,
        chdir(folder),
        session(job) as spark,
    ):
        rows = (
            spark.readStream.format("jetstream")
            .option("servers", job.url)
            .option("stream", STREAM)
            .option("startingOffsets", "earliest")
            .option("minPartitions", options.partitions)
            .option("maxOffsetsPerTrigger", -(-options.messages // options.batches))
            .load()
        )
        _ingest(rows, options.messages)
        _idle(rows, job)


def _ingest(rows: DataFrame, messages: int) -> None:
    query = _writer(rows).trigger(availableNow=True).start()
    progress: list[dict[str, Any]] = []
    memory: list[int] = []
    while query.isActive or len(progress) <= _last_batch(query):
        for one in _new(query, progress):
            progress.append(one)
            memory.append(_resident())
        time.sleep(0.2)
    query.awaitTermination()
    done = [one for one in progress if one["numInputRows"]]
    held = sum(one["numInputRows"] for one in done)
    if held != messages:
        raise AssertionError(f"{held} of {messages} messages were read")
    done, memory = done[_WARM_UP:], memory[_WARM_UP:]
    fifth = max(1, len(done) // 5)
    for name, part in (("first", done[:fifth]), ("last", done[-fifth:]), ("all", done)):
        seconds = sum(one["durationMs"]["triggerExecution"] for one in part) / 1000
        count = sum(one["numInputRows"] for one in part)
        print(f"{name:5} {len(part):4} batches, {count:,} rows: {count / seconds:,.0f} rows/s")
    marks = [memory[min(len(memory), (n + 1) * fifth) - 1] / 1e6 for n in range(5)]
    print("resident at the end of each fifth, MB:", *(f"{mark:,.0f}" for mark in marks))


def _idle(rows: DataFrame, job: Job) -> None:
    query = _writer(rows).trigger(processingTime="100 milliseconds").start()
    progress: list[dict[str, Any]] = []
    with RawLink(job.url) as link:
        for number in range(1, _SINGLE + 1):
            publish(link, STREAM, 1, job.size)
            deadline = time.monotonic() + 60
            while sum(one["numInputRows"] for one in progress) < number:
                if time.monotonic() > deadline:
                    raise AssertionError("the message was not read within a minute")
                progress += _new(query, progress)
                time.sleep(0.02)
    query.stop()
    done = [one["durationMs"] for one in progress if one["numInputRows"]]
    print(f"{_SINGLE} micro-batches of one message, median milliseconds of the driver:")
    for step in done[-1]:
        print(f"  {step:20} {statistics.median(one.get(step, 0) for one in done):6.0f}")
    idle = [one["durationMs"] for one in progress if not one["numInputRows"]]
    for step in idle[-1] if idle else ():
        print(
            f"  nothing new: {step:20} {statistics.median(one.get(step, 0) for one in idle):6.0f}"
        )


def _writer(rows: DataFrame) -> Any:
    return (
        rows.writeStream.format("parquet")
        .option("path", str(Path("table").absolute()))
        .option("checkpointLocation", str(Path("checkpoint").absolute()))
    )


def _last_batch(query: Any) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


def _new(query: Any, seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reports that were not seen yet; Spark keeps the last hundred."""
    known = {(one["batchId"], one["timestamp"]) for one in seen[-200:]}
    recent = [one for one in query.recentProgress if one["numInputRows"] or one["batchId"] >= 0]
    return [one for one in recent if (one["batchId"], one["timestamp"]) not in known]


def _resident() -> int:
    """Bytes of all processes of this session that are resident now, without the server."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in session_pids(os.getsid(0)):
        try:
            words = Path(f"/proc/{pid}/statm").read_text().split()
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue  # it has just ended
        if name != "nats-server":
            total += int(words[1]) * page
    return total


if __name__ == "__main__":
    main()
