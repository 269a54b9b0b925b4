"""The bases of all blocking classes: each holds an asyncio object, its twin.

The twin's calls run in the event loop's thread. Generated classes have the same calls; what is more
than a call is written by hand, in the class that they inherit.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

from jetspark.blocking.caller_side import CallerSide


class Twin:
    """A blocking object over an asyncio one."""

    def __init__(self, caller: CallerSide, inner: Any) -> None:
        self._caller = caller
        self._thread = caller.thread
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)


class Block:
    """A context manager that calls `_finish` at the end of its block."""

    __slots__ = ()

    def _finish(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()


class AsyncBlock(Twin):
    """A context manager that runs the asyncio object's `async with`."""

    _inner: AbstractAsyncContextManager[Any]

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.leave(exc, self._inner.__aexit__, exc_type, exc, traceback)
