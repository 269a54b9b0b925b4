"""Running this project in a process of its own, and seeing processes end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOOK_EVERY = 0.01  # seconds

# A run of the tests in the background, or under nohup, has signals ignored, and its children
# too. And when the run is killed, a child in a session of its own must go with it
# (1 is PR_SET_PDEATHSIG).
_PRELUDE = """
import ctypes, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
"""


@contextmanager
def python(
    code: str, *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process in a session of its own; killed at the end if it still runs.

    `environment`: on top of ours; without it there are no colours.
    """
    plain = {"NO_COLOR": "1"} if environment is None else environment
    process = subprocess.Popen(
        [sys.executable, "-c", _PRELUDE + code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # what is read by line must not hide the rest from communicate
        start_new_session=True,
        env=os.environ | {"COLUMNS": "80"} | plain,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def jetspark(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The `jetspark` command, as `python` above."""
    with python("from jetspark.cli.main import main; main()", *arguments) as process:
        yield process


def ended(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command after its end, with what it printed. `environment`: on top of ours."""
    return subprocess.run(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def first_line(process: subprocess.Popen[bytes], timeout: float = 60.0) -> str:
    """The first line of standard output; what went wrong when there is none."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], timeout)
    assert readable, f"no output within {timeout} s"
    line: bytes = process.stdout.readline()
    assert line, process.communicate()[1]
    return line.decode().rstrip("\n")


def first_document(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """The first line of standard output, as JSON."""
    document: dict[str, str] = json.loads(first_line(process))
    return document


def is_alive(pid: int) -> bool:
    """True while the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return state not in "ZX"


def descendants(pid: int) -> list[int]:
    """Children of a process, their children, and so on (Linux)."""
    found: list[int] = []
    with suppress(OSError):  # it, or one of its threads, has ended
        for one in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, one.read_text().split())
    return [*found, *(later for child in found for later in descendants(child))]


def wait_until_gone(pid: int, timeout: float = 60.0) -> None:
    """Returns when process `pid`, of whoever, has ended."""
    if hasattr(os, "pidfd_open"):
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            assert select.select([fd], [], [], timeout)[0], f"process {pid} still runs"
        finally:
            os.close(fd)
        return
    deadline = time.monotonic() + timeout
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(_LOOK_EVERY)


def end(process: subprocess.Popen[bytes], number: int = signal.SIGINT) -> tuple[int, str, str]:
    """Sends a signal and waits: exit code, the rest of standard output, standard error."""
    process.send_signal(number)
    return finish(process)


def finish(process: subprocess.Popen[bytes], timeout: float = 60.0) -> tuple[int, str, str]:
    """Waits for the end: exit code, the rest of standard output, standard error."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out.decode(), err.decode()
