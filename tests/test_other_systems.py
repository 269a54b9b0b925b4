"""Modules can be imported where the calls of Linux are missing: on Windows and macOS."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Everything is imported once, so that the libraries keep what they found. Then the calls are
# hidden, and our modules are imported again.
_PROGRAM = """
import importlib, os, pkgutil, select, signal, socket, sys
import jetspark

def import_all():
    for module in pkgutil.walk_packages(jetspark.__path__, "jetspark."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

import_all()
for name in [name for name in sys.modules if name.partition(".")[0] == "jetspark"]:
    del sys.modules[name]
for name in "fcntl grp posix pty pwd resource syslog termios tty uvloop".split():
    sys.modules[name] = None
hidden = {
    os: "fork forkpty register_at_fork getuid geteuid getgid getegid getpgid getpgrp getpriority "
        "setpgid setsid killpg waitid wait4 uname mkfifo nice sysconf "
        "statvfs pread pwrite O_DIRECTORY O_CLOEXEC O_NOFOLLOW O_NONBLOCK "
        "ST_RDONLY P_PID WSTOPPED WNOWAIT WNOHANG "
        "sched_getaffinity sched_yield pipe2 memfd_create pidfd_open posix_fadvise sendfile",
    signal: "SIGKILL SIGSTOP SIGCONT SIGHUP SIGCHLD SIGUSR1 SIGUSR2 SIGQUIT SIGALRM SIGPIPE "
            "SIGTSTP SIGWINCH pthread_sigmask sigwait alarm setitimer siginterrupt pthread_kill",
    socket: "AF_UNIX SOCK_SEQPACKET SOCK_CLOEXEC SO_REUSEPORT MSG_DONTWAIT MSG_NOSIGNAL "
            "send_fds recv_fds TCP_USER_TIMEOUT TCP_KEEPIDLE",
    select: "epoll poll",
}
for module, names in hidden.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
import jetspark
import_all()

from jetspark.errors import EmbeddedServerError
from jetspark.server import NatsServer
server = NatsServer()
try:
    with server:
        server.resume()  # there is nothing to resume
        server.pause()
except EmbeddedServerError as error:
    print(error)
"""


@pytest.mark.full
def test_no_module_needs_a_call_of_linux_to_be_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PROGRAM],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "This system, Windows, cannot suspend a process.\n"
