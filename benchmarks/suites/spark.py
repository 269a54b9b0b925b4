"""Spark reading a stream: jetspark against a source on nats-py, and into Parquet.

All in Spark's local mode with as many partitions as threads, equal for all. The start of the
session and the warm-up are not timed; planning a read is. The first table reads to `noop`, where
Spark throws the rows away; the second writes Parquet, beside Spark writing the same rows from its
own memory; the third compares table formats.
CPU and memory are those of all processes: driver, JVM, Python workers.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Job, Measure, Stopwatch, Tally, session_cpu, session_peak
from benchmarks.race import race
from benchmarks.report import Section
from benchmarks.stage import stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TABLES = {
    "noop": {"jetspark_noop": "jetspark", "nats_py_noop": "source on nats-py"},
    "Parquet": {"jetspark_parquet": "jetspark", "memory_parquet": "rows from memory"},
    "backfill": {
        "snapshot_noop": "through a snapshot → noop",
        "snapshots_noop": "a snapshot for each partition → noop",
        "jetspark_noop": "jetspark → noop",
        "snapshot_parquet": "through a snapshot → Parquet",
        "snapshots_parquet": "a snapshot for each partition → Parquet",
        "spread_parquet": "through a snapshot, repartitioned → Parquet",
        "backup_parquet": "a backup's folder → Parquet",
        "jetspark_parquet": "jetspark → Parquet",
        "memory_parquet": "rows from memory → Parquet",
    },
    "tables": {
        "jetspark_delta": "jetspark → Delta",
        "jetspark_iceberg": "jetspark → Iceberg",
        "jetspark_parquet": "jetspark → Parquet (Spark's sink)",
    },
}

_WARM_WRITES = 3  # after so many the JVM has compiled what matters

Load = Callable[["SparkSession", Job, str], "DataFrame"]
"""A stream as a DataFrame: (session, job, stream)."""
Write = Callable[["DataFrame"], None]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(rounds=3, warm_up=100_000)
    parser.add_argument(
        "--only", nargs="+", choices=_TABLES, default=list(_TABLES), metavar="TABLE"
    )
    parser.add_argument("--partitions", type=int, default=2, metavar="N")
    parser.add_argument(
        "--fetch", type=int, default=10_000, metavar="N", help="messages in a fetch of nats-py"
    )


def run(options: argparse.Namespace) -> Iterator[Section]:
    with stage(options, partitions=options.partitions, fetch=options.fetch) as job:
        what = f"{options.messages:,} messages of {options.size:,} bytes"
        for target in options.only:
            title = f"Spark: {what} to {target}, {options.partitions} partitions"
            functions = _TABLES[target]
            yield race(options, __name__, functions, job, title, list(functions)[-1])


# -- contestants -------------------------------------------------------------------------------


def jetspark_noop(job: Job) -> Measure:
    return _read(job, stream_rows, _to_noop)


def snapshot_noop(job: Job) -> Measure:
    return _read(job, snapshot_rows, _to_noop)


def snapshot_parquet(job: Job) -> Measure:
    return _read(job, snapshot_rows, _to_parquet)


def snapshots_noop(job: Job) -> Measure:
    return _read(job, snapshots_rows, _to_noop)


def snapshots_parquet(job: Job) -> Measure:
    return _read(job, snapshots_rows, _to_parquet)


def spread_parquet(job: Job) -> Measure:
    """One snapshot, whose rows Spark deals out to as many tasks as the job says."""

    def load(spark: SparkSession, job: Job, stream: str) -> DataFrame:
        return snapshot_rows(spark, job, stream).repartition(job.settings["partitions"])

    return _read(job, load, _to_parquet)


def backup_parquet(job: Job) -> Measure:
    from jetspark import blocking

    with blocking.connect(job.url) as nc:
        for stream in (job.warm_stream, job.stream):
            nc.jetstream().backup_stream(stream, Path("backups", stream))
    return _read(job, backup_rows, _to_parquet)


def nats_py_noop(job: Job) -> Measure:
    from benchmarks.nats_py_source import NatsPySource

    def load(spark: SparkSession, job: Job, stream: str) -> DataFrame:
        spark.dataSource.register(NatsPySource)
        return (
            spark.read.format("natspy")
            .option("servers", job.url)
            .option("stream", stream)
            .option("partitions", job.settings["partitions"])
            .option("fetch", job.settings["fetch"])
            .load()
        )

    return _read(job, load, _to_noop)


def jetspark_parquet(job: Job) -> Measure:
    return _read(job, stream_rows, _to_parquet)


def jetspark_delta(job: Job) -> Measure:
    return _read(job, stream_rows, _to_delta)


def jetspark_iceberg(job: Job) -> Measure:
    return _read(job, stream_rows, _to_iceberg)


def memory_parquet(job: Job) -> Measure:
    with session(job) as spark:
        for _ in range(_WARM_WRITES):
            _to_parquet(stream_rows(spark, job, job.warm_stream))
        rows = stream_rows(spark, job, job.stream).cache()
        tally_of(rows).check(job.messages, job.size)  # and now they are in memory
        with Stopwatch(session_cpu, session_peak) as watch:
            _to_parquet(rows)
        return watch.measure(job.messages)


def snapshot_rows(spark: SparkSession, job: Job, stream: str, *, partitions: int = 1) -> DataFrame:
    """A stream through a snapshot, or through one for each partition."""
    return (
        spark.read.format("jetstream")
        .option("servers", job.url)
        .option("stream", stream)
        .option("backfill", "snapshot")
        .option("minPartitions", partitions)
        .load()
    )


def snapshots_rows(spark: SparkSession, job: Job, stream: str) -> DataFrame:
    return snapshot_rows(spark, job, stream, partitions=job.settings["partitions"])


def backup_rows(spark: SparkSession, job: Job, stream: str) -> DataFrame:
    return (
        spark.read.format("jetstream")
        .option("backup", str(Path("backups", stream).absolute()))
        .option("minPartitions", job.settings["partitions"])
        .load()
    )


def stream_rows(spark: SparkSession, job: Job, stream: str) -> DataFrame:
    """A stream through jetspark, in as many partitions as the job says."""
    return (
        spark.read.format("jetstream")
        .option("servers", job.url)
        .option("stream", stream)
        .option("minPartitions", job.settings["partitions"])
        .option("maxRecordsPerPartition", job.messages)
        .load()
    )


def _to_noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _to_parquet(rows: DataFrame) -> None:
    rows.write.mode("overwrite").parquet("table")  # in the temporary folder of this process


def _to_delta(rows: DataFrame) -> None:
    rows.write.format("jetspark-delta").mode("overwrite").save("delta")


def _to_iceberg(rows: DataFrame) -> None:
    rows.write.format("jetspark-iceberg").mode("overwrite").save("iceberg")


_BACK: dict[Write, tuple[str, str]] = {
    _to_parquet: ("parquet", "table"),
    _to_delta: ("jetspark-delta", "delta"),
    _to_iceberg: ("jetspark-iceberg", "iceberg"),
}
"""How what was written is read."""


def _read(job: Job, load: Load, write: Write) -> Measure:
    with session(job) as spark:
        tally_of(load(spark, job, job.warm_stream)).check(job.warm_messages, job.size)
        for _ in range(_WARM_WRITES):
            write(load(spark, job, job.warm_stream))
        with Stopwatch(session_cpu, session_peak) as watch:
            write(load(spark, job, job.stream))
        measure = watch.measure(job.messages)
        if write in _BACK:
            format_, table = _BACK[write]
            tally_of(spark.read.format(format_).load(table)).check(job.messages, job.size)
        return measure


def tally_of(rows: DataFrame) -> Tally:
    """What rows with the columns data and seq hold."""
    return Tally(*rows.selectExpr("count(*)", "sum(length(data))", "sum(seq)").collect()[0])


@contextmanager
def session(job: Job) -> Iterator[SparkSession]:
    """Spark on this machine, with a thread for each partition of the job."""
    from pyspark.sql import SparkSession

    folder = os.getcwd()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master(f"local[{job.settings['partitions']}]")
        .appName("benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        # As docs/guide-tables.md has it: for sinks in Python.
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "256")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
        .config("spark.local.dir", folder)
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()
