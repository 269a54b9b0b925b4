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
    """A new folder in `parent`, by default the system's temporary folder; removed at the end.

    Also removes those that killed processes left. It chooses the name before it creates the folder:
    with `mkdtemp` a signal could raise its exception in between, and the name would be lost.
    """
    parent = parent or Path(tempfile.gettempdir())
    with suppress(OSError):
        remove_left(parent, re.compile(rf"{re.escape(prefix)}[0-9a-f]{{16}}"))
    folder = parent / f"{prefix}{secrets.token_hex(8)}"
    hold = None
    try:
        folder.mkdir(0o700)
        hold = Hold(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if hold is not None:
            hold.release()
