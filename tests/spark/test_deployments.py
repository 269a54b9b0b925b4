"""The program on a standalone cluster with two executors, and through Connect."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.spark.program import RIGHT
from tests.support.java import INTERPRETED, jvm_options
from tests.support.processes import ended
from tests.support.quick_python import quick_python
from tests.support.spark_cluster import connect_server, standalone_cluster

PROGRAM = Path(__file__).with_name("program.py")


def two_executors(folder: Path) -> AbstractContextManager[str]:
    """On one worker, which only starts them: another one would be one more JVM."""
    return standalone_cluster(folder, workers=1, cores=2)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("deployment", [two_executors, connect_server])
def test_same_program_runs_in_each_deployment(
    deployment: Callable[[Path], AbstractContextManager[str]],
    program: tuple[str, str, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": f"{jvm_options()} {INTERPRETED}",
        "EXECUTORS": str(jvm_options()),
    }
    with quick_python() as python:
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        with deployment(tmp_path) as url:
            done = ended(sys.executable, PROGRAM, url, *program, **environment)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == RIGHT
    if deployment is two_executors:
        assert len(list((tmp_path / "work-0").glob("app-*/*/stderr"))) == 2
