"""JVMs of tests and campaigns: the second compiler and a parallel collector cost those that live
for seconds more than they give, on two cores a third of the processor time; and with the archive of
Spark's classes they start in half the time, also those that PySpark starts by itself."""

from __future__ import annotations

import os
from functools import cache

from jetspark.errors import SparkUnavailableError

_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def small_jvms() -> None:
    """From now on, also for those that commands start; what the environment says wins."""
    for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(variable, _OPTIONS)


@cache
def jvm_options() -> str:
    """Of a JVM that PySpark starts by itself; the archive is made where it is missing."""
    from jetspark.spark.fast_start.class_archive import class_archive

    try:
        archive = class_archive()
        if archive is None:
            return _OPTIONS
        archive.make()
    except SparkUnavailableError:  # no Java: what starts Spark says so
        return _OPTIONS
    return " ".join([_OPTIONS, *archive.jvm_options()])
