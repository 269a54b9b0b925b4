"""JVMs of tests and campaigns: the second compiler and a parallel collector cost those that live
for seconds more than they give, on two cores a third of the processor time; and with the archive of
Spark's classes they start in half the time, also those that PySpark starts by itself."""

from __future__ import annotations

import os
from functools import cache
from inspect import signature
from typing import Any

from jetspark.errors import SparkUnavailableError

_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
"""Spark compiles no Java for plans of some rows: a sixth of the processor time of a command. The
pages are tested without this, as users have it."""


def small_jvms() -> None:
    """From now on, also for those that commands start; what the environment says wins."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{_OPTIONS} {INTERPRETED}")
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _OPTIONS)


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


def accumulator_server() -> Any:
    """PySpark's, for the JVM's token "token"."""
    from pyspark.accumulators import _start_update_server

    start: Any = _start_update_server
    more = len(signature(start).parameters) > 1  # from 4.1 on: whether by a socket in a folder
    return start("token", False) if more else start("token")
