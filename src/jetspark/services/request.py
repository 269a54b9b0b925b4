"""A request to a service, and its answers.

Contract: making one costs two references, as for every message. A handler may answer at any time,
also after it has returned, and several times: a requester that gathers many replies gets them all,
another one the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from jetspark.client.messages import MessageView
from jetspark.client.publishing import Publishing
from jetspark.errors import ConfigError, DocumentError, JetsparkError, ServiceError
from jetspark.payloads import Payload, payload_bytes
from jetspark.services.protocol import error_headers, one_line
from jetspark.services.tally import Tally
from jetspark.wire.documents import decode_json, encode_document
from jetspark.wire.headers import HeadersLike

T = TypeVar("T")


class Answering:
    """How the requests of an endpoint are answered, and where errors are counted."""

    __slots__ = ("publishing", "report", "tally")

    def __init__(
        self, publishing: Publishing, report: Callable[[JetsparkError], None], tally: Tally
    ) -> None:
        self.publishing = publishing
        self.report = report
        self.tally = tally

    async def room(self) -> None:
        """Return when the connection takes more."""
        if self.publishing.outbox.crowded:
            await self.publishing.outbox.wait()

    def send(self, reply: bytes | None, payload: Payload, headers: HeadersLike | None) -> None:
        """One answer. Raises ConfigError when none is asked for, and as `Publishing.send`."""
        if reply is None:
            raise _no_reply()
        self.publishing.answer(reply, payload, headers)

    def send_error(
        self,
        reply: bytes | None,
        code: int,
        description: str,
        payload: Payload = b"",
        headers: HeadersLike | None = None,
    ) -> None:
        """One answer that is an error, counted whether or not it can be sent. Raises as `send`,
        and ConfigError for a code that is none, which does not count."""
        all_headers = error_headers(code, description, headers)
        try:
            self.send(reply, payload, all_headers)
        finally:
            self.tally.failed(f"{code}:{one_line(description)}")


class RequestView(MessageView):
    """What a request says: its payload `data`, its `subject`, its `headers`, and JSON."""

    __slots__ = ()

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = Any) -> Any:
        """The payload as JSON, of this type: a msgspec.Struct, a dataclass, list[int] and so on.

        Raises ServiceError with code 400, which is the answer if the handler lets it pass.
        """
        try:
            return decode_json(self.data, type, "request")
        except DocumentError as error:
            raise ServiceError(400, f"The request cannot be read: {error.why}") from None


class Request(RequestView):
    """One request to an endpoint of a service.

    Every answer raises ConfigError when the requester asks for none, ConnectionClosedError,
    OutboundBufferError during an outage, MaxPayloadError, BadPayloadError, BadHeaderError.
    """

    __slots__ = ()

    _client: Answering

    async def respond(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        """Send an answer; waits while the link accepts no more (see `Request`)."""
        publishing = self._client.publishing
        if publishing.outbox.crowded:
            payload = payload_bytes(payload)  # a copy: the caller may change it meanwhile
            await publishing.outbox.wait()
        if (reply := self._frame.reply) is None:
            raise _no_reply()
        publishing.answer(reply, payload, headers)

    async def respond_json(self, value: Any, headers: HeadersLike | None = None) -> None:
        """Answer with the JSON of anything that msgspec can encode (see `Request`).

        Raises ConfigError for what it cannot, such as infinity.
        """
        await self.respond(encode_document(value), headers)

    async def respond_error(
        self,
        code: int,
        description: str,
        payload: Payload = b"",
        headers: HeadersLike | None = None,
    ) -> None:
        """Answer with an error, which is counted (see `Request`).

        `description`: one line for people; `payload` and `headers` may say more to programs.
        Raising ServiceError in a handler does the same.
        """
        await self._client.room()
        self._client.send_error(self._frame.reply, code, description, payload, headers)

    def respond_nowait(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        """`respond` with this turn of the event loop: for handlers that are plain functions."""
        self._client.send(self._frame.reply, payload, headers)


def _no_reply() -> ConfigError:
    return ConfigError("The request asks for no answer: it has no reply subject.")
