"""The SHA-256 of a content that comes in parts: a thread computes it, and may write the parts, too.

Two lists of parts are under way at most, so that the thread has the next one when it has finished
one. It works in their order. After an error, it does nothing more.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, Protocol

from jetspark.client.tasks import without_stop_iteration

_UNDER_WAY: Final = 2
_WORTH_A_THREAD: Final = 64 * 1024
"""Bytes whose digest costs more than a change of thread."""


class Writable(Protocol):
    """A binary file object open for writing."""

    def write(self, data: bytes, /) -> object:
        """Write all bytes."""


class ContentDigest:
    """`await add(parts)` any number of times, then `await value()`. `close` at any time."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._executor: ThreadPoolExecutor | None = None
        self._under_way: deque[asyncio.Future[None]] = deque()
        self._is_over = False

    async def add(self, parts: Sequence[bytes], file: Writable | None = None) -> None:
        """Digest the next parts, and then write them into `file`.

        Returns when they are under way. Raises the error of writing earlier ones.
        """
        if file is None and not self._under_way and sum(map(len, parts)) < _WORTH_A_THREAD:
            self._work(parts, None)
            return
        # After an error there may be less under way: it is raised now, and not at the end.
        while self._under_way and (self._is_over or len(self._under_way) >= _UNDER_WAY):
            await self._oldest()
        if self._is_over:
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "jetspark-digest")
        work = asyncio.get_running_loop().run_in_executor(
            self._executor, copy_context().run, without_stop_iteration, self._work, parts, file
        )
        self._under_way.append(work)

    async def value(self) -> bytes:
        """The digest of all parts. Raises the error of writing them."""
        while self._under_way:
            await self._oldest()
        return self._sha256.digest()

    async def _oldest(self) -> None:
        await self._under_way[0]
        self._under_way.popleft()

    def close(self) -> None:
        """Digest and write nothing more."""
        self._is_over = True
        if self._executor is not None:
            self._executor.shutdown(wait=False)

    def _work(self, parts: Sequence[bytes], file: Writable | None) -> None:
        if self._is_over:
            return
        try:
            for part in parts:
                self._sha256.update(part)
            if file is not None:
                for part in parts:
                    if self._is_over:
                        return
                    file.write(part)
        except BaseException:
            self._is_over = True
            raise
