"""Making the leader of a stream or consumer step down."""

from __future__ import annotations

from typing import Final

from jetspark.arguments import checked
from jetspark.jetstream.api import Api
from jetspark.jetstream.requirements import check_feature
from jetspark.wire import js_api

_PREFERRED_SINCE: Final = (2, 11)


@checked
class StepDownCalls:
    """The calls of JetStream that make leaders step down."""

    _api: Api

    async def stream_leader_stepdown(self, stream: str, *, preferred: str | None = None) -> None:
        """Make the stream's leader step down; `preferred` names the next one (server 2.11).

        Raises APIError on a server that is not clustered, UnsupportedByServerError,
        StreamNotFoundError, and as every API call (see `JetStream`).
        """
        await self._step_down(js_api.STREAM_LEADER_STEPDOWN, preferred, stream=stream)

    async def consumer_leader_stepdown(
        self, stream: str, name: str, *, preferred: str | None = None
    ) -> None:
        """Make the consumer's leader step down; `preferred` names the next one (server 2.11).

        Raises APIError on a server that is not clustered, UnsupportedByServerError,
        StreamNotFoundError, ConsumerNotFoundError, and as every API call (see `JetStream`).
        """
        call = js_api.CONSUMER_LEADER_STEPDOWN
        await self._step_down(call, preferred, stream=stream, consumer=name)

    async def _step_down(self, call: js_api.Call, preferred: str | None, **names: str) -> None:
        if preferred is None:
            await self._api.call(call, **names)
        else:
            needs = check_feature("a preferred leader", _PREFERRED_SINCE, self._api.server)
            body = {"placement": {"preferred": preferred}}
            await self._api.call(call, body, needs, **names)
