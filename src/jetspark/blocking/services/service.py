"""A service (ADR-32) without async: its handlers run in threads."""

from __future__ import annotations

from jetspark.arguments import spelt
from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.services.service import GeneratedService
from jetspark.blocking.leaving import Leaving
from jetspark.blocking.services.endpoint_calls import EndpointCalls
from jetspark.blocking.services.handling import endpoint_here
from jetspark.errors import JetsparkError
from jetspark.services.service import STOP_TIMEOUT
from jetspark.services.service import Service as AsyncService
from jetspark.timestamps import Seconds


class Service(GeneratedService, EndpointCalls, Leaving):
    """One instance of a service; made by `Client.add_service`.

    `with` stops it when the block is left.
    """

    def __init__(self, caller: CallerSide, inner: AsyncService) -> None:
        EndpointCalls.__init__(self, caller, inner)
        self._inner: AsyncService = inner

    @spelt
    def stop(self, timeout: Seconds = STOP_TIMEOUT) -> None:
        if endpoint_here() in self._inner.running.endpoints:
            self._thread.spawn(lambda: self._stop_alone(timeout))
        elif not self._thread.is_over:
            self._thread.run(self._inner.stop, timeout)

    async def _stop_alone(self, timeout: Seconds) -> None:
        try:
            await self._inner.stop(timeout)
        except JetsparkError as error:
            self._caller.inner.report(error)

    def _finish(self) -> None:
        self.stop()
