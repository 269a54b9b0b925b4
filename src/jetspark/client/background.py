"""Background tasks and threads whose unexpected exceptions reach the waiting caller.

Contract: an exception that the task does not handle goes to `on_error` as a JetsparkError.
Otherwise asyncio reports it only when the task is garbage-collected, and a reader waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from jetspark.errors import JetsparkError, user_error

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """`asyncio.to_thread` for functions that may call user code.

    A future does not accept a StopIteration, and its caller would wait for ever, so it becomes a
    RuntimeError, as in a generator.
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
