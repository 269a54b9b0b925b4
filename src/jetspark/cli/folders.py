"""Temporary folders that a signal removes, or after a kill the next command."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jetspark.files import Hold, remove_left


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Create a folder for the block in `parent`, by default the system's temporary folder.

    It is removed at the end, and so are folders of this prefix that killed processes left.
    """
    parent = parent or Path(tempfile.gettempdir())
    with suppress(OSError):
        remove_left(parent, re.compile(rf"{re.escape(prefix)}[0-9a-f]{{16}}"))
    # The name comes before the folder: with `mkdtemp` a signal could raise its exception between
    # the creation and the assignment, and nobody would remove the folder.
    folder = parent / f"{prefix}{secrets.token_hex(8)}"
    hold = None
    try:
        folder.mkdir(0o700)
        hold = Hold(folder)  # marks the folder as in use, until this process ends
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if hold is not None:
            hold.release()
