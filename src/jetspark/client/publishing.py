"""Publishing: a message is checked, encoded and put into an outbox.

Contract: nothing here waits or needs an event loop, so `Publishing` serves any thread that may use
its outbox. The asyncio client has one over the connection's outbox; each blocking client has
another one over its publish buffer. A message that is refused raises, and nothing of it is kept.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from jetspark.client.hooks import Hooked
from jetspark.connection.options import ConnectOptions
from jetspark.connection.server_errors import COMMON_LINE, check_headers, check_line
from jetspark.connection.supervisor import Supervisor
from jetspark.errors import MaxPayloadError
from jetspark.payloads import Payload, payload_bytes
from jetspark.subjects import check_publish_subject
from jetspark.wire import frames
from jetspark.wire.headers import Headers, HeadersLike, encode_headers

_SUBJECTS_REMEMBERED = 4096


class FrameOutbox(Protocol):
    """Takes encoded publishes and sends them in order: `Outbox`, `PublishBuffer`."""

    crowded: bool
    """Whether a publisher should `wait` before it puts more."""
    published: int
    """Messages taken so far."""

    def put(self, frame: bytes, /) -> None:
        """Take one publish. Raises OutboundBufferError, ConnectionClosedError: it is not taken."""

    async def wait(self) -> None:
        """Return when there is room, or no link that could make room."""


class Publishing:
    """Checks and encodes messages for one connection, and puts them into `outbox`."""

    def __init__(self, link: Supervisor, options: ConnectOptions, outbox: FrameOutbox) -> None:
        self.outbox = outbox
        self.hooked: Hooked | None = None
        """Is told of what users send; also by publishers, batches and requests."""
        self._plain = self
        self.link = link
        self._options = options
        self._subjects: dict[str, bytes] = {}  # encoded subjects that may be published to

    def into(self, outbox: FrameOutbox) -> Publishing:
        """One for the same connection with another outbox, without hooks."""
        return Publishing(self.link, self._options, outbox)

    def hook(self, hooked: Hooked) -> None:
        """Tell it of what is sent from now on."""
        self._plain = self.into(self.outbox)
        self.hooked = hooked

    @property
    def max_payload(self) -> int:
        """Maximum size of a message in bytes, including headers."""
        return self.link.max_payload

    def send(
        self, subject: str, payload: Payload, reply: str | None, headers: HeadersLike | None
    ) -> None:
        """Send one message with this turn of the event loop.

        Raises BadPayloadError, BadSubjectError, BadHeaderError, MaxPayloadError,
        HeadersNotSupportedError, OutboundBufferError, ConnectionClosedError.
        """
        if self.hooked is not None:
            put = partial(self._plain.send, subject, payload, reply)
            self.hooked.send(subject, payload, reply, headers, put)
            return
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        target = self._subjects.get(subject) or self.encode_subject(subject)
        if reply is not None:
            check_publish_subject(reply, strict=False, what="reply subject")
            target = b"%b %b" % (target, reply.encode())
            check_line(reply, target, self._options.max_control_line)
        block = b"" if headers is None else self.encode_headers(headers)
        size = len(block) + len(payload)
        if size > self.link.max_payload:
            raise MaxPayloadError(size, self.link.max_payload)
        self.outbox.put(frames.message(target, block, payload))

    def send_replying(
        self,
        subject: str,
        payload: Payload,
        reply: bytes,
        headers: HeadersLike | bytes | None = None,
    ) -> None:
        """`send` with a reply subject that is encoded and known to be valid.

        `headers` may be encoded, too. Raises as `send`.
        """
        block = headers if isinstance(headers, bytes) else self._block(headers)
        self.outbox.put(self._frame(subject, payload, reply, block))

    def send_asking(
        self, subject: str, payload: Payload, reply: bytes, headers: HeadersLike | None
    ) -> None:
        """`send_replying` for a user's request, whose headers are never encoded already."""

        def put(headers: HeadersLike | None) -> None:
            self.outbox.put(self.frame_replying(subject, payload, reply, headers))

        if self.hooked is None:
            put(headers)
        else:
            self.hooked.send(subject, payload, reply.decode(), headers, put)

    def frame_replying(
        self,
        subject: str,
        payload: Payload,
        reply: bytes,
        headers: HeadersLike | None = None,
    ) -> bytes:
        """The frame of a request whose reply subject is known to be valid. Raises as `send`."""
        return self._frame(subject, payload, reply, self._block(headers))

    def _block(self, headers: HeadersLike | None) -> bytes:
        return b"" if headers is None else self.encode_headers(headers)

    def _frame(self, subject: str, payload: Payload, reply: bytes, block: bytes) -> bytes:
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        encoded = self._subjects.get(subject) or self.encode_subject(subject)
        if len(encoded) + len(reply) > COMMON_LINE:
            self.check_line(subject, b"%b %b" % (encoded, reply))
        size = len(block) + len(payload)
        if size > self.link.max_payload:
            raise MaxPayloadError(size, self.link.max_payload)
        return frames.replying(encoded, reply, block, payload)

    def answer(self, reply: bytes, payload: Payload, headers: HeadersLike | None) -> None:
        """`send` to the reply subject of a received message, as it came. Raises as `send`."""
        if self.hooked is not None:
            put = partial(self._plain.answer, reply, payload)
            self.hooked.send(reply.decode("utf-8", "replace"), payload, None, headers, put)
            return
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        block = self._block(headers)
        if len(block) + len(payload) > self.link.max_payload:
            raise MaxPayloadError(len(block) + len(payload), self.link.max_payload)
        self.outbox.put(frames.message(reply, block, payload))

    def encode_subject(self, subject: str) -> bytes:
        """The encoded subject of a publish. Raises BadSubjectError."""
        if (known := self._subjects.get(subject)) is not None:
            return known
        check_publish_subject(subject, strict=self._options.check_subjects)
        encoded = subject.encode()
        self.check_line(subject, encoded)
        if len(self._subjects) >= _SUBJECTS_REMEMBERED:
            self._subjects.clear()
        self._subjects[subject] = encoded
        return encoded

    def check_line(self, subject: str, target: bytes) -> None:
        """Raises BadSubjectError when a line with `target` is longer than the server accepts."""
        check_line(subject, target, self._options.max_control_line)

    def encode_headers(self, headers: HeadersLike) -> bytes:
        """The header block. Raises BadHeaderError, HeadersNotSupportedError."""
        check_headers(self.link.info)
        return encode_headers(headers if isinstance(headers, Headers) else Headers(headers))
