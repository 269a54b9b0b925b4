"""Commands of these tests are found again by a mark in their environment."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MARK = "JETSPARK_TEST_MARK"
_WITHIN = 60.0  # seconds


def _marked(value: str) -> list[int]:
    wanted = f"{_MARK}={value}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # it has ended, or is not ours
        if wanted in environment.split(b"\0") and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """`nothing_left()` passes when, after a while, no process that the test started is left.

    Called once more at the end of the test.
    """
    value = secrets.token_hex(8)
    monkeypatch.setenv(_MARK, value)

    def check() -> None:
        deadline = time.monotonic() + _WITHIN
        while left := _marked(value):
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.05)

    yield check
    check()
