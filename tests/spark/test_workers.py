"""Spark's Python workers on this machine are forked from a process that has imported everything."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from tests.support.processes import ended

from jetspark.spark.fast_start.switch import VARIABLE
from jetspark.spark.fast_start.workers import ForkServer, start_fork_server

_THREADS = """
import os, time
from jetspark.spark.fast_start.fork_server import preload
def name(task):
    return open(f"/proc/self/task/{task}/comm").read().strip()
def names():
    return {name(task) for task in os.listdir("/proc/self/task") if int(task) != os.getpid()}
preload()
deadline = time.monotonic() + 10
while name(os.getpid()) in names() and time.monotonic() < deadline:
    time.sleep(0.01)  # a thread names itself after it has begun
print(names())
"""
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, as only on Linux")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not yet there; short, since the path of a socket is limited."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name, "p")


def wait_until_ready(server: ForkServer) -> None:
    """On a busy machine its imports take longer than the shim waits."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(120)
        while connection.connect_ex(str(server.folder / "s")):
            assert server.process.poll() is None
            time.sleep(0.01)
        socket.send_fds(connection, [json.dumps([["none"], {}, "/"]).encode()], [0, 1, 2])
        assert int(connection.recv(16))


@pytest.fixture
def server(folder: Path) -> Iterator[ForkServer]:
    started = start_fork_server(folder, "local[1]", {})
    assert started is not None
    wait_until_ready(started)
    yield started
    started.stop()
    assert not folder.exists()


def test_preloaded_modules_start_no_thread_that_a_fork_would_lose() -> None:
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    told = subprocess.check_output([sys.executable, "-c", _THREADS], env=env, text=True)
    assert set(eval(told)) <= {"jemalloc_bg_thd"}


@pytest.mark.parametrize(
    ("variable", "value", "master", "setting"),
    [
        (VARIABLE, "off", "local[*]", ""),
        ("PYSPARK_PYTHON", "/usr/bin/another-python", "local[*]", ""),
        ("SPARK_HOME", "/another/spark", "local[*]", ""),
        ("SPARK_HOME", "", "spark://127.0.0.1:7077", ""),
        ("SPARK_HOME", "", "local[*]", "spark.pyspark.python"),
    ],
)
def test_nothing_is_preloaded_for_another_python_or_spark_or_on_a_cluster(
    variable: str,
    value: str,
    master: str,
    setting: str,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
) -> None:
    monkeypatch.setenv(variable, value)
    assert start_fork_server(folder, master, {setting: sys.executable}) is None


def test_nothing_is_preloaded_where_files_cannot_be_executed(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    # PySpark's own home counts as this Spark.
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert start_fork_server(folder, "local[*]", {}) is None
    assert list(folder.iterdir()) == []


def test_the_shim_is_the_real_python_for_other_commands(server: ForkServer) -> None:
    ran = ended(server.folder / "python", "-c", "import sys; print(sys.executable); sys.exit(3)")
    assert (ran.stdout, ran.returncode) == (f"{sys.executable}\n", 3)


@pytest.mark.full
@pytest.mark.parametrize("lives", [True, False], ids=["forked", "without a server"])
def test_output_and_exit_code_of_the_worker_reach_who_started_it(
    server: ForkServer, lives: bool
) -> None:
    if not lives:
        server.process.kill()
        server.process.wait()
    # A module of PySpark that prints and ends: without a JVM a runner fails, with a traceback.
    ran = ended(server.folder / "python", "-m", _RUNNER)
    assert ran.returncode == 1
    assert re.search("gaierror|KeyError: 'PYTHON_WORKER", ran.stderr)  # there is no port of a JVM
    assert ("fork_server.py" in ran.stderr) is lives
