"""Tasks and threads of the client: in the background, and for a limited time.

An unexpected exception of a background task goes to `on_error`. Otherwise asyncio would report it
when the task is garbage-collected, and a reader would wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from jetspark.errors import JetsparkError, user_error

T = TypeVar("T")


@asynccontextmanager
async def move_on_after(seconds: float | None) -> AsyncIterator[None]:
    """Cancel the block after `seconds` (None: never) and continue behind it.

    Errors of the block pass, even those that are a TimeoutError, such as ConnectionLostError.
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


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """`asyncio.to_thread` for functions that may call user code.

    A StopIteration, which a future refuses, becomes a RuntimeError, as in a generator.
    """
    return await asyncio.to_thread(_without_stop_iteration, function, *args)


def _without_stop_iteration(function: Callable[..., T], *args: Any) -> T:
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError("StopIteration was raised in a thread.") from error


def background(
    work: Coroutine[Any, Any, None],
    what: str,
    on_error: Callable[[JetsparkError], None],
    *,
    name: str | None = None,
) -> asyncio.Task[None]:
    """Start the task. `what`: the beginning of the error, such as "An ordered consumer of …"."""

    def done(task: asyncio.Task[None]) -> None:
        if task.cancelled() or not isinstance(error := task.exception(), Exception):
            return
        on_error(error if isinstance(error, JetsparkError) else user_error(what, error))

    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(done)
    return task
