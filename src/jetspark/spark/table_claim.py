"""Allows one writer for a table: a second one is refused, and a crash does not block the next run.

On local file systems the JVM holds a lock on `<table>/_jetspark/lock`, which the operating system
releases however the JVM ends. Other file systems have no such locks: there a lease is rewritten
every few seconds, and the next run checks whether that continues. Clocks are not compared.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JError

from jetspark.errors import ConfigError
from jetspark.spark.table_files import HadoopFiles, make_local_folder
from jetspark.spark.table_note import FOLDER

try:
    import fcntl
except ImportError:  # on Windows only the JVM asks
    fcntl = None  # type: ignore[assignment]

_LOCK, _LEASE = "lock", "lease"
LOCK_PATIENCE = 10.0
"""Seconds; the JVM of a killed run lives a moment longer."""
LEASE_EVERY = 5.0
LEASE_OVER = 20.0
"""Seconds without a change after which a lease counts as left by a crash."""
_LOOK_SECONDS = 0.2


class Claim(Protocol):
    """The right to write a table."""

    def check(self) -> None:
        """Raises ConfigError while another run has it; changes nothing."""
        ...

    def take(self) -> None:
        """Take it. Raises ConfigError if another run was faster."""
        ...

    def renew(self) -> None:
        """Show that the writer is alive. Cheap if it was just done."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...


def claim_on(files: HadoopFiles, table: str) -> Claim:
    """The claim on this table, not taken yet."""
    local = files.local(table)
    return _Lease(files, table) if local is None else _Lock(files.jvm, table, local)


def check_lock(table: str, local: str) -> None:
    """Raises ConfigError while a process writes the table in this folder; changes nothing."""
    deadline = time.monotonic() + LOCK_PATIENCE
    path = Path(local, FOLDER, _LOCK)
    while _is_locked(path):
        if time.monotonic() >= deadline:
            with suppress(OSError):
                raise _running(table, path.read_text("utf-8"))
            raise _running(table, "")
        time.sleep(_LOOK_SECONDS)


def _is_locked(path: Path) -> bool:
    """Whether another process has the lock. Java's locks are those of fcntl."""
    if fcntl is None:
        return False
    try:
        with path.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except (BlockingIOError, PermissionError):
        return os.access(path, os.W_OK)
    except OSError:
        return False  # a file system without locks: the JVM reports it
    return False


def _running(table: str, who: str) -> ConfigError:
    said = f" ({who.strip()})" if who.strip() else ""
    return ConfigError(f"Another run writes {table}{said}: stop it first, or let it end.")


def _who() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


class _Lock:
    """A lock held by the JVM, which is the writer; the system releases it when the JVM ends."""

    def __init__(self, jvm: Any, table: str, local: str) -> None:
        self._jvm = jvm
        self._table = table
        self._local = local
        self._file: Any = None
        self._lock: Any = None

    def check(self) -> None:
        check_lock(self._table, self._local)

    def take(self) -> None:
        make_local_folder(self._table, f"{self._local}/{FOLDER}")
        path = f"{self._local}/{FOLDER}/{_LOCK}"
        file = self._jvm.java.io.RandomAccessFile(path, "rw")
        try:
            lock = file.getChannel().tryLock()
        except Py4JError as error:
            # POSIX: closing any handle of the file gives up the locks of the whole process.
            if "OverlappingFileLock" not in str(error):
                file.close()
                raise
            raise _running(self._table, _who()) from None
        if lock is None:
            file.close()
            raise _running(self._table, "")
        self._file, self._lock = file, lock
        file.setLength(0)
        file.write(bytearray(_who().encode()))

    def renew(self) -> None:
        pass

    def release(self) -> None:
        if self._lock is not None:
            self._file.setLength(0)
            self._lock.release()
            self._file.close()
            self._lock = self._file = None


class _Lease:
    """A file that its writer keeps changing."""

    def __init__(self, files: HadoopFiles, table: str) -> None:
        self._files = files
        self._table = table
        self._path = f"{table}/{FOLDER}/{_LEASE}"
        self._name = f"{_who()}, {secrets.token_hex(4)}"
        self._turn = 0
        self._renewed = 0.0

    def check(self) -> None:
        found = self._files.read(self._path)
        deadline = time.monotonic() + LEASE_OVER
        while found is not None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            now = self._files.read(self._path)
            if now and found and now != found:
                raise _running(self._table, now.partition(", ")[0])
            found = now if now != "" else found  # being written at this moment

    def take(self) -> None:
        self.check()
        self._write()
        if not self._is_mine():
            raise _running(self._table, "")

    def renew(self) -> None:
        if time.monotonic() - self._renewed >= LEASE_EVERY:
            self._write()

    def release(self) -> None:
        if self._turn and self._is_mine():
            self._files.remove(self._path)

    def _write(self) -> None:
        self._turn += 1
        self._files.overwrite(self._path, f"{self._name}, {self._turn}")
        self._renewed = time.monotonic()

    def _is_mine(self) -> bool:
        return (self._files.read(self._path) or "").startswith(self._name)
