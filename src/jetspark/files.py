"""Files that people write, such as configurations and credentials: read whole, up to a size."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from jetspark.errors import ConfigError

LARGEST: Final = 16 << 20


def read_small(path: str | os.PathLike[str]) -> bytes:
    """All bytes. Raises OSError, and ConfigError beyond LARGEST bytes: a device has no end."""
    with Path(path).open("rb") as file:  # not a number, which would be an open file
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ConfigError(
            f"{os.fspath(path)} has more than {LARGEST >> 20} MiB: is it the right file?"
        )
    return data


def read_small_text(path: str | os.PathLike[str]) -> str:
    """The file as text. Raises UnicodeDecodeError, too."""
    return read_small(path).decode().replace("\r\n", "\n")


# -------------------------------------------------------------------------------------------------
# Folders that killed processes left: a living process holds a lock in its own folder.


try:
    import fcntl
except ImportError:  # on Windows they are not removed
    fcntl = None  # type: ignore[assignment]

LOCK = ".jetspark-lock"
"""Locked by the folder's owner while it lives. It has the host's name: locks may be local."""


class Hold:
    """Marks a new folder as in use, until `release` or the end of this process.

    On a file system without locks nobody removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file: IO[bytes] | None = None
        if fcntl is None:
            return
        new = folder / f"{LOCK}.new"
        try:
            self._file = new.open("wb", buffering=0)  # closing it writes nothing
            self._file.write(os.uname().nodename.encode())
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file has its lock before it has its name.
            os.rename(new, self._path)
        except OSError:
            new.unlink(missing_ok=True)

    def release(self) -> None:
        """Give up the folder. May be called again."""
        if self._file is not None:
            # Before the lock is gone, or another process could take the folder for abandoned.
            self._path.unlink(missing_ok=True)
            self._file.close()


def beginning(name: str) -> str:
    """The start of a file's name, short enough to extend it: 255 bytes are the limit."""
    return os.fsencode(name)[:200].decode(errors="ignore")


def remove_left(parent: Path, name: re.Pattern[str]) -> None:
    """Remove this user's folders of such names whose owner on this host is dead.

    Raises OSError when the folder around them cannot be read.
    """
    if fcntl is None:
        return
    for entry in os.scandir(parent):
        if name.fullmatch(entry.name):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid() and _is_left(entry.path):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _is_left(folder: str) -> bool:
    """True if the owner is dead. Raises OSError without a lock, or if the owner lives."""
    with Path(folder, LOCK).open("r+") as lock:
        if lock.read() != os.uname().nodename:
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
