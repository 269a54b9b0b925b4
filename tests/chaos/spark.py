"""Spark under campaigns: a session, and processes."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jetspark.spark.session.session import close_session, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.chaos.campaign import Run

SPARK = "spark"
"""The session among what runs share."""


def chaos_session(folder: Path, master: str, memory: str, **conf: str) -> SparkSession:
    return local_session(
        "chaos",
        master=master,
        log_file=folder / "spark.log",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.driver.memory": memory,
            **conf,
        },
    )


@contextmanager
def _session() -> Iterator[SparkSession]:
    """Four attempts for a task, so that the death of a worker is not that of the query."""
    with tempfile.TemporaryDirectory(prefix="chaos-spark-") as folder:
        session = chaos_session(Path(folder), "local[2,4]", "1g")
        try:
            yield session
        finally:
            close_session(session)


def spark_of(run: Run) -> SparkSession:
    return run.shared.once(SPARK, _session)


class Process(NamedTuple):
    pid: int
    parent: int
    command: str


def processes() -> list[Process]:
    """All of this machine, from /proc."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            found.append(Process(int(folder.name), parent, command))
    return found


def below(root: int) -> list[Process]:
    """The descendants of a process."""
    every = processes()
    known = {root}
    found: list[Process] = []
    while more := [one for one in every if one.parent in known and one.pid not in known]:
        known |= {one.pid for one in more}
        found += more
    return found


def kill(*pids: int) -> int:
    """kill -9 of those that are still there; how many were asked for."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


_EXECUTOR = "CoarseGrainedExecutorBackend"


def executor_of(pid: int) -> int:
    """The executor above a Python worker."""
    every = {one.pid: one for one in processes()}
    while _EXECUTOR not in every[pid].command:
        pid = every[pid].parent
    return pid
