"""No module of the folder in which a command is run is imported."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest
from tests.spark.test_workers import wait_until_ready
from tests.support.processes import ended
from tests.support.streams import Admin

from jetspark.payloads.decoding import Decoding
from jetspark.spark.fast_start.workers import start_fork_server

NAMES = (
    "grpc_tools", "jetspark", "json", "pandas", "pyarrow", "pyspark", "pyspark_evil", "socket",
    "sitecustomize", "usercustomize", "numpy", "select", "platform", "resource", "deltalake",
    "msgspec", "cyclopts", "rich",
)  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, full of modules that note that they were imported."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name in NAMES:
        note = f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r} + ' ')\n"
        (folder / f"{name}.py").write_text(note)
    (folder / "pyspark_other").mkdir()
    (folder / "pyspark_other" / "__init__.py").write_text(note)
    monkeypatch.chdir(folder)
    return folder


def imported(here: Path) -> str:
    note = here.parent / "imported"
    return note.read_text() if note.exists() else ""


def test_the_compiler_of_protobuf_imports_nothing_from_here(here: Path) -> None:
    # A schema that no other test has compiled in this process.
    schema = f'syntax = "proto3"; message M {{ int64 a{os.getpid()}_{here.stat().st_ino} = 1; }}'
    Decoding.make("protobuf", schema=schema)
    assert imported(here) == ""


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="forks, as only on Linux")
def test_the_fork_server_imports_nothing_from_here(here: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        server = start_fork_server(Path(name, "p"), "local[1]", {})
        assert server is not None
        try:
            wait_until_ready(server)
        finally:
            server.stop()
    assert imported(here) == ""


def test_the_module_of_the_command_imports_nothing_from_here(here: Path) -> None:
    (here / "jetspark.py").unlink()  # Python itself takes the one that it is told to run
    assert "--to" in ended(sys.executable, "-m", "jetspark", "ingest", "--help").stdout
    assert imported(here) == ""


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.tables
@pytest.mark.parametrize("fast_start", ["on", "off"])
def test_a_command_with_spark_imports_nothing_from_here(
    here: Path, admin: Admin, fast_start: str
) -> None:
    """Neither itself nor its workers, the ones that Spark starts included."""
    stream = f"FOLDER_{fast_start}"
    admin.create(stream, f"{stream}.>")
    admin.fill([(f"{stream}.a", b'{"a": 1}')])
    script = Path(sys.executable).with_name("jetspark")
    ingest = ["ingest", stream, "--to", str(here.parent / "table"), "--json-schema", "a INT"]
    done = ended(script, *ingest, "--server", admin.url, JETSPARK_FAST_START=fast_start)
    assert done.returncode == 0, done.stderr
    assert imported(here) == ""
