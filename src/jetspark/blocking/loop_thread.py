"""The thread that runs the event loop of all blocking clients of a process.

Contract
- One daemon thread, "jetspark-loop", started at the first need; its event loop is uvloop's where
  that is installed. `run` calls a coroutine function there and waits; `post` leaves a function
  there and does not wait.
- `run` from that thread itself would wait for ever: it raises ConfigError.
- A wait that is broken off (KeyboardInterrupt, or whatever a signal handler raises) returns at
  once; the coroutine is cancelled and cleans up by itself.
- A forked child has none of its parent's threads: what was made before the fork raises
  ConnectionClosedError there, and the next `current()` starts a thread of the child's own.
- At interpreter exit the clients that are still open send what waits and are closed, within
  EXIT_TIMEOUT. Daemon threads that wait at that moment, or call later, stay asleep: an exception
  in them would only print a traceback while everything ends.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, ParamSpec, TypeVar

from jetspark.errors import ConfigError, ConnectionClosedError

P = ParamSpec("P")
T = TypeVar("T")

EXIT_TIMEOUT = 3.0
"""Seconds that open connections may take to end at interpreter exit."""

LOOK_EVERY = 1.0
"""Seconds. A signal that comes when a thread is just about to wait does not end that wait: Python
sees it when the thread wakes, so it must wake now and then, or a Ctrl-C could be lost."""


class Suspended(ConfigError):
    """A call that never waits in the caller's thread had to: it came from the loop's thread."""

    def __init__(self) -> None:
        super().__init__(
            "The blocking client was used inside its own event loop's thread, which would wait "
            "for itself; use another thread, or a callback of subscribe, which has one."
        )


def forked() -> ConnectionClosedError:
    """What the use of a parent's client in a forked child raises."""
    return ConnectionClosedError(
        "This connection belongs to the parent process: after a fork, connect again."
    )


class Wait:
    """What a thread waits for: begun and ended in the loop's thread.

    A bare lock is the cheapest thing that a thread can wait for; a concurrent.futures.Future
    makes a condition, and costs two more turns of the loop.
    """

    __slots__ = ("_thread", "ended", "error", "value")

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self.ended = threading.Lock()
        self.ended.acquire()
        self.value: Any = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin; called once, in the loop's thread. It must not raise."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Nobody waits any more; called in the loop's thread, after `start`. It must not raise."""
        raise NotImplementedError

    def end(self) -> None:
        """Wake the thread that waits: there is a value or an error."""
        if not self._thread.exiting:
            self.ended.release()


class _Call(Wait):
    """A coroutine function, run as a task."""

    __slots__ = ("_begun", "_function", "_task")

    def __init__(self, thread: LoopThread, function: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(thread)
        self._function = function
        self._task: asyncio.Task[None] | None = None
        self._begun = False

    def start(self) -> None:
        self._task = self._thread.loop.create_task(self._run())
        self._thread.calls.add(self)  # the loop itself keeps only a weak reference to a task

    async def _run(self) -> None:
        self._begun = True
        try:
            self.value = await self._function()
        except asyncio.CancelledError:
            self.error = ConnectionClosedError("The call was cancelled: the event loop ends.")
        except BaseException as error:
            self.error = error
        finally:
            self._thread.calls.discard(self)
            self.end()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            if not self._begun:  # then `_run` never will
                self._thread.calls.discard(self)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """That of uvloop where it is installed: half the time for what crosses threads."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = new_event_loop()
    return loop


class LoopThread:
    """The thread and its event loop; `current()` returns it."""

    def __init__(self) -> None:
        self.loop = _new_event_loop()
        self.calls: set[_Call] = set()
        self.open: set[Callable[[], Coroutine[Any, Any, None]]] = set()
        """How to end each client that is open; called at interpreter exit."""
        self.forked = False
        self.exiting = False
        self._thread = threading.Thread(target=self._main, name="jetspark-loop", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    @property
    def is_current(self) -> bool:
        """Whether the caller is in the loop's thread."""
        return threading.get_ident() == self._thread.ident

    def post(self, function: Callable[[], object]) -> None:
        """Call it in the loop's thread, in order. It must not raise. From any thread."""
        # No flag that saves wake-ups: an interrupt between setting it and waking the loop would
        # leave every later call waiting for ever.
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:  # closed
            if not self.exiting:
                raise

    def run(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await `function(*args, **kwargs)` in the loop's thread: its value or its exception.

        The coroutine is made there, too, so that one which never starts is never made.
        """
        value: T = self.wait(_Call(self, partial(function, *args, **kwargs)))
        return value

    def wait(self, wait: Wait) -> Any:
        """Start it in the loop's thread and wait for its end: its value or its exception."""
        self.check_may_wait()
        try:
            self.post(wait.start)
            while not wait.ended.acquire(timeout=LOOK_EVERY):
                pass
        except BaseException:
            self.post(wait.cancel)
            raise
        if wait.error is not None:
            try:
                raise wait.error
            finally:
                del wait  # the traceback holds this frame: no cycle through it
        return wait.value

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, for a plain function that has to be called in the loop's thread."""

        async def plain() -> T:
            return function(*args, **kwargs)

        return self.run(plain)

    def spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        """As `run`, without waiting for the end; the function reports its own errors."""
        self.post(_Call(self, function).start)

    @property
    def is_over(self) -> bool:
        """Whether nothing can run here any more: after a fork, or at interpreter exit."""
        return self.forked or self.exiting

    def check_may_wait(self) -> None:
        """Raises Suspended in this thread itself, ConnectionClosedError when nothing runs here."""
        if self.forked:
            raise forked()
        if self.exiting:
            self.sleep_in_daemons()
            raise ConnectionClosedError("The interpreter exits: its connections are closed.")
        if self.is_current:
            raise Suspended

    # -- the end -------------------------------------------------------------------------------

    def sleep_in_daemons(self) -> None:
        """At interpreter exit, in a daemon thread: never return."""
        if self.exiting and threading.current_thread().daemon and not self.is_current:
            asleep = threading.Lock()
            asleep.acquire()
            asleep.acquire()

    def stop(self) -> None:
        """At interpreter exit: close what is open, end the thread."""
        self.exiting = True
        self.spawn(self._close_all)
        self._thread.join(EXIT_TIMEOUT + 2)

    async def _close_all(self) -> None:
        try:
            async with asyncio.timeout(EXIT_TIMEOUT):
                await asyncio.gather(*(end() for end in self.open), return_exceptions=True)
        except TimeoutError:
            pass
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=1)
        self.loop.stop()


_starting = threading.Lock()
_current: LoopThread | None = None
# Dropping a parent's loop in a child would close what the two still share.
_inherited: list[LoopThread] = []


def current() -> LoopThread:
    """The process's loop thread, started if need be."""
    global _current
    with _starting:
        if _current is None:
            _current = LoopThread()
        return _current


def _after_fork_in_child() -> None:
    global _current, _starting
    _starting = threading.Lock()  # another thread of the parent may have held it
    if _current is not None:
        _current.forked = True
        _inherited.append(_current)
        _current = None


def _at_exit() -> None:
    if _current is not None:
        _current.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
