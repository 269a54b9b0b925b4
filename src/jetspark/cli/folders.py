"""Temporary folders that a signal cannot leave behind."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder, removed at the end.

    Its name is chosen before it is created: a signal may raise its exception between any two steps,
    also after `mkdtemp` has created a folder and before its name is stored.
    """
    folder = Path(tempfile.gettempdir(), f"{prefix}{secrets.token_hex(8)}")
    try:
        folder.mkdir(0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
