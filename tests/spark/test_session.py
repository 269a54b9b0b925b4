"""What a local session is started with, and how it ends."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jetspark.spark.session import end_server, short_job


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


def test_pysparks_server_of_accumulators_ends_at_once() -> None:
    from pyspark.accumulators import _start_update_server

    def seconds() -> float:
        server: Any = _start_update_server("token", False)
        before = time.monotonic()
        end_server(server, server.shutdown)
        return time.monotonic() - before

    assert min(seconds() for _ in range(3)) < 0.3
