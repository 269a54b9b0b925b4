"""From nothing to the first result: a session, a first Python job, a first Parquet file, the end.

An empty process each time, imports included; what is timed is what a person waits for. PySpark's
own session is beside `local_session`, as programs get it and with the options of short jobs. The
class archive is made before.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Job, Measure, Stopwatch, session_cpu, session_peak
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LABELS = {
    "pyspark": "PySpark's own session",
    "jetspark_session": "local_session",
    "jetspark_short_job": "local_session, as short jobs have it",
}
_ROWS = 1000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=1)
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    from jetspark.spark.fast_start.class_archive import class_archive

    archive = class_archive()
    if archive is not None:
        archive.make()
    job = Job(url="", messages=1, size=0, warm_messages=0)
    title = "A session, a Python job, a Parquet file, and the end"
    yield race(options, __name__, chosen(options, _LABELS), job, title, "pyspark")


# -- contestants -------------------------------------------------------------------------------


def pyspark(job: Job) -> Measure:
    return _timed(_plain_session)


def jetspark_session(job: Job) -> Measure:
    return _timed(_local_session)


def jetspark_short_job(job: Job) -> Measure:
    return _timed(partial(_local_session, short=True))


def _timed(session: Callable[[Path], None]) -> Measure:
    with tempfile.TemporaryDirectory() as folder, Stopwatch(session_cpu, session_peak) as watch:
        session(Path(folder))
    measure = watch.measure(1)
    return replace(measure, figures={"seconds": measure.seconds})


def _plain_session(folder: Path) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[*]").getOrCreate()
    _first_results(spark, folder)
    spark.stop()


def _local_session(folder: Path, *, short: bool = False) -> None:
    from jetspark.spark.session.session import close_session, local_session, short_job_options

    options = short_job_options({}) if short else []
    spark = local_session("benchmark", log_file=folder / "log", jvm_options=options)
    _first_results(spark, folder)
    close_session(spark)


def _first_results(spark: SparkSession, folder: Path) -> None:
    total = spark.sparkContext.parallelize(range(_ROWS), 2).map(lambda row: row + 1).sum()
    if total != _ROWS * (_ROWS + 1) // 2:
        raise AssertionError(f"the sum is {total}")
    spark.range(_ROWS).write.parquet(str(folder / "table"))
