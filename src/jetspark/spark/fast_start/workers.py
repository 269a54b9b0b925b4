"""Starts the fork server of Spark's Python workers beside a local session, while the JVM starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyspark

from jetspark.own_python import module_command, search_path
from jetspark.spark.fast_start import switch

_PYTHON_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_PYTHON_SETTINGS = (
    "spark.pyspark.python",
    "spark.pyspark.driver.python",
    "spark.python.use.daemon",
    "spark.python.daemon.module",
)
_SHIM = """#!{python} -IS
import sys
sys.path.append({root!r})
from jetspark.spark.fast_start.python_shim import main
main({python!r}, {socket!r})
"""
_MAX_SHEBANG_BYTES = 128
"""Bytes of a script's first line that every Linux reads."""
_STOP_SECONDS = 5.0


@dataclass(frozen=True)
class ForkServer:
    """A running fork server: a process that has imported PySpark, and forks Spark's Python workers.

    Its folder has its socket, and the shim: a program that Spark starts as its Python, and that
    asks the server for a worker.
    """

    process: subprocess.Popen[bytes]
    folder: Path

    @contextmanager
    def as_python(self) -> Iterator[None]:
        """Make sessions that are started in the block use the server's shim as their Python."""
        before = {name: os.environ.get(name) for name in _PYTHON_VARIABLES}
        os.environ.update(dict.fromkeys(_PYTHON_VARIABLES, str(self.folder / "python")))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def stop(self) -> None:
        """Stop the server, and remove its folder. Workers that it has forked end with Spark."""
        assert self.process.stdin is not None  # noqa: S101
        self.process.stdin.close()  # at whose end the server ends
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_fork_server(
    folder: Path, master: str, conf: Mapping[str, str], log: IO[bytes] | None = None
) -> ForkServer | None:
    """Start a fork server, from which a new Spark session gets its Python workers quickly.

    Returns None where Spark must start its workers itself. `folder`: a private one, made unless it
    exists; if an exception (such as a signal's) ends this call, the caller removes it. `master`,
    `conf`: of the session. `log`: for what the server prints to standard error.
    """
    if not _can_fork_workers(master, conf):
        return None
    with suppress(OSError):
        folder.mkdir(0o700, exist_ok=True)
        shim, socket = folder / "python", str(folder / "s")
        root = str(Path(__file__).parents[3])  # the folder with the package, for the shim's import
        shim.write_text(_SHIM.format(python=sys.executable, root=root, socket=socket))
        shim.chmod(0o700)
        if os.access(shim, os.X_OK):  # not where the file system forbids it
            return ForkServer(_start_process(socket, log), folder)
        shim.unlink()
    return None


def _can_fork_workers(master: str, conf: Mapping[str, str]) -> bool:
    """Whether Spark's workers can be forks of one process: on this machine, if it is Linux, with
    this Python and this Spark, unless the caller's settings or JETSPARK_FAST_START forbid it."""
    python = sys.executable
    return (
        sys.platform == "linux"
        and master.startswith("local")
        and switch.is_on(master)
        and not any(name in conf for name in _PYTHON_SETTINGS)
        and all(os.environ.get(name, python) == python for name in _PYTHON_VARIABLES)
        and _is_own_spark(os.environ.get("SPARK_HOME"))
        # Whether the shim's first line can name this Python.
        and len(f"#!{python} -IS\n") < _MAX_SHEBANG_BYTES
        and not any(map(str.isspace, python))
    )


def _start_process(socket: str, log: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """Start the fork server's process, which listens on this socket."""
    environment = os.environ | {
        # Workers find the modules that this program finds, and no others.
        "PYTHONPATH": search_path(),
        # As Spark does for its workers.
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "PYTHONUNBUFFERED": "YES",
        # NumPy's threads would not survive a fork, and Spark's workers have one anyway.
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.Popen(  # noqa: S603
        module_command("jetspark.spark.fast_start.fork_server", socket),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=log,
        env=environment,
        process_group=0,  # so that Ctrl-C does not reach it
    )


def _is_own_spark(home: str | None) -> bool:
    """Whether workers of the Spark in the folder `home` (SPARK_HOME) import the PySpark that is
    imported here. True without one."""
    if not home:
        return True
    with suppress(OSError):
        return Path(home).samefile(Path(pyspark.__file__).parent)
    return False
