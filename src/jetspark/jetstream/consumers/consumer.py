"""What pull and push consumers have in common: info, pause, resume, reset, delete.

A `Consumer` is cheap and needs no closing. It keeps the last information from the server
(`cached_info`).
"""

from __future__ import annotations

from datetime import datetime

from jetspark.arguments import checked
from jetspark.jetstream.api import Api
from jetspark.jetstream.consumers.pause import pause_consumer
from jetspark.jetstream.consumers.reset import reset_consumer
from jetspark.jetstream.documents.consumers import ConsumerInfo, PauseState
from jetspark.jetstream.documents.document import from_wire
from jetspark.kinds import StreamSequence
from jetspark.wire import js_api


async def consumer_info(api: Api, stream: str, name: str) -> ConsumerInfo:
    """Configuration and state of a consumer. Raises as `Consumer.info`."""
    answer = await api.call(js_api.CONSUMER_INFO, stream=stream, consumer=name)
    return from_wire(ConsumerInfo, answer)


@checked
class Consumer:
    """A consumer of a stream, by name. Its only state is `cached_info`."""

    __slots__ = ("_api", "cached_info")

    def __init__(self, api: Api, info: ConsumerInfo) -> None:
        self._api = api
        self.cached_info = info
        """The consumer as of the last `info`, or of the call that made this object."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.cached_info.stream_name

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.cached_info.name

    async def info(self) -> ConsumerInfo:
        """The consumer as it is now.

        Raises ConsumerNotFoundError, StreamNotFoundError, and as every API call (see `JetStream`).
        """
        self.cached_info = await consumer_info(self._api, self.stream, self.name)
        return self.cached_info

    async def delete(self) -> None:
        """Delete the consumer. Raises as `info`."""
        await self._api.call(js_api.CONSUMER_DELETE, stream=self.stream, consumer=self.name)

    async def pause(self, until: datetime) -> PauseState:
        """Deliver nothing until then, an aware datetime (server 2.11).

        Raises as `JetStream.pause_consumer`.
        """
        return await pause_consumer(self._api, self.stream, self.name, until)

    async def resume(self) -> PauseState:
        """Deliver again (server 2.11). Raises as `JetStream.pause_consumer`."""
        return await pause_consumer(self._api, self.stream, self.name, None)

    async def reset(self, seq: StreamSequence | None = None) -> ConsumerInfo:
        """Deliver unacknowledged messages again, or everything from `seq` on (server 2.14).

        Acknowledgements and delivery counts from there on are forgotten. Raises as
        `JetStream.reset_consumer`, which has the details.
        """
        return await reset_consumer(self._api, self.stream, self.name, seq)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(stream={self.stream!r}, name={self.name!r})"
