"""The program through Spark Connect, whose server has two executors of a standalone cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.spark.program import RIGHT
from tests.support.processes import ended
from tests.support.quick_python import quick_python
from tests.support.spark_cluster import connect_server, standalone_cluster

PROGRAM = Path(__file__).with_name("program.py")


@pytest.mark.full
@pytest.mark.spark
def test_the_program_runs_through_connect_and_on_a_cluster(
    program: tuple[str, str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick_python() as python:
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        with (
            standalone_cluster(tmp_path, workers=1, cores=2) as master,
            connect_server(tmp_path, master) as url,
        ):
            done = ended(sys.executable, PROGRAM, url, *program)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == RIGHT
    assert len(list((tmp_path / "work-0").glob("app-*/*/stderr"))) == 2
