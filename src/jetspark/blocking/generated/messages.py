# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: messages."""

from __future__ import annotations

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.client.messages import Message as AsyncMessage
from jetspark.client.messages import MessageView
from jetspark.payloads import Payload
from jetspark.wire.headers import HeadersLike
from jetspark.wire.kernel import frame_of


class GeneratedMessage(MessageView):
    """The calls of `Message` that hand on to its asyncio twin."""

    __slots__ = ()

    _client: CallerSide

    def respond(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        """Publish an answer. Raises ConfigError when none is asked for, and what publish raises."""
        drive(AsyncMessage(self._client, frame_of(self)).respond(payload, headers))
