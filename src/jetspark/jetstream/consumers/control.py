"""Consumers that exist: pause, resume, reset, hand over the leadership (row J8).

Contract: names are checked before anything is sent, and so is whether the connected server knows
the call. Then ConsumerNotFoundError, StreamNotFoundError, and what `Api.call` raises.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from jetspark.errors import ConfigError
from jetspark.jetstream.api import Api
from jetspark.jetstream.documents.consumers import ConsumerInfo, PauseState
from jetspark.jetstream.documents.document import from_wire
from jetspark.jetstream.exact_times import text_of_time, to_timestamp
from jetspark.jetstream.requirements import check_feature
from jetspark.wire import js_api

_PAUSE_SINCE: Final = (2, 11)
_RESET_SINCE: Final = (2, 14)
_PREFERRED_SINCE: Final = (2, 11)


class ConsumerControl:
    """The part of a consumer's handle that steers it."""

    __slots__ = ()

    _api: Api

    @property
    def stream(self) -> str:
        """The stream's name."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The consumer's name."""
        raise NotImplementedError

    async def pause(self, until: datetime) -> PauseState:
        """Deliver nothing until then; an aware time (2.11). One that has passed resumes."""
        return await _pause(self._api, self.stream, self.name, until)

    async def resume(self) -> PauseState:
        """Deliver again (2.11)."""
        return await _pause(self._api, self.stream, self.name, None)

    async def reset(self, seq: int | None = None) -> ConsumerInfo:
        """Deliver again what is not acknowledged, or everything from `seq` on (2.14).

        What was acknowledged from there on, and how often a message was delivered, is forgotten.
        `seq` needs a deliver_policy of "all" or by a start, and must not be before that; otherwise
        APIError.
        """
        return await _reset(self._api, self.stream, self.name, seq)


class ConsumerControlCalls:
    """The part of JetStream that steers consumers and leaders."""

    _api: Api

    async def pause_consumer(self, stream: str, name: str, until: datetime) -> PauseState:
        """Deliver nothing until then; an aware time (2.11). One that has passed resumes."""
        return await _pause(self._api, stream, name, until)

    async def resume_consumer(self, stream: str, name: str) -> PauseState:
        """Deliver again (2.11)."""
        return await _pause(self._api, stream, name, None)

    async def reset_consumer(self, stream: str, name: str, seq: int | None = None) -> ConsumerInfo:
        """Deliver again what is not acknowledged, or everything from `seq` on (2.14).

        See `PullConsumer.reset`.
        """
        return await _reset(self._api, stream, name, seq)

    async def stream_leader_stepdown(self, stream: str, *, preferred: str | None = None) -> None:
        """Let another server lead the stream; `preferred` names it (2.11).

        Raises APIError on a server that is not clustered.
        """
        body = _preferring(self._api, preferred)
        await self._api.call(js_api.STREAM_LEADER_STEPDOWN, body, stream=stream)

    async def consumer_leader_stepdown(
        self, stream: str, name: str, *, preferred: str | None = None
    ) -> None:
        """Let another server lead the consumer; `preferred` names it (2.11).

        Raises APIError on a server that is not clustered.
        """
        body = _preferring(self._api, preferred)
        await self._api.call(js_api.CONSUMER_LEADER_STEPDOWN, body, stream=stream, consumer=name)


async def _pause(jetstream_api: Api, stream: str, name: str, until: datetime | None) -> PauseState:
    body = {}
    if until is not None:
        try:
            body["pause_until"] = text_of_time(to_timestamp(until))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"until: {error}.") from None
    check_feature("pausing a consumer", _PAUSE_SINCE, jetstream_api.server)
    answer = await jetstream_api.call(js_api.CONSUMER_PAUSE, body, stream=stream, consumer=name)
    return from_wire(PauseState, answer)


async def _reset(jetstream_api: Api, stream: str, name: str, seq: int | None) -> ConsumerInfo:
    if seq is not None and seq < 1:  # to the server 0 is "not said"
        raise ConfigError("seq begins at 1.")
    check_feature("resetting a consumer", _RESET_SINCE, jetstream_api.server)
    names = {"stream": stream, "consumer": name}
    body = None if seq is None else {"seq": seq}
    # The consumer itself answers a reset: one that does not exist would only time out.
    await jetstream_api.call(js_api.CONSUMER_INFO, **names)
    return from_wire(ConsumerInfo, await jetstream_api.call(js_api.CONSUMER_RESET, body, **names))


def _preferring(jetstream_api: Api, preferred: str | None) -> dict[str, Any] | None:
    if preferred is None:
        return None
    check_feature("a preferred leader", _PREFERRED_SINCE, jetstream_api.server)
    return {"placement": {"preferred": preferred}}
