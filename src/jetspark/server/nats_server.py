"""Starts, monitors and stops a nats-server.

Contract: a server belongs to the process that started it and never outlives it. Port and store
stay the same over `stop`, `kill` and `start`, so clients can reconnect; `close`, or the end of the
`with` block, stops it and removes temporary files. Methods block, normally for milliseconds, and
may be called from any thread, from one at a time.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import msgspec

from jetspark.errors import ConfigError, DocumentError, EmbeddedServerError
from jetspark.server.binary import find_server
from jetspark.wire.documents import decode_document, decode_json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


# -------------------------------------------------------------------------------------------------
# Free ports


# Below the ephemeral ports of outgoing connections (from 32768 on Linux, 49152 elsewhere). A client
# may take one of those while a server restarts, and a client that keeps connecting to one on the
# loopback interface can even connect to itself.
_RANGE = range(20_000, 32_000)
_ATTEMPTS = 200


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port at `host` that is free at this moment.

    Raises EmbeddedServerError if `host` is not an address of this machine, or no port is free.
    """
    try:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
        for _ in range(_ATTEMPTS):
            port = secrets.choice(_RANGE)
            if _is_free(host, port, family):
                return port
    except OSError as error:
        raise EmbeddedServerError(f"Cannot listen on {host!r}: {error.strerror}.") from error
    raise EmbeddedServerError(f"No free port found on {host!r}.")


def _is_free(host: str, port: int, family: int) -> bool:
    # Without SO_REUSEADDR, since a port that is bound, but not listened on yet, is not free.
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


# -------------------------------------------------------------------------------------------------
# One child process that cannot outlive this one
#
# Each child has a daemon thread that forks it and then waits for its end. That makes Linux's
# parent-death signal reliable: the kernel sends it when the *thread* that forked ends, and this
# one ends with the child or with the whole process, never before.
#
# - Linux: the child requests SIGKILL at the death of its parent, so even a SIGKILL of this process
#   leaves no child behind. Elsewhere only an orderly exit of this process ends the child (`atexit`
#   in `NatsServer`).
# - The child has a session of its own: Ctrl-C in the terminal reaches this process only, which
#   then stops the child itself.


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


class _ChildProcess:
    """A program that runs once and appends its output to the file `output`; for any thread.

    `inherited`: a file descriptor that it inherits.
    """

    def __init__(
        self, arguments: Sequence[str | Path], output: Path, inherited: int | None
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
        """Wait until the program has a process id. Raises OSError if it could not be started."""
        keeper = threading.Thread(target=self._keep, name=f"keeper of {self._arguments[0]}")
        keeper.daemon = True
        keeper.start()
        try:
            self._started.wait()
        except BaseException:  # Ctrl-C at this moment: the program must not be left behind
            self._started.wait()
            self.kill()
            raise
        if self._failure is not None:
            raise self._failure

    def _keep(self) -> None:
        arguments = self._arguments
        if sys.platform == "linux" and sys.executable:
            tied = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid())]
            arguments = [*tied, *arguments]
        try:
            with self._output.open("ab") as output:
                self._process = subprocess.Popen(  # noqa: S603 - the binary the user chose
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=self._inherited,
                )
            self._started.set()
            self._process.wait()
        except BaseException as error:  # raised by the thread that waits in `start`
            self._failure = error
        self._exited.set()
        self._started.set()

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
        """Send a signal; does nothing when the process has ended."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def pause(self) -> None:
        """Suspend the process (SIGSTOP), and wait until all its threads are stopped."""
        if not hasattr(signal, "SIGSTOP"):
            raise EmbeddedServerError("This system, Windows, cannot suspend a process.")
        self.signal(signal.SIGSTOP)
        if hasattr(os, "waitid") and self.running:
            with contextlib.suppress(ChildProcessError):  # it has just ended
                # WNOWAIT does not consume the state, so pausing twice does not hang.
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        """End the process at once (SIGKILL) and wait until it is gone."""
        if self._process is not None and self.running:
            self._process.kill()
            self._exited.wait()


# -------------------------------------------------------------------------------------------------
# Waiting until a starting nats-server is ready, or finding out why it did not start


_LOOK_EVERY = 0.003  # seconds between two checks of the ports file; the child's end ends the wait
_INFO_TIMEOUT = 0.5  # seconds
_MAX_INFO = 1 << 20  # bytes
_LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")

_ADDRESS_IN_USE = "address already in use"
_LISTEN_ERROR = re.compile(r"listen tcp (?P<address>\S+): bind: (?P<why>[^\"\n]+)")
_LOG_PREFIX = re.compile(r"^\[\d+\] \S+ \S+ \[(?P<level>\w+)\] ")
# Fatal errors are log lines; errors in the configuration or the arguments are plain text.
_COMPLAINT = re.compile(
    r"^(?:\[\d+\] \S+ \S+ \[FTL\] |nats-server: |(?=flag provided|invalid value))(.*)", re.MULTILINE
)


def _wait_until_ready(
    child: _ChildProcess, ports_folder: Path, log: Path, *, jetstream: bool, timeout: float
) -> str:
    """Wait for the client URL: the server accepts clients, and JetStream is ready if enabled.

    The server writes its ports file after it has opened its listeners; its INFO line then shows
    that it answers, and whether JetStream is enabled. Raises EmbeddedServerError if the server
    ended, or is not ready after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if child.wait(_LOOK_EVERY) is not None:
            raise EmbeddedServerError(f"nats-server did not start: {failure_reason(log)}.")
        url = client_url(ports_folder)
        if url is not None and _answers(url, log, jetstream=jetstream):
            return url
    raise EmbeddedServerError(
        f"nats-server was not ready after {timeout:g} s; its log ends with: {failure_reason(log)}."
    )


