"""Spark's Python workers on this machine are forked from a process that has imported everything."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from jetspark.spark.workers import preloading as module
from jetspark.spark.workers.preloading import Preloader, preloading

_THREADS = """
import os
from jetspark.spark.workers.preloader import preload
preload()
print({open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")
       if int(task) != os.getpid()})
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, as only on Linux")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not yet there; short, since the path of a socket is limited."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name, "p")


@pytest.fixture
def preloader(folder: Path) -> Iterator[Preloader]:
    started = preloading(folder, "local[1]", {})
    assert started is not None
    yield started
    started.stop()


def test_preloaded_modules_start_no_thread_that_a_fork_would_lose() -> None:
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    told = subprocess.check_output([sys.executable, "-c", _THREADS], env=env, text=True)
    assert set(eval(told)) <= {"jemalloc_bg_thd"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (module.VARIABLE, "off"),
        ("PYSPARK_PYTHON", "/usr/bin/another-python"),
        ("SPARK_HOME", "/another/spark"),
    ],
)
def test_nothing_is_preloaded_for_another_python_or_spark(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv(variable, value)
    assert preloading(folder, "local[*]", {}) is None


def test_nothing_is_preloaded_on_a_cluster_or_with_settings_for_workers(folder: Path) -> None:
    assert preloading(folder, "spark://127.0.0.1:7077", {}) is None
    assert preloading(folder, "local[*]", {"spark.pyspark.python": sys.executable}) is None


def test_nothing_is_preloaded_where_files_cannot_be_executed(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert preloading(folder, "local[*]", {}) is None
    assert not folder.exists()


def test_pysparks_own_home_counts_as_this_spark(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    started = preloading(folder, "local[1]", {})
    assert started is not None
    started.stop()
    assert not started.folder.exists()


def run_stand_in(preloader: Preloader, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [preloader.folder / "python", *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def test_the_stand_in_is_the_real_python_for_other_commands(preloader: Preloader) -> None:
    ran = run_stand_in(preloader, "-c", "import sys; print(sys.executable); sys.exit(3)")
    assert (ran.stdout, ran.returncode) == (f"{sys.executable}\n", 3)


def test_output_and_exit_code_of_the_forked_process_reach_who_started_it(
    preloader: Preloader,
) -> None:
    # A module of PySpark that prints and ends: without a JVM a runner fails, with a traceback.
    ran = run_stand_in(preloader, "-m", "pyspark.sql.streaming.python_streaming_source_runner")
    assert ran.returncode == 1
    assert "socket.gaierror" in ran.stderr  # there is no port of a JVM
    assert "handover" not in ran.stderr


def test_a_stand_in_without_its_preloader_does_the_work_itself(preloader: Preloader) -> None:
    preloader.process.kill()
    preloader.process.wait()
    ran = run_stand_in(preloader, "-m", "pyspark.sql.streaming.python_streaming_source_runner")
    assert ran.returncode == 1
    assert "socket.gaierror" in ran.stderr  # there is no port of a JVM


# In a process of its own: a program has one JVM, and here that may be the other tests'.
_SESSION = """
import os
import sys
import tempfile
from pathlib import Path

from pyspark.errors import PySparkException
from tests.support.processes import descendants, wait_until_gone

from jetspark.spark import session as sessions


def seen_by_a_worker(spark):
    def look(_):
        import os
        import sys

        found = "jetspark.spark.reading" in sys.modules
        return found, os.environ["IN_THE_ENVIRONMENT"], os.environ["FOR_EXECUTORS"], os.getcwd()

    return spark.sparkContext.parallelize([0], 1).map(look).first()


conf = {"spark.executorEnv.FOR_EXECUTORS": "too"}
spark = sessions.local_session("x", master="local[1]", log_file=Path(sys.argv[1]), conf=conf)
preloader = sessions._preloader
assert preloader is not None
assert seen_by_a_worker(spark) == (True, "yes", "too", os.getcwd())
assert os.environ["PYSPARK_PYTHON"] == sys.executable
preloader.process.kill()  # what it has forked goes on, and what comes now starts by itself
assert seen_by_a_worker(spark)[0]
try:
    spark.read.format("jetstream").load()
except PySparkException as error:
    assert "stream" in str(error)
else:
    raise AssertionError
below = descendants(spark.sparkContext._gateway.proc.pid)
sessions.close_session(spark)
assert len(below) > 1
for pid in below:
    wait_until_gone(pid)
assert not preloader.folder.exists()
"""


@pytest.mark.spark
def test_a_sessions_workers_are_preloaded_and_end_with_it(tmp_path: Path) -> None:
    env = os.environ | {"IN_THE_ENVIRONMENT": "yes", "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", _SESSION, str(tmp_path / "log")]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
