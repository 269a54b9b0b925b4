"""An authorization callout service: servers ask it whether a user may log in (ADR-26).

Contract
- A request that is malformed, forged, not encrypted or for somebody else reaches no handler: it is
  refused at once, counted as invalid, and reported.
- Only what the handler returns as a Grant lets a user in. A refusal, any exception, any other
  result, and a handler that is cancelled do not.
- Instances share the requests by a queue group. Up to `concurrency` handlers run at once; what
  comes meanwhile waits, and its server refuses it when its own time for logins is over.
- `stop` takes no more requests, and lets the handlers finish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from jetspark.arguments import checked
from jetspark.client.background import background
from jetspark.errors import (
    CalloutRefusal,
    ConfigError,
    ConnectionClosedError,
    JetsparkError,
    JWTError,
    shown,
    user_error,
)
from jetspark.identity.claims import AuthRequest
from jetspark.identity.exchange import CALLOUT_SUBJECT, Exchange, Grant
from jetspark.timestamps import Seconds, in_seconds

if TYPE_CHECKING:
    from types import TracebackType

    from jetspark.client.client import Client
    from jetspark.client.messages import Message

CalloutHandler: TypeAlias = Callable[[AuthRequest], Awaitable[Grant] | Grant]
STOP_TIMEOUT: Final = 30.0
QUEUE_GROUP: Final = "auth-callout"
CONCURRENCY: Final = 20


@dataclass(slots=True)
class CalloutStats:
    """What a callout service has done."""

    granted: int = 0
    refused: int = 0
    """By the handler."""
    failed: int = 0
    """Refused, since the handler raised something else, or granted what cannot work."""
    invalid: int = 0
    """Refused unread: not a request of a server to this service."""


@checked
class AuthCallout:
    """What `Client.auth_callout` returns; it stops when its block is left."""

    def __init__(
        self,
        client: Client,
        handler: Callable[[AuthRequest], Any],
        exchange: Exchange,
        queue_group: str,
        concurrency: int,
    ) -> None:
        if concurrency < 1:
            raise ConfigError("concurrency is at least 1.")
        self._client = client
        self._handler = handler
        self._exchange = exchange
        self._slots = asyncio.Semaphore(concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stats = CalloutStats()
        self._error: JetsparkError | None = None
        self._sub = client.subscribe(CALLOUT_SUBJECT, queue=queue_group)
        self._serving = background(
            self._serve(), "An authorization callout", self._failed, name="jetspark-callout"
        )

    @property
    def stats(self) -> CalloutStats:
        """What it has done so far."""
        return self._stats

    async def begin(self) -> None:
        """Returns when the server knows it; otherwise raises, and it has ended."""
        try:
            await self._client.flush()
            if self._error is not None:
                raise self._error
        except BaseException:
            self._serving.cancel()
            self._sub.unsubscribe()
            raise

    async def _serve(self) -> None:
        async for msg in self._sub:
            await self._slots.acquire()
            task = self._client.loop.create_task(self._handle(msg), name="jetspark-callout")
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._client.report(user_error("Answering a login", error))

    def _failed(self, error: JetsparkError) -> None:
        self._error = error
        self._client.report(error)

    async def _handle(self, msg: Message) -> None:
        if msg.reply is None:
            self._stats.invalid += 1
            return
        try:
            request = self._exchange.read(msg.data, msg.headers)
        except JWTError as error:
            self._stats.invalid += 1
            self._client.report(error)
            await msg.respond(b"")  # to a server: not authorized
            return
        await msg.respond(await self._decided(request))

    async def _decided(self, request: AuthRequest) -> bytes:
        try:
            grant = self._handler(request)
            if isinstance(grant, Awaitable):
                grant = await grant
            if not isinstance(grant, Grant):
                raise ConfigError(f"A handler returns a Grant or raises, not {shown(grant)}.")
            answer = self._exchange.granted(request, grant)
        except CalloutRefusal as refusal:
            self._stats.refused += 1
            return self._exchange.refused(request, refusal.reason)
        except Exception as error:
            # Not its text, which may hold secrets of the login.
            self._stats.failed += 1
            self._client.report(user_error("The handler of an authorization callout", error))
            return self._exchange.refused(request, "the login could not be decided")
        self._stats.granted += 1
        return answer

    # -- ending ----------------------------------------------------------------------------------

    async def wait_stopped(self) -> None:
        """Return when it has ended by `stop`, or raise what ended it otherwise."""
        await asyncio.wait([self._serving])
        if self._error is not None:
            raise self._error

    async def stop(self, timeout: Seconds = STOP_TIMEOUT) -> None:
        """Take no more requests, and return when the handlers have finished.

        Those that take longer than `timeout` seconds are cancelled; their users are not let in.
        """
        if self._sub.active:
            with suppress(ConnectionClosedError):  # nothing comes over a link that is lost
                await self._sub.drain(timeout)
        await asyncio.wait([self._serving], timeout=in_seconds(timeout))
        if self._tasks:
            _, left = await asyncio.wait(set(self._tasks), timeout=in_seconds(timeout))
            for task in left:
                task.cancel()
        with suppress(ConnectionClosedError):
            await self._client.rtt()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"AuthCallout({self._exchange.issuer!r}, {self._stats})"