class _Ports(msgspec.Struct):
    nats: list[str] = []


def client_url(folder: Path) -> str | None:
    """The loopback URL in the folder's ports file, else the first one; None without a URL."""
    for file in folder.glob("*.ports"):
        with contextlib.suppress(OSError, DocumentError):  # still being written
            urls = decode_json(file.read_bytes(), _Ports, "ports file").nats
            local = [url for url in urls if urlsplit(url).hostname in _LOCAL_HOSTS]
            return next(iter([*local, *urls]), None)
    return None


def _answers(url: str, log: Path, *, jetstream: bool) -> bool:
    parts = urlsplit(url)
    try:
        info = read_info(parts.hostname or "", parts.port or 0)
    except TimeoutError:
        # A server with `handshake_first` sends nothing before the TLS client hello.
        return parts.scheme == "tls" and "Server is ready" in read_log(log)
    except (OSError, DocumentError):
        return False
    return not jetstream or info.get("jetstream") is True


def read_info(host: str, port: int) -> dict[str, object]:
    """The INFO document that a server sends to a new client.

    Raises OSError without a connection, TimeoutError without INFO within half a second, and
    DocumentError if the peer is not a NATS server.
    """
    with (
        socket.create_connection((host, port), timeout=_INFO_TIMEOUT) as link,
        link.makefile("rb") as file,
    ):
        verb, _, document = file.readline(_MAX_INFO).partition(b" ")
    if verb != b"INFO":
        raise DocumentError("INFO", "it is not of a NATS server")
    return decode_document(document, "INFO")


def read_log(log: Path) -> str:
    """The text of the log file; empty when there is none."""
    try:
        return log.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def failure_reason(log: Path) -> str:
    """The server's reason for its end, without time stamps and full stop."""
    text = read_log(log)
    lines = [line for line in text.splitlines() if line.strip()]
    if complaint := _COMPLAINT.search(text):
        line = complaint[1]
    else:
        line = _LOG_PREFIX.sub("", lines[-1]) if lines else "it said nothing"
    if listen := _LISTEN_ERROR.search(line):
        line = f"{listen['address']}: {listen['why']}"
    return " ".join(line.split()).rstrip(".")


# -------------------------------------------------------------------------------------------------
# One nats-server for one store
#
# A nats-server does not notice that another one uses its store, and both then lose messages that
# they have acknowledged. Contract: the lock is on a file in the folder, and held by the nats-server
# process itself, which inherits it. So it is free exactly when that process has ended, whatever
# happened to it or its parent. The file stays and names the last owner.
#
# Not on Windows, nor on file systems without locks. Servers started by something else are not
# noticed.


LOCK_FILE: Final = "jetspark-server.lock"

_WAIT: Final = 1.0  # seconds to wait for a server that is ending
_LOCK_EVERY: Final = 0.02


