"""Processes of this Python that run a module, and import nothing from the folder they start in.

`python -m MODULE` searches the current folder first, which is wherever somebody happened to run a
command: a file `json.py` in it would be executed. `-P`, and PYTHONSAFEPATH for the Pythons that
other programs start, leave that folder out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

SAFE_PATH: Final = {"PYTHONSAFEPATH": "1"}
"""Environment variables for processes that start further Pythons."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this Python."""
    return [sys.executable, "-P", "-m", module, *arguments]


def search_path() -> str:
    """The folders in which this program finds modules, for the PYTHONPATH of another process: it
    then finds those that are beside the program, too."""
    return os.pathsep.join(_folders())


def _folders() -> Iterator[str]:
    for folder in sys.path:
        absolute = os.path.abspath(folder)  # "" is the current one, in a prompt
        if os.pathsep not in absolute:
            yield absolute
