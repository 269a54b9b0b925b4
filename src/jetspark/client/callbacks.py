"""Calling the user's callbacks.

Contract: whatever a callback raises is reported and not raised, so the next call can follow. That
includes a CancelledError of another task that it awaited, and GeneratorExit. Raised are only the
cancellation of the calling task and the closing of its coroutine, and, after being reported,
SystemExit and KeyboardInterrupt: they are meant for the event loop, which ends.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from jetspark.errors import ConfigError, JetsparkError, user_error

T = TypeVar("T")


def check_no_callback(callback: object) -> None:
    """Raises ConfigError for iterating, or calling `next`, when there is a callback."""
    if callback is not None:
        raise ConfigError(
            "The callback receives every item: to iterate or to call next(), give no callback."
        )


class Callback(Generic[T]):
    """Use: `if (rest := callback.call(value)) is not None: await rest`.

    So a plain function costs no coroutine.
    """

    __slots__ = ("_function", "_report", "_what")

    def __init__(
        self,
        function: Callable[[T], Awaitable[None] | None],
        what: str,
        report: Callable[[JetsparkError], None],
    ) -> None:
        """`what`: the beginning of the report, such as "The callback of …"."""
        self._function = function
        self._what = what
        self._report = report

    def call(self, value: T) -> Awaitable[None] | None:
        """Call it; returns what remains to be awaited, which a task has to do at once."""
        try:
            result = self._function(value)
        except BaseException as error:
            self._raised(error)
            return None
        if result is None or not inspect.isawaitable(result):
            return None
        return self._rest(result)

    def watch(self, begins: Callable[[], bool]) -> None:
        """Call `begins` before each call, until it returns False."""
        function = self._function

        def watched(value: T) -> Awaitable[None] | None:
            if not begins():
                self._function = function
            return function(value)

        self._function = watched

    async def _rest(self, result: Awaitable[None]) -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        try:
            await result
        except asyncio.CancelledError as error:
            if task is None or task.cancelling():
                raise
            self._raised(error)
        except GeneratorExit as error:
            if asyncio.current_task(loop) is not task:
                raise  # the coroutine is being closed
            self._raised(error)
        except BaseException as error:
            self._raised(error)

    def _raised(self, error: BaseException) -> None:
        self._report(user_error(self._what, error))
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error
