"""Resetting a consumer, so that it delivers messages again (server 2.14)."""

from __future__ import annotations

from typing import Final

from jetspark.arguments import checked
from jetspark.jetstream.api import Api
from jetspark.jetstream.documents.consumers import ConsumerInfo
from jetspark.jetstream.documents.document import from_wire
from jetspark.jetstream.requirements import check_feature
from jetspark.kinds import StreamSequence
from jetspark.wire import js_api

_SINCE: Final = (2, 14)


@checked
class ResetCalls:
    """The call of JetStream that resets consumers."""

    _api: Api

    async def reset_consumer(
        self, stream: str, name: str, seq: StreamSequence | None = None
    ) -> ConsumerInfo:
        """Deliver unacknowledged messages again, or everything from `seq` on (server 2.14).

        Acknowledgements and delivery counts from there on are forgotten. `seq` needs a
        deliver_policy of "all" or one with a start, and must not be before that start; otherwise
        APIError. Raises ConfigError, UnsupportedByServerError, ConsumerNotFoundError,
        StreamNotFoundError, and as every API call (see `JetStream`).
        """
        return await reset_consumer(self._api, stream, name, seq)


async def reset_consumer(
    api: Api, stream: str, name: str, seq: StreamSequence | None
) -> ConsumerInfo:
    """Raises as `ResetCalls.reset_consumer`."""
    needs = check_feature("resetting a consumer", _SINCE, api.server)
    names = {"stream": stream, "consumer": name}
    body = None if seq is None else {"seq": seq}
    # The consumer itself answers a reset: for one that does not exist, or on a server that has no
    # resets, the call would time out.
    await api.call(js_api.CONSUMER_INFO, None, needs, **names)
    return from_wire(ConsumerInfo, await api.call(js_api.CONSUMER_RESET, body, needs, **names))
