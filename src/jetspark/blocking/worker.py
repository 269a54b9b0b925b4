"""A thread for user code: callbacks may block and call the blocking client.

Contract: started by the first `post`, daemon, calls one function after the other in their order
until `stop`; what is posted later is dropped. What a posted function raises is logged, and the next
one comes: SystemExit too, which would end the thread in silence, and everything that waits for it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from jetspark.blocking.loop_thread import LoopThread
from jetspark.errors import ConfigError

logger = logging.getLogger("jetspark")


def check_callback(callback: Callable[..., object] | None) -> None:
    """Raises ConfigError for no function, and for an async one: nobody would await it."""
    if callback is not None and not callable(callback):
        raise ConfigError(f"A callback is a function, not {callback!r:.80}.")
    called = type(callback).__call__ if callable(callback) else None  # of an object
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(called):
        raise ConfigError("The blocking client calls plain functions, not async ones.")


_here = threading.local()


def in_callback_of(client: object) -> bool:
    """Whether the caller is in a callback that gets what came for this (asyncio) client."""
    return getattr(_here, "client", None) is client


class Worker:
    """`post` and `stop` come from one thread, the event loop's. `client`: whose messages come."""

    def __init__(self, name: str, client: object = None) -> None:
        self._name = name
        self._client = client
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        """Whether the caller is in this thread."""
        return threading.current_thread() is self._thread

    def post(self, call: Callable[[], object]) -> None:
        """Call it after what was posted before."""
        if self._thread is None:
            thread = threading.Thread(target=self._main, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # From 3.12 on none is started at interpreter exit, when nobody would run it.
                if threading.main_thread().is_alive():
                    raise
                return
            self._thread = thread
        self._calls.put(call)

    async def run(self, thread: LoopThread, call: Callable[[], object]) -> None:
        """As `post`, from `thread`'s loop; waits for the call's end and raises what it raises."""
        done: asyncio.Future[Exception | None] = thread.loop.create_future()

        def call_and_tell() -> None:
            raised: Exception | None = None
            try:
                call()
            except Exception as error:
                raised = error
            except BaseException as error:  # in a task it would end the event loop
                raised = RuntimeError(f"{type(error).__name__} {error}".rstrip())
                raised.__cause__ = error
            finally:
                thread.post(partial(_set, done, raised))

        self.post(call_and_tell)
        # Not the future's exception: a StopIteration can be none.
        if (error := await done) is not None:
            raise error

    def stop(self) -> None:
        """End the thread after what was posted."""
        self._calls.put(None)

    def _main(self) -> None:
        _here.client = self._client or self
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException:
                logger.exception("A callback raised")
            finally:
                del call  # nothing is kept alive while waiting


def _set(done: asyncio.Future[Exception | None], raised: Exception | None) -> None:
    if not done.done():
        done.set_result(raised)
