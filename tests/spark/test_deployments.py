"""The same program on local[2], on a standalone cluster with two workers, and through Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.program import findings
from tests.support.java import INTERPRETED, jvm_options
from tests.support.spark_cluster import connect_server, standalone_cluster
from tests.support.streams import Admin, numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from jetspark.server import NatsServer

PROGRAM = Path(__file__).with_name("program.py")
COUNT = 1000


RIGHT = dict.fromkeys(("counted", "copied", "different", "ingested", "told"), COUNT)


@pytest.fixture
def arguments(
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    needs_server: Callable[[str], None],
    tmp_path: Path,
) -> tuple[str, str, str, str]:
    """Of the program, but for where Spark is."""
    needs_server("2.12")
    source, target = unique("FROM"), unique("TO")
    admin.create(source, source)
    admin.create(target, f"{target}.>")
    admin.fill(numbered(source, COUNT))
    return shared_server.url, source, target, str(tmp_path)


def test_the_program_runs_on_one_machine(
    spark: SparkSession, arguments: tuple[str, str, str, str]
) -> None:
    assert findings(spark, *arguments) == RIGHT


@pytest.mark.spark
@pytest.mark.parametrize("deployment", [standalone_cluster, connect_server])
def test_same_program_runs_in_each_deployment(
    deployment: Callable[[Path], AbstractContextManager[str]],
    arguments: tuple[str, str, str, str],
    tmp_path: Path,
) -> None:
    with deployment(tmp_path) as url:
        done = subprocess.run(
            [sys.executable, PROGRAM, url, *arguments],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env=os.environ
            | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
            | {"SPARK_SUBMIT_OPTS": f"{jvm_options()} {INTERPRETED}"}
            | {"EXECUTORS": jvm_options()},
        )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == RIGHT
    if deployment is standalone_cluster:
        # Both workers ran executors.
        assert all(list((tmp_path / f"work-{n}").glob("app-*/*/stderr")) for n in range(2))
