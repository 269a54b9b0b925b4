"""A received message of the blocking client.

Contract: it reads as the asyncio client's message does, being the same view on the frame. Its
answer leaves as a publish does: checked here, sent by the event loop.
"""

from __future__ import annotations

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.client.messages import Message as AsyncMessage
from jetspark.client.messages import MessageView
from jetspark.payloads import Payload
from jetspark.wire.headers import HeadersLike


class Message(MessageView):
    """One message."""

    __slots__ = ()

    _client: CallerSide

    def respond(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        """Publish an answer. Raises ConfigError when none is asked for, and what publish raises."""
        drive(AsyncMessage(self._client, self._frame).respond(payload, headers))
