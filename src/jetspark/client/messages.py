"""Messages: received ones, and those to be sent later.

Contract: a received message is a thin view of its frame, with two references only; subject,
headers, status and metadata are decoded on access. A malformed header block is reported through the
client (log, last_error, error callback), and `headers` is None. `MessageView` can be read;
`Message` also sends. Messages of the blocking client are views that send in the caller's thread.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from jetspark.errors import BadHeaderError, BadSubjectError, ConfigError, JetsparkError, safe_repr
from jetspark.payload_bytes import Payload, byte_view, payload_bytes
from jetspark.timestamps import Seconds
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import Headers, HeadersLike, PayloadCodec, codec_of, parse_headers
from jetspark.wire.kernel import Delivered
from jetspark.wire.reply_subject import Metadata, parse_reply_subject
from jetspark.wire.status import Status, status_of


class Reporter(Protocol):
    """Accepts reports of malformed headers."""

    def report(self, error: JetsparkError) -> None:
        """Report an error that no call can raise."""


class MessageSender(Reporter, Protocol):
    """Publishes a message's response: the asyncio client, or a thread's `CallerSide`.

    The coroutines of a `CallerSide` block the thread and never suspend.
    """

    @property
    def server_info(self) -> ServerInfo | None:
        """The server's INFO; None before the first connection."""

    async def publish(
        self, subject: str, payload: Payload = b"", *, headers: HeadersLike | None = None
    ) -> None:
        """Send one message. Raises the errors of `Client.publish`."""

    async def request(
        self, subject: str, payload: Payload = b"", *, timeout: Seconds | None = None
    ) -> MessageView:
        """Publish and wait for the reply. Raises the errors of `Client.request`."""


class MessageView(Delivered):
    """The readable part of a message: payload `data`, sequence `seq`, and the properties below."""

    __slots__ = ("_headers",)

    _client: Reporter
    _headers: Headers | None

    @property
    def subject(self) -> str:
        """The subject to which the message was published."""
        return self._frame.subject.decode("utf-8", "replace")

    @property
    def reply(self) -> str | None:
        """The subject for an answer; None when none is expected."""
        reply = self._frame.reply
        return None if reply is None else reply.decode("utf-8", "replace")

    @property
    def headers(self) -> Headers | None:
        """The headers; None when there are none, or when they are malformed (reported once)."""
        try:
            return self._headers
        except AttributeError:
            self._headers = self._parse_headers()
            return self._headers

    def _parse_headers(self) -> Headers | None:
        block = self._frame.headers
        if block is None:
            return None
        try:
            return parse_headers(block)[0]
        except BadHeaderError as error:
            self._client.report(error)
            return None

    def decode(self, codec: PayloadCodec) -> Any:
        """The value of the payload. Raises CodecError, and as the codec's registry."""
        return codec_of(codec).decode(self.data, self.headers)

    @property
    def status(self) -> Status | None:
        """The status line of a message that the server itself sent, None for a user's message."""
        return status_of(self._frame.headers)

    @property
    def metadata(self) -> Metadata:
        """Stream, consumer, sequences, time and pending count of a JetStream delivery.

        Raises NotJetStreamMessageError for any other message.
        """
        return parse_reply_subject(self._frame.reply)

    @property
    def timestamp(self) -> datetime:
        """When the stream stored it (aware, UTC, microseconds). Raises NotJetStreamMessageError."""
        return self.metadata.timestamp

    @property
    def no_responders(self) -> bool:
        """Whether the server says that there are no responders."""
        status = self.status
        return status is not None and status.is_no_responders

    @property
    def idle_heartbeat(self) -> bool:
        """Whether the message only shows that a JetStream consumer is alive."""
        status = self.status
        return status is not None and status.is_idle_heartbeat

    @property
    def flow_control(self) -> bool:
        """Whether a push consumer waits for an empty answer before it sends more."""
        status = self.status
        return status is not None and status.is_flow_control

    def __repr__(self) -> str:
        status = self.status
        status_text = f", status={status.code}" if status else ""
        return (
            f"{type(self).__name__}(subject={self.subject!r}, {len(self.data)} bytes{status_text})"
        )


class Message(MessageView):
    """One message.

    Example:
        ```python
        prices = nc.subscribe("prices.*")
        await nc.publish("prices.eu", b"1.20", headers={"Currency": "EUR"})
        message = await prices.next(timeout=2)
        print(message.subject, message.data, message.headers["Currency"])  # prices.eu b'1.20' EUR
        ```
    """

    __slots__ = ()

    _client: MessageSender

    async def respond(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        """Publish an answer. Raises ConfigError without a reply subject, and as publish.

        Example:
            ```python
            async def double(message):
                await message.respond(message.data * 2)

            async with nc.subscribe("double", callback=double):
                print((await nc.request("double", b"ab")).data)  # b'abab'
            ```
        """
        reply = self.reply
        if reply is None:
            raise ConfigError("The message asks for no reply: it has no reply subject.")
        # A response to the subject decoded with replacements would go elsewhere.
        if reply.encode() != self._frame.reply:
            raise BadSubjectError(reply, "the reply subject of the message is not UTF-8")
        await self._client.publish(reply, payload, headers=headers)


class Sendable(Protocol):
    """A message that can be published: PreparedMessage, Message, or an object like them."""

    @property
    def subject(self) -> str:
        """The subject to publish to."""

    @property
    def data(self) -> Payload:
        """The payload."""

    @property
    def reply(self) -> str | None:
        """The reply subject."""

    @property
    def headers(self) -> Headers | None:
        """The headers; None means empty."""


def parts_of(message: Sendable) -> tuple[str, Payload, str | None, Headers | None]:
    """(subject, data, reply, headers). Raises TypeError for what is no message."""
    try:
        return message.subject, message.data, message.reply, message.headers or None
    except AttributeError as error:
        raise TypeError(f"A message is wanted, not {safe_repr(message)}: {error}.") from None


class PreparedMessage:
    """A message that may be changed, and sent any number of times.

    Checks headers and payload; sending checks the rest. Raises BadHeaderError for headers that the
    protocol cannot carry, BadPayloadError for data that is not bytes-like.

    Example:
        ```python
        message = jetspark.PreparedMessage("orders.us", b"7 pears")
        message.headers.add("Source", "shop 7")
        await nc.publish_msg(message)
        ```
    """

    __slots__ = ("data", "headers", "reply", "subject")

    def __init__(
        self,
        subject: str,
        data: Payload = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike = (),
    ) -> None:
        if type(data) is not bytes:
            byte_view(data)
        self.subject = subject
        self.data = data
        self.reply = reply
        self.headers = Headers(headers)

    def __repr__(self) -> str:
        return f"PreparedMessage(subject={self.subject!r}, {len(payload_bytes(self.data))} bytes)"
