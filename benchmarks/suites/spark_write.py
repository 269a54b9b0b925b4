"""Spark writing rows into a stream, against raw sockets that publish as much.

The rows are in Spark's memory before the clock starts. At least once stands beside one raw socket
that publishes ahead of its acks, exactly once beside one that sends atomic batches, each held to
where the one before ended. Every contestant has a new stream, whose messages are counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from benchmarks.measure import Job, Measure, Stopwatch, session_cpu, session_peak
from benchmarks.race import race
from benchmarks.raw import RawLink, make_stream, publish, publish_chained
from benchmarks.report import Section
from benchmarks.stage import stage
from benchmarks.suites.spark import session, stream_rows, tally_of

_TARGET = "TARGET"
_PAIRS = {
    "at-least-once": {"raw_pipelined": "raw pipelined", "at_least_once": "jetspark"},
    "exactly-once": {"raw_chained": "raw atomic batches, chained", "exactly_once": "jetspark"},
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(rounds=3)
    parser.add_argument(
        "--only", nargs="+", choices=_PAIRS, default=list(_PAIRS), metavar="GUARANTEE"
    )
    parser.add_argument("--partitions", type=int, default=2, metavar="N")


def run(options: argparse.Namespace) -> Iterator[Section]:
    with stage(options, partitions=options.partitions) as job:
        what = f"{options.messages:,} rows of {options.size:,} bytes into a stream"
        for guarantee in options.only:
            title = f"Spark: {what}, {guarantee}, {options.partitions} partitions"
            functions = _PAIRS[guarantee]
            yield race(options, __name__, functions, job, title, next(iter(functions)))


# -- contestants -------------------------------------------------------------------------------


def raw_pipelined(job: Job) -> Measure:
    return _raw(job, publish)


def raw_chained(job: Job) -> Measure:
    return _raw(job, publish_chained)


def at_least_once(job: Job) -> Measure:
    return _spark(job, {"guarantee": "at-least-once"})


def exactly_once(job: Job) -> Measure:
    return _spark(job, {"guarantee": "exactly-once", "prepareStream": "true"})


def _raw(job: Job, store: Callable[[RawLink, str, int, int], None]) -> Measure:
    with RawLink(job.url) as link:
        for messages in (job.warm_messages, job.messages):
            _new_target(link)
            with Stopwatch() as watch:
                store(link, _TARGET, messages, job.size)
            _check_target(link, messages)
        return watch.measure(job.messages)


def _spark(job: Job, settings: dict[str, str]) -> Measure:
    with session(job) as spark, RawLink(job.url) as link:
        for stream, messages in ((job.warm_stream, job.warm_messages), (job.stream, job.messages)):
            rows = stream_rows(spark, job, stream).cache()
            tally_of(rows).check(messages, job.size)  # and now they are in memory
            _new_target(link)
            subject = f"concat('{_TARGET}', substring(subject, {len(stream) + 1}))"
            writer = (
                rows.selectExpr(f"{subject} AS subject", "data")
                .write.format("jetstream")
                .options(**settings, servers=job.url, stream=_TARGET)
            )
            if settings["guarantee"] == "exactly-once":
                writer = writer.option("transactionId", stream)
            with Stopwatch(session_cpu, session_peak) as watch:
                writer.mode("append").save()
            _check_target(link, messages)
        return watch.measure(job.messages)


def _new_target(link: RawLink) -> None:
    names = link.api("STREAM.NAMES").get("streams") or []
    for name in (_TARGET, f"{_TARGET}_SPARK"):
        if name in names:
            link.api(f"STREAM.DELETE.{name}")
    make_stream(link, _TARGET)
    config = link.api(f"STREAM.INFO.{_TARGET}")["config"]
    link.api(f"STREAM.UPDATE.{_TARGET}", config | {"allow_atomic": True})


def _check_target(link: RawLink, messages: int) -> None:
    info = link.api(f"STREAM.INFO.{_TARGET}", {"subjects_filter": f"{_TARGET}.*"})
    held = sum(info["state"]["subjects"].values())  # without the notes of exactly once
    if held != messages:
        raise AssertionError(f"the stream holds {held} of {messages} messages")
