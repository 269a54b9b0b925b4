"""One child process that cannot outlive this one.

Each child has a daemon thread that forks it and then waits for its end. That makes Linux's
parent-death signal reliable: the kernel sends it when the *thread* that forked ends, and this one
ends with the child or with the whole process, never before.

- Linux: the child requests SIGKILL at the death of its parent, so even a SIGKILL of this process
  leaves no child behind. Elsewhere only an orderly exit of this process ends the child (`atexit`,
  in `nats_server`).
- The child has a session of its own: Ctrl-C in the terminal reaches this process only, which
  then stops the child itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Runs in a new interpreter that then executes the program (same process id), and not as a
# preexec_fn, which may deadlock in a process with threads. The parent may have died before prctl
# took effect, so getppid is checked. 1 is PR_SET_PDEATHSIG.
_BECOME = """
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
except (ImportError, AttributeError, OSError):
    pass
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class ChildProcess:
    """A program whose standard output and error are appended to the file `output`.

    `inherited`: a file descriptor that it shares, and keeps.

    Any thread may use it; it runs once.
    """

    def __init__(
        self, arguments: Sequence[str | Path], output: Path, inherited: int | None = None
    ) -> None:
        self._arguments = [str(argument) for argument in arguments]
        self._output = output
        self._inherited = () if inherited is None else (inherited,)
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: BaseException | None = None
        self._started = threading.Event()
        self._exited = threading.Event()

    def start(self) -> None:
        """Runs the program; returns when it has a process id.

        Raises:
            OSError: it could not be started.
        """
        threading.Thread(
            target=self._keep, name=f"keeper of {self._arguments[0]}", daemon=True
        ).start()
        try:
            self._started.wait()
        except BaseException:  # Ctrl-C at this moment: the program must not be left behind
            self._started.wait()
            self.kill()
            raise
        if self._failure is not None:
            raise self._failure

    def _keep(self) -> None:
        try:
            with self._output.open("ab") as output:
                self._process = subprocess.Popen(  # noqa: S603 - the binary the user chose
                    _tied_to_parent(self._arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=self._inherited,
                )
        except BaseException as error:  # raised by the thread that waits in __init__
            self._failure = error
            self._exited.set()
        finally:
            self._started.set()
        if self._process is not None:
            self._process.wait()
            self._exited.set()

    @property
    def pid(self) -> int:
        assert self._process is not None  # noqa: S101
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process runs. In a fork of the process that started it: False."""
        started = self._started.is_set() and not self._exited.is_set()
        return started and os.getpid() == self._owner

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit code, negative for a signal; None when it still runs after `timeout` seconds."""
        if not self._exited.wait(timeout) or self._process is None:
            return None
        return self._process.returncode

    def signal(self, number: int) -> None:
        """Sends a signal; does nothing when the process has ended."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def pause(self) -> None:
        """Suspends the process (SIGSTOP); returns when all its threads are stopped."""
        self.signal(signal.SIGSTOP)
        if hasattr(os, "waitid") and self.running:
            try:
                # WNOWAIT leaves the state to be seen again, so pausing twice does not hang.
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)
            except ChildProcessError:
                pass  # it has just ended

    def kill(self) -> None:
        """Ends the process at once (SIGKILL) and waits until it is gone."""
        if self._process is not None and self.running:
            self._process.kill()
            self._exited.wait()


def _tied_to_parent(arguments: list[str]) -> list[str]:
    if sys.platform != "linux" or not sys.executable:
        return arguments
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *arguments]
