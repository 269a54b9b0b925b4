"""An authorization callout service (ADR-26) without async: its handler runs in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from jetspark.arguments import spelt
from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.identity.callout import GeneratedAuthCallout
from jetspark.blocking.leaving import Leaving
from jetspark.blocking.worker import Worker, check_callback
from jetspark.connection.nkeys import CurveKeyPair, KeyPair
from jetspark.errors import ConfigError, shown
from jetspark.identity.callout import STOP_TIMEOUT, Grant, start_callout
from jetspark.identity.claims import AuthRequest
from jetspark.timestamps import Seconds

CalloutHandler: TypeAlias = Callable[[AuthRequest], Grant]


class AuthCallout(GeneratedAuthCallout, Leaving):
    """What `Client.auth_callout` returns; it stops when its block is left."""

    def __init__(
        self,
        caller: CallerSide,
        handler: CalloutHandler,
        signer: KeyPair,
        account: str | None,
        xkey: CurveKeyPair | None,
        servers: Iterable[str] | None,
        queue_group: str,
        concurrency: int,
    ) -> None:
        if not callable(handler):
            raise ConfigError(f"A handler is a function, not {shown(handler)}.")
        check_callback(handler)
        self._thread = caller.thread
        self._client = caller.inner
        self._handler = handler
        self._idle: list[Worker] = []
        self._workers: list[Worker] = []
        self._inner = self._thread.run(
            start_callout,
            self._client,
            self._in_a_thread,
            signer,
            account,
            xkey,
            servers,
            queue_group,
            concurrency,
        )

    async def _in_a_thread(self, request: AuthRequest) -> Grant:
        """The asyncio handler: as many threads as the service has handlers at once."""
        answer: list[Grant] = []
        worker = self._idle.pop() if self._idle else self._new()
        await worker.run(self._thread, lambda: answer.append(self._handler(request)))
        # One that was cancelled is not used again: its handler may still run.
        self._idle.append(worker)
        return answer[0]

    def _new(self) -> Worker:
        worker = Worker("jetspark-callout", self._client)
        self._workers.append(worker)
        return worker

    @spelt
    def stop(self, timeout: Seconds = STOP_TIMEOUT) -> None:
        if not self._thread.is_over:
            self._thread.run(self._inner.stop, timeout)
            for worker in self._workers:
                self._thread.post(worker.stop)

    def _finish(self) -> None:
        self.stop()
