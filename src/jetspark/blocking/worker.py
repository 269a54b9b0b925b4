"""A thread for callbacks, which may block and use the blocking client.

Contract: a daemon thread, started by the first `post`, calls the posted functions in order until
`stop`; later ones are dropped. An exception of a function is logged, and the next function follows.
That includes SystemExit, which would end the thread silently and leave others waiting for it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from jetspark.blocking.loop_thread import LoopThread
from jetspark.client.callbacks import is_generator
from jetspark.errors import ConfigError, safe_repr

logger = logging.getLogger("jetspark")

T = TypeVar("T")


_KINDS = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


def plain_callback(callback: Callable[..., T]) -> Callable[..., T]:
    """The function to call in place of a user's callback, handler or `progress`.

    Raises ConfigError for an async function or a generator function, whose body nothing would run.
    Where only the result shows it, as for a lambda or a decorated function, the call raises it.
    """
    called = type(callback).__call__  # a callable object's
    if any(kind(function) for kind in _KINDS for function in (callback, called)):
        raise ConfigError(_NOT_PLAIN)

    def call(*args: Any) -> T:
        result = callback(*args)
        if result is not None and (inspect.isawaitable(result) or is_generator(result)):
            if inspect.iscoroutine(result):
                result.close()  # Python would warn that it was never awaited
            raise ConfigError(f"{_NOT_PLAIN} This one returned {safe_repr(result)}.")
        return result

    return call


_NOT_PLAIN = "The blocking client calls plain functions, not async ones or generators."


_current = threading.local()


def in_callback_of(client: object) -> bool:
    """Whether the calling thread runs a callback of this (asyncio) client."""
    return getattr(_current, "client", None) is client


class Worker:
    """`post` and `stop` are for the event loop's thread. `client`: the asyncio client."""

    def __init__(self, name: str, client: object = None) -> None:
        self._name = name
        self._client = client
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is this one."""
        return threading.current_thread() is self._thread

    def post(self, call: Callable[[], object]) -> None:
        """Call it after the functions posted earlier."""
        if self._thread is None:
            thread = threading.Thread(target=self._main, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # From Python 3.12 on no thread can be started at interpreter exit.
                if threading.main_thread().is_alive():
                    raise
                return
            self._thread = thread
        self._calls.put(call)

    async def run(self, thread: LoopThread, call: Callable[[], object]) -> None:
        """`post` in `thread`'s loop, and wait until the call ended; raises its exception."""
        ended: asyncio.Future[Exception | None] = thread.loop.create_future()

        def call_and_tell() -> None:
            raised: Exception | None = None
            try:
                call()
            except Exception as error:
                raised = error
            except BaseException as error:  # in a task it would stop the event loop
                raised = RuntimeError(f"{type(error).__name__} {error}".rstrip())
                raised.__cause__ = error
            finally:
                thread.post(partial(_set, ended, raised))

        self.post(call_and_tell)
        # A future's exception cannot be a StopIteration.
        if (error := await ended) is not None:
            raise error

    def stop(self) -> None:
        """End the thread after the posted functions."""
        self._calls.put(None)

    def _main(self) -> None:
        _current.client = self._client or self
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException:
                logger.exception("A callback raised")
            finally:
                del call  # keeps nothing alive while waiting


class WorkerPool:
    """Workers for calls that run at once, used in the event loop's thread."""

    def __init__(self, name: str, client: object) -> None:
        self._name = name
        self._client = client
        self._all: list[Worker] = []
        self._idle: list[Worker] = []

    async def run(self, thread: LoopThread, call: Callable[[], object]) -> None:
        """See `Worker.run`."""
        if not self._idle:
            self._idle.append(Worker(self._name, self._client))
            self._all.append(self._idle[-1])
        worker = self._idle.pop()
        try:
            await worker.run(thread, call)
        except Exception:
            self._idle.append(worker)
            raise
        # A cancelled worker is not used again, since its call may still run.
        self._idle.append(worker)

    def stop(self) -> None:
        """End the threads after their calls."""
        for worker in self._all:
            worker.stop()


def _set(future: asyncio.Future[Exception | None], raised: Exception | None) -> None:
    if not future.done():
        future.set_result(raised)
