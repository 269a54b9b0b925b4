"""The thread that runs the event loop of all blocking clients of a process.

Contract
- One daemon thread, "jetspark-loop", started when it is first needed; its event loop is uvloop's
  where that is installed. `run` awaits a coroutine function there and returns its result; `post`
  schedules a plain function and does not wait.
- `run` in the loop's own thread, which would deadlock, raises ConfigError.
- An interrupted wait (KeyboardInterrupt, or a signal handler's exception) returns at once; the
  coroutine is cancelled and cleans up in the loop.
- Nobody gets what an interrupted call has opened, so it is closed in the loop: `enter` takes both
  functions. An interrupt may come when the call has ended and its thread has not woken up yet.
- What leaves a block (`leave`) goes on after an interrupt of the wait, and in a block that an
  interrupt left. The interrupt waits at most LEAVE_TIMEOUT for it, since the server may not answer.
- A forked child does not have the thread. Objects made before the fork raise ConnectionClosedError
  there, and the next `current()` starts a new thread.
- At interpreter exit the open clients send their buffers and close, within EXIT_TIMEOUT. Daemon
  threads that wait at that moment, or call later, sleep for ever, since an exception would only
  print a traceback during the exit.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, ParamSpec, TypeVar

from jetspark.connection.locks import LOOK_EVERY, new_lock
from jetspark.errors import ConfigError, ConnectionClosedError, JetsparkError

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("jetspark")

EXIT_TIMEOUT = 3.0
"""Seconds for open clients to close at interpreter exit."""

LEAVE_TIMEOUT = 0.5
"""Seconds that an interrupt waits for the clean-up, which then continues in the loop."""


class Suspended(ConfigError):
    """A blocking call was made in the event loop's own thread, where it would deadlock."""

    def __init__(self) -> None:
        super().__init__(
            "The blocking client was called in its own event loop's thread, where it would "
            "deadlock; call it in another thread, or in a callback of subscribe, which has one."
        )


def forked() -> ConnectionClosedError:
    """The error for using a parent's client in a forked child."""
    return ConnectionClosedError(
        "This connection belongs to the parent process: after a fork, connect again."
    )


class Wait:
    """An operation that runs in the loop's thread while the calling thread waits for its end.

    A lock is the cheapest way to wait; a concurrent.futures.Future creates a condition, and costs
    two more loop iterations.
    """

    __slots__ = ("_thread", "ended", "error", "value")

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self.ended = threading.Lock()
        self.ended.acquire()
        self.value: Any = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start the operation; called once, in the loop's thread. Must not raise."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Handle the caller's interrupt, after `start`, in the loop's thread. Must not raise."""
        raise NotImplementedError

    def end(self) -> None:
        """Wake the waiting thread; `value` or `error` is set."""
        if not self._thread.exiting:
            self.ended.release()


