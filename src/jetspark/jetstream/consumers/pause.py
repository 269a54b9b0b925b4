"""Pausing a consumer until a time, and resuming it (server 2.11)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from jetspark.arguments import checked
from jetspark.errors import ConfigError
from jetspark.jetstream.api import Api
from jetspark.jetstream.documents.consumers import PauseState
from jetspark.jetstream.documents.document import from_wire
from jetspark.jetstream.exact_times import text_of_time, to_timestamp
from jetspark.jetstream.requirements import check_feature
from jetspark.wire import js_api

_SINCE: Final = (2, 11)


@checked
class PauseCalls:
    """The calls of JetStream that pause consumers."""

    _api: Api

    async def pause_consumer(self, stream: str, name: str, until: datetime) -> PauseState:
        """Deliver nothing until then (server 2.11).

        `until`: an aware datetime; one in the past resumes. Raises ConfigError,
        UnsupportedByServerError, ConsumerNotFoundError, StreamNotFoundError, and as every API
        call (see `JetStream`).
        """
        return await pause_consumer(self._api, stream, name, until)

    async def resume_consumer(self, stream: str, name: str) -> PauseState:
        """Deliver again (server 2.11). Raises as `pause_consumer`."""
        return await pause_consumer(self._api, stream, name, None)


async def pause_consumer(api: Api, stream: str, name: str, until: datetime | None) -> PauseState:
    """None resumes. Raises as `PauseCalls.pause_consumer`."""
    body = {}
    if until is not None:
        try:
            body["pause_until"] = text_of_time(to_timestamp(until))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"until: {error}.") from None
    needs = check_feature("pausing a consumer", _SINCE, api.server)
    names = {"stream": stream, "consumer": name}
    answer = await api.call(js_api.CONSUMER_PAUSE, body, needs, **names)
    return from_wire(PauseState, answer)
