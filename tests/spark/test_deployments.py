"""The program on a standalone cluster with two executors, and through Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.program import RIGHT
from tests.support.java import INTERPRETED, jvm_options
from tests.support.quick_python import quick_python
from tests.support.spark_cluster import connect_server, standalone_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

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
    with quick_python() as python:
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        done = run(deployment, program, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == RIGHT
    if deployment is two_executors:
        assert len(list((tmp_path / "work-0").glob("app-*/*/stderr"))) == 2


def run(
    deployment: Callable[[Path], AbstractContextManager[str]],
    program: tuple[str, str, str, str],
    folder: Path,
) -> subprocess.CompletedProcess[str]:
    with deployment(folder) as url:
        return subprocess.run(
            [sys.executable, PROGRAM, url, *program],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env=os.environ
            | {"SPARK_LOCAL_IP": "127.0.0.1"}
            | {"SPARK_SUBMIT_OPTS": f"{jvm_options()} {INTERPRETED}"}
            | {"EXECUTORS": jvm_options()},
        )
