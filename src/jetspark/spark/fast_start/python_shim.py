"""Spark's Python in a local session, which asks the fork server for a process.

Spark starts a Python for each kind of work (finding a source, planning it, reading, committing a
sink, …), one after the other, and each imports PySpark, Arrow and this package before it answers:
about a second of CPU. The shim imports nothing; it passes its standard streams to a process that
has imported all of it, and waits for its end. Without a fork server, when that fails, and for other
commands than PySpark's modules it becomes the real Python.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from types import FrameType

_ANSWER_SECONDS = 8.0
"""Less than Spark waits for a worker; the fork server may still be importing."""


def main(python: str, server: str) -> None:
    """Run the command that Spark gives its Python: in a fork of the fork server, which has imported
    PySpark already, or else by becoming the real Python.

    `python`: the path of the real one. `server`: the path of the fork server's socket.
    """
    arguments = sys.argv[1:]
    if len(arguments) > 1 and arguments[0] == "-m" and arguments[1].startswith("pyspark."):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(server)
            request = json.dumps([arguments[1:], dict(os.environ), os.getcwd()])
            socket.send_fds(connection, [request.encode()], [0, 1, 2])
            pid = int(connection.recv(16))
            connection.send(b"g")  # go: only now the fork takes our streams and does the work
        except (OSError, ValueError):  # ValueError: the connection has ended, without a number
            connection.close()
        else:
            sys.exit(_wait_for_exit(connection, pid))
    os.execv(python, [python, *arguments])  # noqa: S606


def _wait_for_exit(connection: socket.socket, pid: int) -> int:
    """Wait until the fork that does this process's work ends, and return its exit code.

    `pid`: the fork's. A SIGTERM, which Spark sends to this process, is passed on to it.
    """

    def forward_signal(number: int, frame: FrameType | None) -> None:
        """Pass a signal that this process got on to the fork; end if the fork has ended."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            sys.exit(1)

    signal.signal(signal.SIGTERM, forward_signal)
    devnull = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # they belong to the other process now, and end with it
        os.dup2(devnull, stream)
    connection.settimeout(None)
    try:
        return int(connection.recv(16))
    except (OSError, ValueError):
        return 1
