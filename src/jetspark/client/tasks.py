"""Tasks and threads of the client: in the background, and for a limited time.

An unexpected exception of a background task goes to `on_error`. Otherwise asyncio would report it
when the task is garbage-collected, and a reader would wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from jetspark.connection.waiting import start_task as start_task
from jetspark.errors import BadTimeoutError, JetsparkError, RequestTimeoutError, user_error
from jetspark.timestamps import Seconds, in_seconds

T = TypeVar("T")

_LOOP_ENDS_WITHIN = 0.1
"""Seconds in which `asyncio.run`, which cancels all tasks, ends the loop."""


@asynccontextmanager
async def yielding() -> AsyncIterator[None]:
    """Around a wait that may raise at once: other tasks run before the error is raised.

    A caller who waits again and again would freeze the event loop otherwise.
    """
    try:
        yield
    except (JetsparkError, StopAsyncIteration):
        await asyncio.sleep(0)
        raise


@asynccontextmanager
async def move_on_after(seconds: float | None) -> AsyncIterator[None]:
    """Cancel the block after `seconds` (None: never) and continue behind it.

    Errors of the block pass, even those that are a TimeoutError, such as RequestTimeoutError.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except JetsparkError:
        raise
    except TimeoutError:
        if not limit.expired():
            raise


async def next_within(
    take: Callable[[], Awaitable[T]],
    timeout: Seconds | None,
    over: Callable[[], JetsparkError],
    late: str,
) -> T:
    """The result of `take`, an `__anext__`, within `timeout` seconds; None: without limit.

    Raises the error of `over` after the last item, BadTimeoutError and, when it is `late`, which
    begins the sentence, RequestTimeoutError.
    """
    seconds = in_seconds(timeout)
    if seconds is not None and seconds < 0:
        raise BadTimeoutError(seconds)
    try:
        async with move_on_after(seconds):
            return await take()
    except StopAsyncIteration:
        raise over() from None
    raise RequestTimeoutError(f"{late} within {seconds:g} s.")


async def reported(work: Awaitable[None], report: Callable[[JetsparkError], None]) -> None:
    """Await work for which nobody waits, and report its error."""
    try:
        await work
    except JetsparkError as error:
        report(error)


async def seen_through(
    work: Coroutine[Any, Any, T], label: str, on_error: Callable[[JetsparkError], None]
) -> T:
    """Await work that goes on when the caller is cancelled: what is being left is left.

    Then its error goes to `on_error`, see `background`.
    """
    task = start_task(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        background(_end_of(task), label, on_error)
        raise
    return task.result()


async def _end_of(task: asyncio.Task[Any]) -> None:
    await task


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """`asyncio.to_thread` for functions that may call user code."""
    return await asyncio.to_thread(without_stop_iteration, function, *args)


def without_stop_iteration(function: Callable[..., T], *args: Any) -> T:
    """Its result. A StopIteration, which a future refuses, becomes a RuntimeError."""
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError("StopIteration was raised in a thread.") from error


def background(
    work: Coroutine[Any, Any, None],
    label: str,
    on_error: Callable[[JetsparkError], None],
    *,
    name: str | None = None,
    should_run: Callable[[], bool] | None = None,
) -> asyncio.Task[None]:
    """Start the task. `label`: the beginning of the error, such as "An ordered consumer of …".

    `should_run`: whether it should still run. If so, its cancellation is an error, too: user code
    that ran in it may have cancelled it.
    """
    loop = asyncio.get_running_loop()

    def on_done(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            if should_run is not None and should_run():
                loop.call_later(_LOOP_ENDS_WITHIN, was_cancelled)
        elif isinstance(error := task.exception(), Exception):
            on_error(error if isinstance(error, JetsparkError) else user_error(label, error))

    def was_cancelled() -> None:
        if should_run is not None and should_run():
            on_error(user_error(label, asyncio.CancelledError("its task was cancelled")))

    task = start_task(work, name=name)
    task.add_done_callback(on_done)
    return task
