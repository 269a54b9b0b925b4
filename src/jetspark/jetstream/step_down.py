"""Making the leader of a stream or consumer step down."""

from __future__ import annotations

from typing import Any, Final

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
        body = self._placement(preferred)
        await self._api.call(js_api.STREAM_LEADER_STEPDOWN, body, stream=stream)

    async def consumer_leader_stepdown(
        self, stream: str, name: str, *, preferred: str | None = None
    ) -> None:
        """Make the consumer's leader step down; `preferred` names the next one (server 2.11).

        Raises APIError on a server that is not clustered, UnsupportedByServerError,
        StreamNotFoundError, ConsumerNotFoundError, and as every API call (see `JetStream`).
        """
        body = self._placement(preferred)
        await self._api.call(js_api.CONSUMER_LEADER_STEPDOWN, body, stream=stream, consumer=name)

    def _placement(self, preferred: str | None) -> dict[str, Any] | None:
        if preferred is None:
            return None
        check_feature("a preferred leader", _PREFERRED_SINCE, self._api.server)
        return {"placement": {"preferred": preferred}}
