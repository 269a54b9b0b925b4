"""From publish to the row in the sink: one message at a time, and a steady rate.

A query of Structured Streaming in local mode, warmed up. One message at a time: each is published a
random moment (up to `--pause` seconds) after the one before was in the sink. Steady: `--rate`
messages a second for `--seconds`. A row is in foreachBatch when the function has collected it, in
foreach when the function is called with it, in Parquet when Spark's log of the table has its file,
in a stream or bucket when an ordered consumer has it. The second part of each line is where a
micro-batch with rows spends its time, by Spark's reports (medians, ms), and what two parts of the
source take when they are called alone: asking for the stream's state, and reading one message.

`--session ours` is what `jetspark ingest` and `run` have: `local_session`, and checkpoints written
without processes; `plain` is PySpark's own session with no settings for this.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import arrivals as by
from benchmarks.arrivals import Arrivals, number_of
from benchmarks.measure import STREAM, Job, Measure, Stopwatch, session_cpu, session_peak
from benchmarks.race import chosen, contestant_options, race
from benchmarks.raw import RawLink, make_stream
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.suites.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_LABELS = {
    "jetspark_foreach_batch": "foreachBatch",
    "jetspark_foreach": "foreach",
    "jetspark_parquet": "Parquet",
    "jetspark_stream": "stream",
    "jetspark_exactly_once": "stream, exactly once",
    "jetspark_bucket": "bucket",
}
_TRIGGERS = {"default": -1, "0": 0, "1": 1000}
_LOADS = ("single", "steady")
_TARGET = "TARGET"
_PARTS = (
    "triggerExecution",
    "latestOffset",
    "walCommit",
    "getBatch",
    "queryPlanning",
    "addBatch",
    "commitOffsets",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=200, warm_up=50, rounds=3)
    parser.add_argument("--trigger", nargs="+", choices=_TRIGGERS, default=["0"], metavar="SECONDS")
    parser.add_argument("--load", nargs="+", choices=_LOADS, default=["single"], metavar="LOAD")
    parser.add_argument("--session", choices=("ours", "plain"), default="ours")
    parser.add_argument("--pause", type=float, default=0.2, metavar="SECONDS")
    parser.add_argument("--rate", type=int, default=1000, metavar="N", help="messages a second")
    parser.add_argument("--seconds", type=int, default=10, metavar="N")
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options) as job:
        for load in options.load:
            for trigger in options.trigger:
                settings = {"partitions": 2, "trigger": _TRIGGERS[trigger]}
                settings["ours"] = int(options.session == "ours")
                if load == "single":
                    what = f"{options.messages:,} messages one at a time"
                    messages = options.messages
                    settings["pause"] = round(options.pause * 1000)
                else:
                    what = f"{options.rate:,} messages a second for {options.seconds} s"
                    messages = options.rate * options.seconds
                    settings["rate"] = options.rate
                title = f"Latency, {what}, trigger {trigger}, session {options.session}, ms"
                this = replace(job, messages=messages, settings=settings)
                yield race(options, __name__, chosen(options, _LABELS), this, title)


# -- contestants -------------------------------------------------------------------------------


def jetspark_foreach_batch(job: Job) -> Measure:
    def sink(rows: DataFrame, arrivals: Arrivals) -> Any:
        def arrived(batch: DataFrame, _: int) -> None:
            found = batch.select("data").collect()
            arrivals.add([number_of(row.data) for row in found], time.monotonic_ns())

        return rows.writeStream.foreachBatch(arrived)

    return _latency(job, sink)


def jetspark_foreach(job: Job) -> Measure:
    path = Path("arrivals").absolute()

    def sink(rows: DataFrame, _: Arrivals) -> Any:
        return rows.writeStream.foreach(partial(_tell, path))

    return _latency(job, sink, lambda arrivals: by.by_datagram(arrivals, path))


def _tell(path: Path, row: Row) -> None:
    by.tell(path, b"%d %d" % (number_of(row.data), time.monotonic_ns()))


def jetspark_parquet(job: Job) -> Measure:
    folder = Path("table").absolute()

    def sink(rows: DataFrame, _: Arrivals) -> Any:
        return rows.writeStream.format("parquet").option("path", str(folder))

    return _latency(job, sink, lambda arrivals: by.in_table(arrivals, folder))


def jetspark_stream(job: Job) -> Measure:
    return _to_stream(job, {"guarantee": "at-least-once"})


def jetspark_exactly_once(job: Job) -> Measure:
    return _to_stream(job, {"guarantee": "exactly-once", "prepareStream": "true"})


def _to_stream(job: Job, settings: dict[str, str]) -> Measure:
    def sink(rows: DataFrame, _: Arrivals) -> Any:
        return (
            rows.selectExpr(f"'{_TARGET}.row' AS subject", "data")
            .writeStream.format("jetstream")
            .options(**settings, servers=job.url, stream=_TARGET)
        )

    with RawLink(job.url) as link:
        _remove(link, _TARGET, f"{_TARGET}_SPARK")
        make_stream(link, _TARGET)
        config = link.api(f"STREAM.INFO.{_TARGET}")["config"]
        exactly = {"allow_atomic": True, "allow_msg_ttl": True}
        link.api(f"STREAM.UPDATE.{_TARGET}", config | exactly)
    return _latency(job, sink, lambda arrivals: by.in_stream(arrivals, job.url, _TARGET))


def jetspark_bucket(job: Job) -> Measure:
    from jetspark.blocking import connect

    def sink(rows: DataFrame, _: Arrivals) -> Any:
        return (
            rows.selectExpr("CAST(seq AS STRING) AS key", "data AS value")
            .writeStream.format("jetstream")
            .options(servers=job.url, bucket=_TARGET)
        )

    with RawLink(job.url) as link, connect(job.url) as nc:
        _remove(link, f"KV_{_TARGET}")
        nc.jetstream().create_bucket(_TARGET)
    return _latency(job, sink, lambda arrivals: by.in_stream(arrivals, job.url, f"KV_{_TARGET}"))


def _latency(
    job: Job,
    sink: Callable[[DataFrame, Arrivals], Any],
    watching: Callable[[Arrivals], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> Measure:
    arrivals = Arrivals()
    open_session = our_session if job.settings["ours"] else session
    with open_session(job) as spark, RawLink(job.url) as link:
        _remove(link, STREAM)
        make_stream(link, STREAM)
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
        source = {"servers": job.url, "stream": STREAM, "startingOffsets": "earliest"}
        rows = spark.readStream.format("jetstream").options(**source).load()
        checkpoint = str(Path("chk").absolute())
        writer = sink(rows, arrivals).option("checkpointLocation", checkpoint)
        if (trigger := job.settings["trigger"]) >= 0:
            writer = writer.trigger(processingTime=f"{trigger} milliseconds")
        with watching(arrivals):
            quick = job.settings["ours"]
            query = (_quick(rows, checkpoint, writer.start) if quick else writer.start)()
            arrivals.failure = query.exception
            send = _steady if "rate" in job.settings else _single
            warm = job.warm_messages
            _single(job, link, arrivals, range(warm))
            if send is _steady:
                warm += job.settings["rate"] * 3
                _steady(job, link, arrivals, range(job.warm_messages, warm))
            begun = len(query.recentProgress)
            with Stopwatch(session_cpu, session_peak) as watch:
                times = send(job, link, arrivals, range(warm, warm + job.messages))
            query.stop()
        reports = [one["durationMs"] for one in query.recentProgress[begun:] if one["numInputRows"]]
        figures = _percentiles(times) | {
            part: statistics.median(one.get(part, 0) for one in reports) for part in _PARTS
        }
        measure = watch.measure(job.messages)
        return replace(measure, figures=figures | _alone(source, warm + job.messages))


@contextmanager
def our_session(job: Job) -> Iterator[SparkSession]:
    from jetspark.spark.session.session import close_session, local_session

    spark = local_session(
        "benchmark",
        master=f"local[{job.settings['partitions']}]",
        log_file=Path("log").absolute(),
        conf={"spark.driver.memory": "2g", "spark.local.dir": str(Path.cwd())},
    )
    try:
        yield spark
    finally:
        close_session(spark)


def _quick(rows: DataFrame, checkpoint: str, start: Callable[[], Any]) -> Callable[[], Any]:
    """As `ingest` and `run` start queries; versions before have nothing for it."""
    try:
        from jetspark.spark.queries.start import with_quick_checkpoint
    except ImportError:
        return start
    return with_quick_checkpoint(rows.sparkSession, checkpoint, start)


def _single(job: Job, link: RawLink, arrivals: Arrivals, numbers: range) -> list[float]:
    """One after the other; seconds from publish to arrival of each."""
    dice = random.Random(numbers.start)
    times = []
    for number in numbers:
        sent = time.monotonic_ns()
        link.send(_message(link, job, number))
        times.append((arrivals.wait([number])[number] - sent) / 1e9)
        link.message()  # the ack
        time.sleep(dice.random() * job.settings.get("pause", 0) / 1000)
    return times


def _steady(job: Job, link: RawLink, arrivals: Arrivals, numbers: range) -> list[float]:
    """At the rate of the job; a message that is late is published at once."""
    sent = {}
    every = 1 / job.settings["rate"]
    begun = time.monotonic()
    for number in numbers:
        late = time.monotonic() - begun - (number - numbers.start) * every
        if late < 0:
            time.sleep(-late)
        sent[number] = time.monotonic_ns()
        link.send(_message(link, job, number, acked=False))
    return [(when - sent[number]) / 1e9 for number, when in arrivals.wait(numbers).items()]


def _message(link: RawLink, job: Job, number: int, *, acked: bool = True) -> bytes:
    payload = b"%d " % number
    payload += bytes(max(0, job.size - len(payload)))
    reply = f" {link.inbox}.api" if acked else ""
    return f"PUB {STREAM}.one{reply} {len(payload)}\r\n".encode() + payload + b"\r\n"


def _percentiles(times: list[float]) -> dict[str, float]:
    ranked = sorted(times)

    def at(part: float) -> float:
        return 1000 * ranked[min(len(ranked) - 1, int(part * len(ranked)))]

    return {"p50": at(0.50), "p95": at(0.95), "p99": at(0.99), "max": 1000 * ranked[-1]}


def _alone(source: dict[str, str], last: int) -> dict[str, float]:
    """Milliseconds of two parts of the source."""
    from jetspark.ranges.reader import read_range
    from jetspark.ranges.sequence_range import SequenceRange
    from jetspark.spark.source.options import parse_options
    from jetspark.spark.source.source_streams import fetch_source_facts

    options = parse_options(source)

    def read() -> int:
        wanted = SequenceRange(STREAM, last, last + 1, created)
        return sum(batch.num_rows for batch in read_range(options.connection, wanted))

    created = fetch_source_facts(options, running=True)[STREAM].created
    if read() != 1:
        raise AssertionError("the last message was not read")
    return {
        "ask": _median(lambda: fetch_source_facts(options, running=True)),
        "read one": _median(read),
    }


def _median(call: Callable[[], object], times: int = 50) -> float:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return 1000 * statistics.median(taken)


def _remove(link: RawLink, *streams: str) -> None:
    names = link.api("STREAM.NAMES").get("streams") or []
    for name in streams:
        if name in names:
            link.api(f"STREAM.DELETE.{name}")
