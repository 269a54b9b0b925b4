"""Temporary folders that a signal cannot leave behind, and a kill only until the next command."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # on Windows folders of killed processes stay
    fcntl = None  # type: ignore[assignment]

_LOCK = ".jetspark-lock"
"""Held as long as the folder's owner lives; it has the host's name, since locks may be local."""


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder, removed at the end; those that killed processes left are removed, too.

    Its name is chosen before it is created: a signal may raise its exception between any two steps,
    also after `mkdtemp` has created a folder and before its name is stored.
    """
    with suppress(OSError):
        _remove_left(prefix)
    folder = Path(tempfile.gettempdir(), f"{prefix}{secrets.token_hex(8)}")
    try:
        folder.mkdir(0o700)
        with (folder / f"{_LOCK}.new").open("w") as lock:
            with suppress(OSError):  # a file system without locks: nobody removes the folder
                _hold(lock)
                # Under its name it is locked from the beginning.
                os.rename(lock.name, folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hold(lock: IO[str]) -> None:
    """Raises OSError while another process has it."""
    if fcntl is None:
        raise OSError("There are no such locks on this system.")
    lock.write(socket.gethostname())
    lock.flush()
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_left(prefix: str) -> None:
    """Remove this user's folders whose owner, on this host, does not live any more."""
    if fcntl is None:
        return
    name = re.compile(rf"{re.escape(prefix)}[0-9a-f]{{16}}")
    for entry in os.scandir(tempfile.gettempdir()):
        if name.fullmatch(entry.name):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid() and _is_left(entry.path):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _is_left(folder: str) -> bool:
    """Raises OSError for a folder without a lock."""
    with Path(folder, _LOCK).open("r+") as lock:
        if lock.read() != socket.gethostname():
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
