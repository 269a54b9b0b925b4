"""Spark's own deployments as processes on loopback: a standalone cluster, a Connect server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pyspark
from tests.support.java import INTERPRETED, jvm_options
from tests.support.ports import free_port

HOME = Path(pyspark.__file__).parent
_UP_WITHIN = 240.0  # seconds; a busy machine starts a JVM slowly


@contextmanager
def _process(log: Path, command: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of Spark's programs, in a session of its own; ended with all that it started."""
    environment = os.environ | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_DAEMON_MEMORY": "640m",
        "SPARK_DAEMON_JAVA_OPTS": jvm_options(),
        "SPARK_SUBMIT_OPTS": f"{jvm_options()} {INTERPRETED}",
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [HOME / "bin" / command, *arguments],
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # Workers' executors are in their session, too.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _UP_WITHIN
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Spark did not come up: {log.read_text()[-3000:]}")
        time.sleep(0.2)


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2, cores: int = 1) -> Iterator[str]:
    """A master and workers of so many cores each; the master's URL."""
    port, ui = free_port("127.0.0.1"), free_port("127.0.0.1")
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = stack.enter_context(
            _process(
                folder / "master.log",
                "spark-class",
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui)),
            )
        )
        for number in range(workers):
            stack.enter_context(
                _process(
                    folder / f"worker-{number}.log",
                    "spark-class",
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", "127.0.0.1", "--webui-port", "0"),
                    *("--cores", str(cores), "--memory", f"{768 * cores}m"),
                    *("--work-dir", str(folder / f"work-{number}"), url),
                )
            )

        def ready() -> bool:
            try:
                with urlopen(f"http://127.0.0.1:{ui}/json/", timeout=5) as answer:
                    return int(json.load(answer)["aliveworkers"]) == workers
            except (OSError, ValueError):  # not up yet, or without its pages
                return False

        _wait(ready, master, folder / "master.log")
        yield url


@contextmanager
def connect_server(folder: Path, master: str) -> Iterator[str]:
    """A Spark Connect server with executors of one core; its URL."""
    port = free_port("127.0.0.1")
    log = folder / "connect.log"
    with _process(
        log,
        "spark-submit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", master, "--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
        *("--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.executor.memory=512m"),
        *("--conf", "spark.executor.cores=1"),
        *("--conf", f"spark.executor.extraJavaOptions={jvm_options()}"),
        *("--conf", f"spark.sql.warehouse.dir={folder / 'warehouse'}"),
    ) as process:
        _wait(lambda: "Spark Connect server started at" in log.read_text(), process, log)
        yield f"sc://127.0.0.1:{port}"
