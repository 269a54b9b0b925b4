"""Runs commands of a page's shell one after the other, in one process with one Spark session.

A process and a JVM for each would take most of the time of the pages; tests/cli has them. Reads a
line for each command. Its arguments are in the file `arguments` of a folder and the environment is
in `environment`, each with a NUL behind it. Leaves what it prints in `out` and `err`, and answers
with its exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from pyspark.sql import SparkSession

from jetspark.cli import app
from jetspark.spark import session

_local_session, _close_session = session.local_session, session.close_session


@contextmanager
def _output(folder: Path) -> Iterator[None]:
    """Standard output and standard error are files."""
    before = {fd: os.dup(fd) for fd in (1, 2)}
    for fd, name in ((1, "out"), (2, "err")):
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), fd)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for fd, kept in before.items():
            os.dup2(kept, fd)
            os.close(kept)


def main(folder: Path) -> None:
    asks, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a JVM prints is no answer
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    opened: list[SparkSession] = []

    def the_session(*_: object, **__: object) -> SparkSession:
        if not opened:
            log = folder / "commands-spark.log"
            opened.append(_local_session("pages", master="local[2]", log_file=log))
        return opened[0]

    session.local_session = the_session
    session.close_session = lambda session, **_: None
    while asks.readline():
        arguments, variables = (
            (folder / name).read_text("utf-8").split("\0")[:-1]
            for name in ("arguments", "environment")
        )
        environment = dict(one.split("=", 1) for one in variables)
        with _output(folder), mock.patch.dict(os.environ, environment):
            code = app.run(arguments)
        answers.write(f"{code}\n")
        answers.flush()
    for spark in opened:
        _close_session(spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
