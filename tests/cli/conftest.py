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
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """`nothing_left(5)` passes when, within 5 seconds, no process that the test started is left.

    Called once more at the end of the test.
    """
    value = secrets.token_hex(8)
    monkeypatch.setenv(_MARK, value)

    def check(timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while left := _marked(value):
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.05)

    yield check
    check(20.0)
