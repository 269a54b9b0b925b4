"""What Spark starts as its Python in a local session: a stand-in for a process of the preloader.

Spark starts a Python for each kind of work (finding a source, planning it, reading, committing a
sink, …), one after the other, and each imports PySpark, Arrow and this package before it answers:
about a second of CPU. The stand-in imports nothing; it asks the preloader for a process that has
imported all of it, passes it its standard streams, and waits for its end. Without a preloader, when
that fails, and for other commands than PySpark's modules it becomes the real Python.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from types import FrameType

from jetspark.spark.workers.handover import (
    GO,
    Request,
    receive_number,
    send_request,
)

_ANSWER_SECONDS = 8.0
"""Less than Spark waits for a worker; the preloader may still be importing."""


def main(python: str, preloader: str) -> None:
    """`python`: the real one. `preloader`: path of its socket."""
    arguments = sys.argv[1:]
    found = None
    if len(arguments) > 1 and arguments[0] == "-m" and arguments[1].startswith("pyspark."):
        found = _preloaded(preloader, arguments[1:])
    if found is None:
        os.execv(python, [python, *arguments])  # noqa: S606
    sys.exit(_wait(*found))


def _preloaded(path: str, arguments: list[str]) -> tuple[socket.socket, int] | None:
    """A connection to the process that takes over, and its id; None if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(path)
        send_request(connection, Request(arguments, dict(os.environ), os.getcwd()))
        pid = receive_number(connection)
        connection.sendall(GO)  # before it, the other one uses nothing of ours
    except OSError:
        connection.close()
        return None
    connection.settimeout(None)
    return connection, pid


def _wait(connection: socket.socket, pid: int) -> int:
    """The exit code of that process, to which Spark's SIGTERM is passed on."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            sys.exit(1)

    signal.signal(signal.SIGTERM, pass_on)
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # they are the other one's now, and end with it
        os.dup2(devnull, stream)
    try:
        return receive_number(connection)
    except OSError:
        return 1