class _Call(Wait):
    """A coroutine function that runs as a task."""

    __slots__ = ("_function", "_has_begun", "_task")

    def __init__(self, thread: LoopThread, function: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(thread)
        self._function = function
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False

    def start(self) -> None:
        self._task = self._thread.loop.create_task(self._run())
        self._thread.calls.add(self)  # the loop itself keeps only a weak reference to a task

    async def _run(self) -> None:
        self._has_begun = True
        try:
            self.value = await self._function()
        except asyncio.CancelledError:
            self.error = ConnectionClosedError(
                "The call was cancelled: the event loop is stopping."
            )
        except BaseException as error:
            self.error = error
        finally:
            self._thread.calls.discard(self)
            # Freed here: asyncio runs Python code to forget a freed task, and there, in the
            # caller's thread, it would swallow an interrupt.
            self._task = None
            self.end()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            if not self._has_begun:  # otherwise `_run` never will
                self._thread.calls.discard(self)


class _Entering(_Call):
    """One that opens something: after an interrupt, `close` follows it."""

    __slots__ = ("_close", "_is_wanted")

    def __init__(
        self, thread: LoopThread, function: Callable[[], object], close: Callable[[], object]
    ) -> None:
        super().__init__(thread, partial(_result, function))
        self._close = close
        self._is_wanted = True

    def cancel(self) -> None:
        if not self._is_wanted:
            return
        self._is_wanted = False
        entering = self._task
        super().cancel()
        self._thread.post(_Leaving(self._thread, partial(self._undo, entering)).cancel)

    async def _undo(self, entering: asyncio.Task[None] | None) -> None:
        if entering is not None:
            await asyncio.wait({entering})
        await _result(self._close)


class _Leaving(_Call):
    """One that closes something: after an interrupt it goes on, and its failure is logged."""

    __slots__ = ("_is_heard", "over")

    def __init__(self, thread: LoopThread, function: Callable[[], object]) -> None:
        super().__init__(thread, partial(_result, function))
        self._is_heard = True
        self.over = False

    def cancel(self) -> None:
        if not self._is_heard:
            return
        self._is_heard = False
        if self.over:
            self._log()
        elif self._task is None:  # the interrupt came before it was started
            self.start()

    def end(self) -> None:
        self.over = True
        if not self._is_heard:
            self._log()
        super().end()

    def _log(self) -> None:
        if self.error is not None:
            logger.warning("Cleaning up after an interrupt: %s", self.error)


async def _result(function: Callable[[], object]) -> Any:
    """The result of a plain function, or of a coroutine function."""
    result = function()
    return await result if isinstance(result, Awaitable) else result


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where installed: it passes calls between threads in half the time."""
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
        """One function for each open client, which closes it at interpreter exit."""
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
        """Whether the calling thread is the loop's."""
        return threading.get_ident() == self._thread.ident

    def post(self, function: Callable[[], object]) -> None:
        """Schedule a call in the loop's thread, in order, from any thread. It must not raise."""
        # No flag to save wake-ups: an interrupt between setting it and waking the loop would make
        # all later calls wait for ever.
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:  # closed
            if not self.exiting:
                raise

    def run(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await `function(*args, **kwargs)` in the loop's thread, and return its result.

        The coroutine is created there too, so that none is left un-awaited if the call never
        starts.
        """
        value: T = self.wait(_Call(self, partial(function, *args, **kwargs)))
        return value

    def wait(self, wait: Wait) -> Any:
        """Start an operation in the loop's thread, wait, return its value or raise its error."""
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
                del wait  # to avoid a cycle, since the traceback refers to this frame
        return wait.value

    def enter(self, open: Callable[[], object], close: Callable[[], object]) -> None:
        """Call `open` in the loop's thread, and wait for it.

        After an interrupt `close` follows it, in the background, however far `open` came.
        """
        entering: _Entering | None = None
        try:
            entering = _Entering(self, open, close)
            self.wait(entering)
        except JetsparkError:
            raise
        except BaseException:
            self.post((entering or _Entering(self, open, close)).cancel)
            raise
        finally:
            del entering  # as in `wait`

    def opened(self, close: Callable[[T], object], open: Callable[[], Awaitable[T]]) -> T:
        """`run` for a function that returns what `close` closes after an interrupt."""
        opened: list[T] = []

        async def make() -> None:
            opened.append(await open())

        async def unmake() -> None:
            for result in opened:
                await _result(partial(close, result))

        self.enter(make, unmake)
        return opened[0]

    def leave(
        self,
        error: BaseException | None,
        function: Callable[P, object],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Call `function` in the loop's thread, for the end of a block that `error` left.

        If an interrupt (not an Exception) left it, or comes now, the function goes on in the
        background after LEAVE_TIMEOUT, and its failure is only logged, so that the interrupt is
        raised. When `is_over`, there is nothing to leave.
        """
        leaving: _Leaving | None = None
        try:
            if self.is_over:
                self.sleep_in_daemons()
                return
            leaving = _Leaving(self, partial(function, *args, **kwargs))
            if error is None or isinstance(error, Exception):
                self.wait(leaving)
            else:
                self.check_may_wait()
                self.post(leaving.cancel)
                leaving.ended.acquire(timeout=LEAVE_TIMEOUT)
        except JetsparkError:
            raise
        except BaseException:
            leaving = leaving or _Leaving(self, partial(function, *args, **kwargs))
            self.post(leaving.cancel)
            if not leaving.over:
                leaving.ended.acquire(timeout=LEAVE_TIMEOUT)
            raise
        finally:
            del leaving  # as in `wait`

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`run` for a plain function."""

        async def plain() -> T:
            return function(*args, **kwargs)

        return self.run(plain)

    def spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        """`run` without waiting; the function must report its errors itself."""
        self.post(_Call(self, function).start)

    @property
    def is_over(self) -> bool:
        """Whether calls can no longer run: after a fork, or at interpreter exit."""
        return self.forked or self.exiting

    def check_may_wait(self) -> None:
        """Raise Suspended in the loop's thread, ConnectionClosedError when `is_over`."""
        if self.forked:
            raise forked()
        if self.exiting:
            self.sleep_in_daemons()
            raise ConnectionClosedError("The interpreter exits: its connections are closed.")
        if self.is_current:
            raise Suspended

    # -- the end -------------------------------------------------------------------------------

    def sleep_in_daemons(self) -> None:
        """Never return in a daemon thread at interpreter exit."""
        if self.exiting and threading.current_thread().daemon and not self.is_current:
            asleep = threading.Lock()
            asleep.acquire()
            asleep.acquire()

    def stop(self) -> None:
        """At interpreter exit: close the open clients and end the thread."""
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


_starting = new_lock()
_current: LoopThread | None = None
# Kept alive, since collecting a parent's loop in a child would close shared file descriptors.
_inherited: list[LoopThread] = []


def current() -> LoopThread:
    """The process's loop thread, started if needed."""
    global _current
    with _starting:
        if _current is None:
            _current = LoopThread()
        return _current


def _after_fork_in_child() -> None:
    global _current, _starting
    _starting = new_lock()  # another thread of the parent may have held the lock
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
