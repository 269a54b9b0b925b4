"""The same program on local[2], on a standalone cluster with two workers, and through Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.spark_cluster import connect_server, standalone_cluster
from tests.support.streams import Admin, numbered

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.server import NatsServer

PROGRAM = Path(__file__).with_name("program.py")
COUNT = 1000


def deployment(where: str, folder: Path) -> AbstractContextManager[str]:
    if where == "standalone":
        return standalone_cluster(folder)
    return connect_server(folder) if where == "connect" else nullcontext("local[2]")


@pytest.mark.spark
@pytest.mark.parametrize("where", ["local", "standalone", "connect"])
def test_same_program_runs_in_each_deployment(
    where: str,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    needs_server: Callable[[str], None],
    tmp_path: Path,
) -> None:
    needs_server("2.12")
    source, target = unique("FROM"), unique("TO")
    admin.create(source, source)
    admin.create(target, f"{target}.>")
    admin.fill(numbered(source, COUNT))
    with deployment(where, tmp_path) as url:
        done = subprocess.run(
            [sys.executable, PROGRAM, url, shared_server.url, source, target, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"counted": COUNT, "copied": COUNT, "different": COUNT}
    if where == "standalone":
        # Both workers ran executors.
        assert all(list((tmp_path / f"work-{n}").glob("app-*/*/stderr")) for n in range(2))
