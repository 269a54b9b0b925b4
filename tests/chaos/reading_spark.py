"""Faults of Spark itself: workers, executors and the driver die, tasks hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.chaos.campaign import Kind, Run
from tests.chaos.outcome import Outcome
from tests.chaos.reading_scene import WITHIN, Query, Scene, eventually
from tests.chaos.reading_servers import one_server
from tests.chaos.spark import Process, Standalone, below, standalone
from tests.support.processes import python


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


# -- the driver ----------------------------------------------------------------------------------


@contextmanager
def driver(
    scene: Scene, master: str = "local[2]", **conf: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The scene's query in a process of its own, whose group is killed in the end."""
    document = {
        "master": master,
        "conf": {"spark.sql.shuffle.partitions": "2", **conf},
        "options": scene.query.options,
        "folder": str(scene.query.folder),
    }
    code = "import sys; from tests.chaos.reading_driver import main; main(sys.argv[1])"
    with python(code, json.dumps(document)) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _new(look: Callable[[], int], process: subprocess.Popen[bytes]) -> None:
    """Returns when what is looked at is one more than now."""
    before, deadline = look(), time.monotonic() + 2 * WITHIN
    while look() <= before:
        assert process.poll() is None, f"the driver has ended: {process.communicate()[1][-500:]!r}"
        assert time.monotonic() < deadline, "the driver makes no progress"
        time.sleep(0.005)


def _at_any_time(run: Run, query: Query, process: subprocess.Popen[bytes]) -> None:
    _new(lambda: query.planned, process)
    time.sleep(run.rng.random() * 4)


def _while_planning(run: Run, query: Query, process: subprocess.Popen[bytes]) -> None:
    _new(lambda: query.committed, process)
    time.sleep(run.rng.random() * 0.05)


def _in_the_range(run: Run, query: Query, process: subprocess.Popen[bytes]) -> None:
    _new(lambda: query.planned, process)
    time.sleep(run.rng.random() * 0.5)


def _before_the_commit(run: Run, query: Query, process: subprocess.Popen[bytes]) -> None:
    _new(lambda: query.written, process)


def _driver_killed(moment: Callable[[Run, Query, subprocess.Popen[bytes]], None]) -> Kind:
    def kind(run: Run) -> Outcome:
        states = []
        with one_server(run, start=False) as (_, _, scene):
            scene.fill()
            query = scene.query
            for _ in range(run.rng.choice([1, 1, 2])):
                with driver(scene) as process:
                    moment(run, query, process)
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                states.append(_state(query))
                scene.hits += 1
                scene.fill(1)
            scene.goes_on()
            return scene.outcome(f"killed {', '.join(states)}")

    return kind


def _state(query: Query) -> str:
    """Where the last batch was, as the files say."""
    if query.written > query.committed:
        return f"before the commit of batch {query.written}"
    if query.planned > query.committed:
        return f"in the range of batch {query.planned}"
    return f"while planning batch {query.committed + 1}"


# -- executors -----------------------------------------------------------------------------------


@contextmanager
def _on_two_workers(run: Run, **conf: str) -> Iterator[tuple[Standalone, Scene]]:
    """A query whose driver is a process of its own and whose executors are two more."""
    cluster = run.shared.once("standalone", standalone)
    with one_server(run, start=False, read_as={"minPartitions": "4"}) as (_, _, scene):
        scene.fill()
        conf = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", **conf}
        conf = {name.replace("_", "."): value for name, value in conf.items()}
        with driver(scene, cluster.master, **conf) as process:
            scene.query.elsewhere = process
            _new(lambda: scene.query.committed, process)
            eventually(lambda: len(cluster.executors()) == 2, "two executors")
            yield cluster, scene


def executor_killed(run: Run) -> Outcome:
    """One of two executors, in the middle of a batch."""
    with _on_two_workers(run) as (cluster, scene):
        for _ in range(run.rng.randrange(1, 3)):
            eventually(lambda: len(cluster.executors()) == 2, "two executors")
            scene.strike(lambda: _kill([run.rng.choice(cluster.executors())]))
        return scene.outcome()


def straggler(run: Run) -> Outcome:
    """A worker hangs; its tasks are speculated on the other executor, and then it goes on."""
    with _on_two_workers(
        run,
        spark_speculation="true",
        spark_speculation_interval="100ms",
        spark_speculation_quantile="0.5",
        spark_speculation_minTaskRuntime="100ms",
    ) as (cluster, scene):
        scene.moment()
        executor = run.rng.choice(cluster.executors())
        workers = [one.pid for one in below(executor) if "pyspark.daemon" in one.command]

        def thaw() -> None:
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        # Spark copies a task only when others of its stage have ended, which may all wait here.
        at_last = threading.Timer(_FROZEN, thaw)
        at_last.start()
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        scene.hits += 1
        try:
            scene.goes_on()
            scene.goes_on()
        finally:
            at_last.cancel()
            thaw()
        scene.goes_on()
        return scene.outcome()


_FROZEN = 20.0  # seconds at most

KINDS: dict[str, Kind] = {
    "Python worker killed": worker_killed,
    "planning process killed": planner_killed,
    "driver killed at any time": _driver_killed(_at_any_time),
    "driver killed while planning": _driver_killed(_while_planning),
    "driver killed in the range": _driver_killed(_in_the_range),
    "driver killed before its commit": _driver_killed(_before_the_commit),
    "executor killed": executor_killed,
    "worker hangs, speculation": straggler,
}
COSTLY = frozenset(list(KINDS)[2:])
