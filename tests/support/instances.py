"""Programs of a campaign in processes of their own, which are killed, paused and replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Self

_READY_WITHIN = 60.0  # seconds


class Instance:
    """`python -m MODULE ARGUMENTS…`; it ends with its standard input, and so with us."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, module: str, *arguments: str, fds: Sequence[int] = ()) -> Self:
        """`fds`: file descriptors that it inherits."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=fds,
        )
        return cls(process)

    async def ready(self) -> Self:
        """Wait until it has said so."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), _READY_WITHIN)
        assert line == b"ready\n", line
        return self

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def kill(self) -> None:
        if not self.ended:
            self._process.kill()
            await self._process.wait()

    async def terminate(self) -> int:
        """By SIGTERM; its exit code."""
        self._process.terminate()
        return await self._process.wait()

    async def leave(self) -> int:
        """By the end of its standard input; its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self._process.wait()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


def end_with_parent() -> None:
    """In the instance: end at once with standard input."""

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
