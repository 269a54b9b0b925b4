"""A process that has imported what Spark's Python workers need, and forks them.

`python -m jetspark.spark.fast_start.fork_server FOLDER/SOCKET`, started by `workers`, ends when its
standard input does, and removes the folder. It runs no code of Spark or of users itself.

PySpark imports only after a fork, since a library may have started threads, which a fork loses.
Here the only other threads are those in which jemalloc (of Arrow and deltalake) returns memory, and
jemalloc starts them again after a fork; NumPy's are off (`workers`). tests/spark/test_workers.py
checks that there are no others.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path

MODULES = (
    "pandas",  # PyArrow imports it for the first array, so each worker would
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "jetspark.spark.pipelines.task_writes",
    "jetspark.tables.delta.table",
)
"""Modules to import; some may be missing, with another Spark or without an extra."""

_MAX_REQUEST_BYTES = 1 << 20
_TOUCH_SECONDS = 3600.0


def main() -> None:
    """Import what Spark's Python workers need, then fork a process for each of them.

    A worker is asked for, over a socket, by the shim: the small program that Spark starts in place
    of Python. The server ends when its standard input does.
    """
    # A request is one message: the shim's arguments, environment and folder as JSON, with the
    # descriptors of its standard streams. The fork answers with its process id, waits for one byte
    # (without it the shim has given up), and sends its exit code at its end.
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(sys.argv[1])
    folder = Path(sys.argv[1]).parent
    listener.listen(64)  # connections wait until the imports are done
    preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the forks
    while True:
        ready, _, _ = select.select([0, listener.fileno()], [], [], _TOUCH_SECONDS)
        if 0 in ready:  # standard input has ended
            shutil.rmtree(folder, ignore_errors=True)
            return
        if not ready:
            _touch(folder)
            continue
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            code = 1
            try:
                code = _serve(connection)
            finally:
                os._exit(code)
        connection.close()


def _touch(folder: Path) -> None:
    """Renew the times of the server's folder and its files, so that programs that clean up old
    files do not remove them from a query that runs for weeks."""
    for path in (*folder.iterdir(), folder):
        with suppress(OSError):
            os.utime(path)


def preload() -> None:
    """Import the modules of Spark's workers, and hide their objects from the garbage collector.

    A collection in a fork would write to the objects, and so copy memory that forks now share.
    """
    for module in MODULES:
        with suppress(ImportError):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()


def _serve(connection: socket.socket) -> int:
    """Run, in a fork of this server, the module that a shim asks for; returns its exit code.

    The shim is the program that Spark starts in place of Python; this fork takes its streams,
    environment and folder, so that the module runs as if in the shim's process.
    """
    try:
        request, streams, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 3)
        arguments, environment, folder = json.loads(request)
        connection.send(b"%d" % os.getpid())
        accepted = connection.recv(1)
    except (OSError, ValueError):
        return 1
    if not accepted:
        return 1  # the shim has given up waiting, and does the work itself
    _take_over(arguments, environment, folder, streams)
    # The module may fork workers that outlive it. They must not keep the connection open, by whose
    # end the shim knows that the module has ended.
    os.register_at_fork(after_in_child=connection.close)
    code = 1
    try:  # what Python does with a program and its exit
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        with suppress(OSError):
            connection.send(b"%d" % code)
    return code


def _take_over(
    arguments: list[str], environment: dict[str, str], folder: str, streams: list[int]
) -> None:
    """Give this process the arguments, environment, folder and standard streams of the shim, the
    program that Spark has started and that asks for this fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for standard, received in enumerate(streams):
        os.dup2(received, standard)
        os.close(received)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = arguments  # runpy sets the first one
    # Modules that Spark adds by the environment; this interpreter was started without them.
    further = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in further if path and path not in sys.path]


if __name__ == "__main__":
    main()
