"""Runs commands of a page's shell in the prompt of pages with Spark, on its JVM.

A process and a JVM for each would take most of the time of the pages; tests/cli has them. A
command's arguments are in the file `arguments` of a folder and the environment is in `environment`,
each with a NUL behind it. What it prints is left in `out` and `err`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from unittest import mock

from pyspark.sql import SparkSession

from jetspark.cli import app
from jetspark.spark.session import session
from jetspark.spark.session.jvm import activate_session

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "256",
}
"""Of the sessions that commands start."""


@contextmanager
def _output(folder: Path) -> Iterator[None]:
    """Standard output and standard error are files."""
    before = {fd: os.dup(fd) for fd in (1, 2)}
    for fd, name in ((1, "out"), (2, "err")):
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), fd)
    assert sys.__stdout__ is not None
    try:
        with redirect_stdout(sys.__stdout__):  # not what the prompt prints
            yield
    finally:
        sys.__stdout__.flush()
        sys.stderr.flush()
        for fd, kept in before.items():
            os.dup2(kept, fd)
            os.close(kept)


@contextmanager
def _sessions() -> Iterator[None]:
    """Commands have sessions beside that of the prompt."""
    opened: list[SparkSession] = []

    def local_session(*_: object, **__: object) -> SparkSession:
        of_the_prompt = SparkSession.builder.getOrCreate()
        opened.append(of_the_prompt)
        spark = of_the_prompt.newSession()
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        activate_session(spark)
        return spark

    with mock.patch.multiple(session, local_session=local_session, close_session=mock.DEFAULT):
        try:
            yield
        finally:
            for spark in opened:
                activate_session(spark)


def run(folder: Path) -> int:
    """The exit code."""
    arguments, variables = (
        (folder / name).read_text("utf-8").split("\0")[:-1] for name in ("arguments", "environment")
    )
    environment = dict(one.split("=", 1) for one in variables)
    with _output(folder), mock.patch.dict(os.environ, environment), _sessions():
        return app.run(arguments)
