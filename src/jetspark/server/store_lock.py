"""One nats-server for one store.

A nats-server does not notice that another one uses its store, and both then lose messages that they
have acknowledged. Contract: the lock is on a file in the folder, and held by the nats-server
process itself, which inherits it. So it is free exactly when that process has ended, however it
ended and whatever became of the process that started it. The file stays and says who had it last.

Not on Windows, nor on file systems without locks. A server that something else has started is not
noticed.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

from jetspark.errors import EmbeddedServerError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_FILE: Final = "jetspark-server.lock"

_WAIT: Final = 1.0  # seconds for a server that is just ending
_LOOK_EVERY: Final = 0.02


class StoreLock:
    """The lock of a store while its server starts."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor
        """For the child process to inherit; None where there are no locks."""

    def note(self, pid: int, url: str) -> None:
        """Write who has it."""
        if self.descriptor is not None:
            with contextlib.suppress(OSError):  # as on a full disk
                os.ftruncate(self.descriptor, 0)
                os.pwrite(self.descriptor, f"pid {pid}, {url}\n".encode(), 0)


@contextlib.contextmanager
def store_lock(store: Path | None) -> Iterator[StoreLock]:
    """Take the lock of a store; None: of no store. A child that inherits it keeps it.

    Raises EmbeddedServerError when a server has it.
    """
    descriptor = None if store is None or fcntl is None else _opened(store)
    try:
        if store is not None and descriptor is not None:
            _take(store, descriptor)
        yield StoreLock(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _opened(store: Path) -> int | None:
    try:
        store.mkdir(parents=True, exist_ok=True)
        return os.open(store / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        return None  # the server says what is wrong with the folder


def _take(store: Path, descriptor: int) -> None:
    deadline = time.monotonic() + _WAIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = os.pread(descriptor, 1024, 0).decode("utf-8", "replace").strip()
                raise EmbeddedServerError(
                    f"{store} is in use by another nats-server ({holder or 'which is starting'}): "
                    "stop that one, or choose another folder."
                ) from None
            time.sleep(_LOOK_EVERY)
        except OSError:
            return  # a file system without locks
        else:
            os.ftruncate(descriptor, 0)
            return
