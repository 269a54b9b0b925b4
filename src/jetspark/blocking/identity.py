"""An authorization callout service (ADR-26) without async: its handler runs in threads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.twin import Block, Read, Twin, awaits, twin_of
from jetspark.blocking.worker import WorkerPool, plain_callback
from jetspark.identity.callout import STOP_TIMEOUT, CalloutStats, Grant
from jetspark.identity.callout import AuthCallout as AsyncAuthCallout
from jetspark.identity.claims import AuthRequest
from jetspark.timestamps import Seconds

__all__ = ["AuthCallout"]

CalloutHandler: TypeAlias = Callable[[AuthRequest], Grant]


@twin_of(AsyncAuthCallout)
class AuthCallout(Twin, Block):
    _inner: AsyncAuthCallout
    stats = Read[CalloutStats]()
    wait_stopped = awaits(AsyncAuthCallout.wait_stopped)

    def __init__(
        self,
        caller: CallerSide,
        begin: Callable[[Any], Coroutine[Any, Any, AsyncAuthCallout]],
        handler: CalloutHandler,
    ) -> None:
        self._handler = plain_callback(handler)
        self._thread = caller.thread
        self._workers = WorkerPool("jetspark-callout", caller.inner)
        inner = caller.thread.opened(AsyncAuthCallout.stop, partial(begin, self._in_a_thread))
        super().__init__(caller, inner)

    async def _in_a_thread(self, request: AuthRequest) -> Grant:
        """The asyncio handler, with as many threads as the service has handlers at once."""
        answer: list[Grant] = []
        await self._workers.run(self._thread, lambda: answer.append(self._handler(request)))
        return answer[0]

    def stop(self, timeout: Seconds = STOP_TIMEOUT) -> None:
        """Answer no more requests, and end.

        Handlers still running after `timeout` seconds finish, but their users are refused. See
        `jetspark.identity.AuthCallout.stop`.
        """
        self._thread.leave(None, self._stop, timeout)

    async def _stop(self, timeout: Seconds) -> None:
        await self._inner.stop(timeout)
        self._workers.stop()

    async def _leave(self, *_: object) -> None:
        await self._stop(STOP_TIMEOUT)
