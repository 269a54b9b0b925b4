"""Starts, monitors and stops a nats-server.

Contract: a server belongs to the process that started it and never outlives it (see `process`).
Port and store stay the same over `stop`, `kill` and `start`, so clients can reconnect; `close`, or
the end of the `with` block, stops it and removes temporary files. Methods block, normally for
milliseconds, and may be called from any thread, from one at a time.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import signal
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from jetspark.arguments import checked_but
from jetspark.errors import ConfigError, EmbeddedServerError
from jetspark.server import readiness
from jetspark.server.binary import find_server
from jetspark.server.ports import free_port
from jetspark.server.process import ChildProcess
from jetspark.server.store_lock import store_lock

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

LOOPBACK = "127.0.0.1"
_PORT_ATTEMPTS = 10
_LAST_PORT = 65535


@checked_but(also=("__init__",))
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
        if config is not None and Path(config).is_char_device():  # the server would read for ever
            raise ConfigError(f"{config} is a device, and no configuration file.")
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
        self._child: ChildProcess | None = None
        self._home: Path | None = None
        self._remove_home: weakref.finalize[[Path, int], NatsServer] | None = None

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts the server; returns when it accepts clients and JetStream, if enabled, is ready.

        Does nothing when it is running.

        Raises:
            EmbeddedServerError: no binary, another server uses `store_dir`, or the server did not
                start; the message has its reason (port in use, invalid configuration, ...).
        """
        if self.running:
            return self
        binary = find_server(self._binary)
        attempts = _PORT_ATTEMPTS if self._port is None and self._picks_port else 1
        for attempt in range(1, attempts + 1):
            port = free_port(self._host or LOOPBACK) if attempts > 1 else self._port
            try:
                self._launch(binary, port)
                return self
            except EmbeddedServerError as error:
                # Another process took the free port before the server did.
                if attempt == attempts or readiness.ADDRESS_IN_USE not in str(error):
                    raise
        raise AssertionError("unreachable")

    def _launch(self, binary: Path, port: int | None) -> None:
        home = self._prepare_home()
        with store_lock(self._store) as lock:
            child = ChildProcess(self._arguments(binary, port), self.log_file, lock.descriptor)
            try:
                child.start()
                self._url = readiness.wait_until_ready(
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
            lock.note(child.pid, self._url)
        self._child = child
        self._port = urlsplit(self._url).port
        atexit.register(self.stop)

    def _prepare_home(self) -> Path:
        if self._home is None:
            # The name first: a signal may raise its exception between any two steps.
            home = Path(tempfile.gettempdir(), f"jetspark-server-{secrets.token_hex(8)}")
            self._remove_home = weakref.finalize(self, _remove, home, os.getpid())
            home.mkdir(0o700)
            self._home = home
        # A killed server leaves its ports file, and an earlier log would hide the reason of a
        # failure.
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
        """Stops the server gracefully, kills it after `stop_timeout` seconds; keeps its data.

        Does nothing when it is not running.
        """
        if (child := self._child) is not None and child.running:
            if hasattr(signal, "SIGCONT"):
                child.signal(signal.SIGCONT)  # a suspended server would not handle the next signal
            child.signal(signal.SIGTERM)
            if child.wait(self._stop_timeout) is None:
                child.kill()
        self._child = None
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """Kills the server (SIGKILL), like a crash."""
        if self._child is not None:
            self._child.kill()
        self.stop()

    def restart(self) -> Self:
        """`stop`, then `start`: same port, same store. Raises as `start` does."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """`stop`, and remove the log and, unless `store_dir` was given, the store."""
        self.stop()
        if self._remove_home is not None:
            self._remove_home()
        self._home = self._remove_home = None

    def pause(self) -> None:
        """Suspends the server (SIGSTOP): its sockets stay open, but it does not answer."""
        self._running_child().pause()

    def resume(self) -> None:
        """Resumes a suspended server (SIGCONT)."""
        self._running_child().signal(signal.SIGCONT)

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits until the server ends by itself; returns its exit code, negative for a signal.

        Returns None if it still runs after `timeout` seconds. Ctrl-C interrupts the wait.

        Raises:
            EmbeddedServerError: it was not started.
        """
        if self._child is None:
            raise EmbeddedServerError("The nats-server is not running.")
        return self._child.wait(timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- what it is ----------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True from a successful start until the process ends, for whatever reason."""
        return self._child is not None and self._child.running

    @property
    def url(self) -> str:
        """Where clients connect: nats://host:port, or tls://. Without credentials.

        Stays valid while the server is stopped.

        Raises:
            EmbeddedServerError: it was never started.
        """
        if self._url is None:
            raise EmbeddedServerError("The nats-server was never started, so it has no URL yet.")
        return self._url

    @property
    def port(self) -> int:
        """The port for clients. Raises as `url` does."""
        port = urlsplit(self.url).port
        assert port is not None  # noqa: S101
        return port

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
        return "" if self._home is None else readiness.read_log(self.log_file)

    @property
    def last_words(self) -> str:
        """Why the server ended: the fatal line of its log, or the last one."""
        return readiness.failure_reason(self.log_file)

    def _running_child(self) -> ChildProcess:
        if self._child is None or not self._child.running:
            raise EmbeddedServerError("The nats-server is not running.")
        return self._child

    def __repr__(self) -> str:
        state = f"pid {self._child.pid}" if self._child and self._child.running else "stopped"
        return f"<NatsServer {self._url or 'never started'}, {state}>"


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not when a fork of the process ends
        shutil.rmtree(folder, ignore_errors=True)
