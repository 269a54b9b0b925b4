"""Electing a leader among clients: whoever holds the lock leads (`jetspark.kv.lock`).

Contract
- Entering it makes this client a candidate; leaving it ends that, and lets another one lead.
- The states come in order: first the one at the start, which does not lead, then each change. A
  leader that loses the lock becomes a candidate again; its next token is greater.
- `leading` and `token` are right at any moment, also while a state waits to be taken.
- A callback is called with one state after the other. While it runs for a lost leadership, this
  client is no candidate: so it cannot lead twice at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from jetspark.arguments import checked
from jetspark.client.background import background
from jetspark.client.callbacks import Callback, check_no_callback
from jetspark.client.leaving import cancelled
from jetspark.errors import (
    BadSubscriptionError,
    BadTimeoutError,
    ConfigError,
    JetsparkError,
    LockLostError,
    RequestTimeoutError,
)
from jetspark.kv.lock import Lock
from jetspark.kv.lock_key import LockRecord
from jetspark.timestamps import Seconds, in_seconds

if TYPE_CHECKING:
    from jetspark.jetstream.context import JetStreamContext


class ElectionState(NamedTuple):
    """What a candidate is."""

    leading: bool
    """Whether it leads."""
    token: int | None
    """The fencing token of this leadership; None when it does not lead."""


StateCallback: TypeAlias = Callable[[ElectionState], Awaitable[None] | None]


@checked
class Election:
    """A candidate, as returned by `Bucket.election`: enter it, then iterate its states."""

    def __init__(self, js: JetStreamContext, lock: Lock, callback: StateCallback | None) -> None:
        self._js = js
        self._lock = lock
        what = f"The callback of election {lock.key!r}"
        self._callback = None if callback is None else Callback(callback, what, js.client.report)
        self._states: deque[ElectionState] = deque()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: JetsparkError | None = None
        self._left = False

    @property
    def key(self) -> str:
        """The key that has the leader's record."""
        return self._lock.key

    @property
    def leading(self) -> bool:
        """Whether this client leads at this moment."""
        return self._lock.held

    @property
    def token(self) -> int:
        """The fencing token of this leadership, to be given to what the leader changes.

        Raises LockLostError when the leadership is lost, ConfigError when there was none.
        """
        return self._lock.token

    @property
    def error(self) -> JetsparkError | None:
        """Why it is no candidate any more; None while it is one, and after its end."""
        return self._error

    async def leader(self) -> LockRecord | None:
        """Who leads, from the bucket's leader; None: nobody. Raises as `Lock.owner`."""
        return await self._lock.owner()

    # -- states --------------------------------------------------------------------------------

    async def next(self, timeout: Seconds | None = None) -> ElectionState:
        """The next state, as when iterating; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError after its end, ConfigError when there is a
        callback, and `error`.
        """
        seconds = in_seconds(timeout)
        if seconds is not None and seconds < 0:
            raise BadTimeoutError(seconds)
        try:
            async with asyncio.timeout(None if self._states else seconds):
                return await self.__anext__()
        except StopAsyncIteration:
            raise BadSubscriptionError("The election has ended for this client.") from None
        except JetsparkError:
            raise  # some are a TimeoutError too
        except TimeoutError:
            raise RequestTimeoutError(
                f"Nothing changed in election {self.key!r} within {seconds:g} s."
            ) from None

    def __aiter__(self) -> AsyncIterator[ElectionState]:
        return self

    async def __anext__(self) -> ElectionState:
        check_no_callback(self._callback)
        if self._task is None:
            raise ConfigError("Enter the election first: `async with bucket.election(…)`.")
        while not self._states:
            if self._error is not None:
                raise self._error
            if self._left:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._states.popleft()

    async def _tell(self, token: int | None) -> None:
        state = ElectionState(token is not None, token)
        if self._callback is None:
            self._states.append(state)
            self._news.set()
        elif (rest := self._callback.call(state)) is not None:
            await rest

    # -- the campaign --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise ConfigError("An election can be entered only once.")
        self._task = background(
            self._campaign(),
            f"Election {self.key!r}",
            self._broken,
            name=f"jetspark-election-{self.key}",
        )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.resign()
        except JetsparkError as error:
            if exc is None:
                raise
            self._js.client.report(error)

    async def resign(self) -> None:
        """End the candidacy, and let another one lead. Raises as `Lock.release`."""
        self._left = True
        if (task := cancelled(self._task)) is not None:
            await asyncio.wait({task})
        self._news.set()
        if self._lock.held:
            await self._lock.release()

    async def _campaign(self) -> None:
        await self._tell(None)
        while not self._left:
            try:
                token = await self._lock.acquire()
            except LockLostError:  # this process stood still
                continue
            await self._tell(token)
            await self._lock.wait_lost()
            await self._tell(None)

    def _broken(self, error: JetsparkError) -> None:
        self._error = error
        self._js.client.report(error)
        self._news.set()

    def __repr__(self) -> str:
        return f"Election({self.key!r}, {'leading' if self.leading else 'not leading'})"
