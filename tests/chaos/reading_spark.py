"""Faults of Spark itself: the processes that read and plan die.

Drivers that die at any step are in `source_options`, executors and slow tasks in `writing`.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from tests.chaos.campaign import Kind, Run
from tests.chaos.outcome import Outcome
from tests.chaos.reading_scene import Query, eventually
from tests.chaos.reading_servers import one_server
from tests.chaos.spark import Process, below


def _jvm(query: Query) -> int:
    gateway = query.spark.sparkContext._gateway
    assert gateway is not None
    pid: int = gateway.proc.pid
    return pid


def _kill(pids: list[int]) -> int:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


# -- workers -------------------------------------------------------------------------------------


def worker_killed(run: Run) -> Outcome:
    """Of the Python processes that read: one, all, or the daemon that forks them."""
    with one_server(run) as (_, _, scene):

        def fault() -> None:
            def workers() -> list[Process]:
                if not scene.left:
                    scene.fill(1)  # the batch was over too soon
                scene.query.keep_up()
                every = below(_jvm(scene.query))
                return [one for one in every if one.command.strip().endswith("pyspark.worker")]

            eventually(lambda: len(workers()) > 1, "a Python worker")
            some = [one.pid for one in workers()]
            daemons = {one.parent for one in workers()} & set(some)
            leaves = [pid for pid in some if pid not in daemons]
            how = run.rng.choice(["one", "all", "daemon"])
            _kill(list(daemons) if how == "daemon" else leaves[: 1 if how == "one" else None])

        for _ in range(run.rng.randrange(2, 4)):
            scene.strike(fault)
        return scene.outcome()


def planner_killed(run: Run) -> Outcome:
    """The Python process that plans the batches; the query ends and is started again."""
    runner = "python_streaming_source_runner"
    with one_server(run) as (_, _, scene):

        def fault() -> None:
            def strike() -> int:
                scene.query.keep_up()
                every = below(_jvm(scene.query))
                return _kill([one.pid for one in every if runner in one.command])

            eventually(lambda: strike() > 0, "somebody who plans")

        for _ in range(run.rng.randrange(1, 3)):
            scene.strike(fault)
        return scene.outcome()


KINDS: dict[str, Kind] = {
    "Python worker killed": worker_killed,
    "planning process killed": planner_killed,
}