@contextlib.contextmanager
def _store_lock(store: Path | None) -> Iterator[int | None]:
    """The descriptor of a store's lock, for the child to inherit; None without store or locks.

    Raises EmbeddedServerError when a server holds it.
    """
    descriptor = None
    if store is not None and fcntl is not None:
        with contextlib.suppress(OSError):  # the server reports what is wrong with the folder
            store.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(store / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    if store is None or descriptor is None:
        yield None
        return
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            _take(descriptor, store)
            os.ftruncate(descriptor, 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int, store: Path) -> None:
    deadline = time.monotonic() + _WAIT
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = os.pread(descriptor, 1024, 0).decode("utf-8", "replace").strip()
                raise EmbeddedServerError(
                    f"{store} is in use by another nats-server ({holder or 'which is starting'}): "
                    "stop that one, or choose another folder."
                ) from None
            time.sleep(_LOCK_EVERY)


def _note(descriptor: int | None, holder: str) -> None:
    """Write the owner of the lock into its file."""
    if descriptor is not None:
        with contextlib.suppress(OSError):  # such as a full disk
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)


# -------------------------------------------------------------------------------------------------
# The server


LOOPBACK = "127.0.0.1"
_PORT_ATTEMPTS = 10
_LAST_PORT = 65535


class NatsServer:
    """One nats-server process.

    Args:
        port: the port for clients. None: the one of `config`, or a free one when there is no
            `config`. 0: a free one in any case. A free one is chosen at the first start.
        host: the address to listen on. None: the one of `config`, or 127.0.0.1 without.
        jetstream: enable JetStream. None: as in `config`, or enabled when there is no `config`.
        store_dir: JetStream's store; created if missing, never removed, and for one server at a
            time: a lock file in it tells. None: the one of `config`, without such a lock, or a
            temporary folder, which `close` removes.
        config: a configuration file of nats-server. Arguments override it.
        name: the server's name. None: the server generates one.
        extra: further arguments for the command line of nats-server.
        binary: the nats-server to run; None: see `find_server`.
        start_timeout: seconds within which the server has to be ready; a large store takes time.
        stop_timeout: seconds after which a server that does not stop is killed.

    Nothing happens before `start` or the `with` block.
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        host: str | None = None,
        jetstream: bool | None = None,
        store_dir: str | Path | None = None,
        config: str | Path | None = None,
        name: str | None = None,
        extra: Sequence[str] = (),
        binary: str | Path | None = None,
        start_timeout: float = 30.0,
        stop_timeout: float = 10.0,
    ) -> None:
        if port is not None and not 0 <= port <= _LAST_PORT:
            raise ConfigError(f"port is from 0 to {_LAST_PORT}, not {port}.")
        if config is not None and Path(config).is_char_device():  # it would be read for ever
            raise ConfigError(f"{config} is a device, not a configuration file.")
        without_config = config is None
        self._config = config
        self._host = LOOPBACK if host is None and without_config else host
        self._jetstream = without_config if jetstream is None else jetstream
        self._store = None if store_dir is None else Path(store_dir).absolute()
        self._name = name
        self._extra = tuple(extra)
        self._binary = binary
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._picks_port = port == 0 or (port is None and without_config)
        self._port = port or None
        self._url: str | None = None
        self._child: _ChildProcess | None = None
        self._home: Path | None = None
        self._remove_home: weakref.finalize[[Path, int], NatsServer] | None = None

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the server; returns when it accepts clients and JetStream, if enabled, is ready.

        Does nothing when it is running. Raises EmbeddedServerError with the reason when it does not
        start: no binary, a port or store in use, an invalid configuration, ...
        """
        if self.running:
            return self
        binary = find_server(self._binary)
        picks = self._port is None and self._picks_port
        attempts = _PORT_ATTEMPTS if picks else 1
        while True:
            attempts -= 1
            port = free_port(self._host or LOOPBACK) if picks else self._port
            try:
                return self._launch(binary, port)
            except EmbeddedServerError as error:
                # Another process took the free port before the server did.
                if not attempts or _ADDRESS_IN_USE not in str(error):
                    raise

    def _launch(self, binary: Path, port: int | None) -> Self:
        home = self._prepare_home()
        with _store_lock(self._store) as lock:
            child = _ChildProcess(self._arguments(binary, port), self.log_file, lock)
            try:
                child.start()
                self._url = _wait_until_ready(
                    child,
                    home / "ports",
                    self.log_file,
                    jetstream=self._jetstream,
                    timeout=self._start_timeout,
                )
            except OSError as error:
                raise EmbeddedServerError(f"{binary} does not run: {error.strerror}.") from error
            except BaseException:
                child.kill()
                raise
            _note(lock, f"pid {child.pid}, {self._url}\n")
        self._child = child
        self._port = urlsplit(self._url).port
        atexit.register(self.stop)
        return self

    def _prepare_home(self) -> Path:
        if self._home is None:
            # Set the name first, since a signal may raise its exception between any two steps.
            home = Path(tempfile.gettempdir(), f"jetspark-server-{secrets.token_hex(8)}")
            self._remove_home = weakref.finalize(self, _remove, home, os.getpid())
            home.mkdir(0o700)
            self._home = home
        # A killed server leaves its ports file, and an old log would hide the reason of a failure.
        shutil.rmtree(self._home / "ports", ignore_errors=True)
        (self._home / "ports").mkdir()
        self.log_file.unlink(missing_ok=True)
        return self._home

    def _arguments(self, binary: Path, port: int | None) -> list[str | Path]:
        assert self._home is not None  # noqa: S101
        arguments: list[str | Path] = [binary, "--ports_file_dir", self._home / "ports"]
        if self._config is not None:
            arguments += ["--config", self._config]
        if self._host is not None:
            arguments += ["--addr", self._host]
        if port is not None:
            arguments += ["--port", str(port)]
        if self._name is not None:
            arguments += ["--server_name", self._name]
        if self._jetstream:
            arguments += ["--jetstream"]
        if self._jetstream or self._store is not None:
            arguments += ["--store_dir", self.store_dir]
        return [*arguments, *self._extra]

    def stop(self) -> None:
        """Stop the server gracefully, or kill it after `stop_timeout` seconds; keeps its data."""
        if (child := self._child) is not None and child.running:
            if hasattr(signal, "SIGCONT"):
                child.signal(signal.SIGCONT)  # a suspended server would not handle the signal
            child.signal(signal.SIGTERM)
            if child.wait(self._stop_timeout) is None:
                child.kill()
        self._child = None
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """Kill the server (SIGKILL), like a crash."""
        if self._child is not None:
            self._child.kill()
        self.stop()

    def restart(self) -> Self:
        """`stop`, then `start`: same port, same store. Raises the errors of `start`."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """`stop`, and remove the log and, unless `store_dir` was given, the store."""
        self.stop()
        if self._remove_home is not None:
            self._remove_home()
        self._home = self._remove_home = None

    def pause(self) -> None:
        """Suspend the server (SIGSTOP): its sockets stay open, but it does not answer.

        Raises EmbeddedServerError on Windows, which has no such signal.
        """
        self._running_child().pause()

    def resume(self) -> None:
        """Resume a suspended server (SIGCONT)."""
        if hasattr(signal, "SIGCONT"):  # elsewhere none can be suspended
            self._running_child().signal(signal.SIGCONT)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the server ends by itself; returns its exit code, negative for a signal.

        Returns None if it still runs after `timeout` seconds. Ctrl-C interrupts the wait. Raises
        EmbeddedServerError if it was not started.
        """
        if self._child is None:
            raise EmbeddedServerError("The nats-server is not running.")
        return self._child.wait(timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- state ---------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True from a successful start until the process ends, for whatever reason."""
        return self._child is not None and self._child.running

    @property
    def url(self) -> str:
        """The URL for clients, without credentials: nats://host:port, or tls://.

        Stays valid while the server is stopped. Raises EmbeddedServerError before the first start.
        """
        if self._url is None:
            raise EmbeddedServerError("The nats-server was never started, so it has no URL yet.")
        return self._url

    @property
    def port(self) -> int:
        """The port for clients. Raises the errors of `url`."""
        return urlsplit(self.url).port or 0

    @property
    def pid(self) -> int:
        """The process id. Raises EmbeddedServerError when it is not running."""
        return self._running_child().pid

    @property
    def store_dir(self) -> Path:
        """The folder with JetStream's data. Raises EmbeddedServerError when there is none yet."""
        if self._store is not None:
            return self._store
        if self._home is None:
            raise EmbeddedServerError("The temporary store exists from start to close only.")
        return self._home / "store"

    @property
    def log_file(self) -> Path:
        """The server's standard error since its last start."""
        if self._home is None:
            raise EmbeddedServerError("The log exists from start to close only.")
        return self._home / "server.log"

    @property
    def log(self) -> str:
        """The text of `log_file`; empty before the first start and after `close`."""
        return "" if self._home is None else read_log(self.log_file)

    @property
    def last_words(self) -> str:
        """Why the server ended: the fatal line of its log, or the last one."""
        return failure_reason(self.log_file)

    def _running_child(self) -> _ChildProcess:
        if self._child is None or not self._child.running:
            raise EmbeddedServerError("The nats-server is not running.")
        return self._child

    def __repr__(self) -> str:
        state = f"pid {self._child.pid}" if self._child and self._child.running else "stopped"
        return f"<NatsServer {self._url or 'never started'}, {state}>"


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # but not when a fork of the process ends
        shutil.rmtree(folder, ignore_errors=True)
