"""What a local session is started with, and how it ends."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jetspark.spark.session import end_without_waiting, short_job
from jetspark.spark.warming import warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_short_job_has_one_compiler_and_one_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    assert short_job({}) == options
    assert short_job({"spark.driver.extraJavaOptions": "-Dx=UseG1GC"}) == options
    chosen = {"spark.driver.extraJavaOptions": "-Dx=1 -XX:+UseG1GC"}
    assert short_job(chosen) == options[:1]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseZGC")
    assert short_job({}) == options[:1]


def test_warming_up_is_a_job_that_ends_well(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    warm_up(spark)
    (thread,) = (one for one in threading.enumerate() if one.name == "warm-up")
    thread.join(120)
    assert not thread.is_alive()
    jvm_context: Any = spark.sparkContext._jsc
    jvm_context.sc().listenerBus().waitUntilEmpty(60_000)  # only then is the job's end known
    jobs = [tracker.getJobInfo(job) for job in set(tracker.getJobIdsForGroup()) - before]
    assert [job.status for job in jobs if job is not None] == ["SUCCEEDED"]


def test_the_end_does_not_wait_for_pysparks_server_of_accumulators(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Which handles the JVM's connection, and looks once a second whether to go on."""
    from pyspark.accumulators import _start_update_server

    server: Any = _start_update_server("token", False)
    link = socket.create_connection(server.server_address)
    link.sendall(b"token" + bytes(4))  # no updates
    assert link.recv(1) == b"\x01"
    before = time.monotonic()
    end_without_waiting(server)
    server.shutdown()
    assert time.monotonic() - before < 0.4
    link.close()
    assert capfd.readouterr().err == ""
