# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: request."""

from __future__ import annotations

from typing import Any

from jetspark.blocking.caller_side import drive
from jetspark.payloads import Payload
from jetspark.services.endpoint import Answering, RequestView
from jetspark.services.endpoint import Request as AsyncRequest
from jetspark.wire.headers import HeadersLike
from jetspark.wire.kernel import frame_of


class GeneratedRequest(RequestView):
    """The calls of `Request` that hand on to its asyncio twin."""

    __slots__ = ()

    _client: Answering

    def respond(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        """Send an answer; waits while the link accepts no more (see `Request`)."""
        if self._client.publishing.outbox.crowded:
            drive(AsyncRequest(self._client, frame_of(self)).respond(payload, headers))
        else:
            self._client.send(self._frame.reply, payload, headers)

    def respond_json(self, value: Any, headers: HeadersLike | None = None) -> None:
        """Answer with the JSON of anything that msgspec can encode, or ConfigError."""
        drive(AsyncRequest(self._client, frame_of(self)).respond_json(value, headers))

    def respond_error(
        self,
        code: int,
        description: str,
        payload: Payload = b"",
        headers: HeadersLike | None = None,
    ) -> None:
        """Answer with an error, as raising ServiceError in a handler does; it is counted.

        `description`: one line for people; `payload` and `headers` may say more to programs.
        """
        drive(
            AsyncRequest(self._client, frame_of(self)).respond_error(
                code, description, payload, headers
            )
        )

    def respond_nowait(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        """`respond` without waiting while the link accepts no more."""
        self._client.send(self._frame.reply, payload, headers)
