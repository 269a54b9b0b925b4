"""Publishing: check and encode a message, and put it into an outbox.

Contract: nothing here waits or needs an event loop, so `Publishing` serves any thread that may use
its outbox. The asyncio client has one over the connection's outbox, each blocking client another
over its publish buffer. A refused message leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Container
from functools import partial
from typing import Final, Protocol

from jetspark.client.hooks import HookRunner
from jetspark.connection.options import ConnectOptions
from jetspark.connection.server_errors import COMMON_LINE, check_headers, check_line
from jetspark.connection.supervisor import Supervisor
from jetspark.errors import MaxPayloadError
from jetspark.payload_bytes import Payload, Value, payload_bytes
from jetspark.subjects import check_publish_subject
from jetspark.wire import frames
from jetspark.wire.headers import Headers, HeadersLike, encode_headers
from jetspark.wire.kernel import numbered_publish

_MAX_CACHED_SUBJECTS: Final = 4096


class FrameOutbox(Protocol):
    """Takes encoded publishes and sends them in order: `Outbox`, `PublishBuffer`."""

    crowded: bool
    """Whether a publisher should `wait` before it puts more."""
    published: int
    """Messages taken so far."""

    def put(self, frame: bytes, /) -> None:
        """Take one publish. OutboundBufferError and ConnectionClosedError: it was not taken."""

    async def wait(self) -> None:
        """Wait for room, or for the end of the link that could make room."""

    def withdraw(self, replies: Container[bytes], /) -> object:
        """Drop the publishes with these reply subjects that are not written yet."""


class Publishing:
    """Checks and encodes messages for one connection, and puts them into `outbox`."""

    def __init__(self, link: Supervisor, options: ConnectOptions, outbox: FrameOutbox) -> None:
        self.outbox = outbox
        self.hooked: HookRunner | None = None
        """The hooks around what users send; publishers and batches call them too."""
        self.asking: HookRunner | None = None
        """The hooks around requests."""
        self._plain = self
        self.link = link
        self._options = options
        self._subjects: dict[str, bytes] = {}  # valid subjects, encoded

    def into(self, outbox: FrameOutbox) -> Publishing:
        """Publish over the same connection through another outbox, without hooks."""
        return Publishing(self.link, self._options, outbox)

    def hook(self, runner: HookRunner) -> None:
        """Call these hooks from now on, as far as they do something."""
        self._plain = self.into(self.outbox)
        self.hooked = runner if runner.tells("publish", "ack") else None
        self.asking = runner if runner.tells("request", "ack", "measured") else None

    def send(
        self, subject: str, payload: Value, reply: str | None, headers: HeadersLike | None
    ) -> None:
        """Send one message at the end of this turn of the event loop.

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
            check_publish_subject(reply, strict=False, label="reply subject")
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
        """`send` without hooks, with a reply subject that is encoded and valid.

        `headers` may be encoded, too. Raises the errors of `send`.
        """
        self.outbox.put(self.frame_replying(subject, payload, reply, headers))

    def frame_replying(
        self, subject: str, payload: Payload, reply: bytes, headers: HeadersLike | bytes | None
    ) -> bytes:
        """The frame for `send_replying`. Raises the errors of `send`."""
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        encoded = self._subjects.get(subject) or self.encode_subject(subject)
        if len(encoded) + len(reply) > COMMON_LINE:
            self.check_line(subject, b"%b %b" % (encoded, reply))
        block = b"" if headers is None else self.encode_headers(headers)
        size = len(block) + len(payload)
        if size > self.link.max_payload:
            raise MaxPayloadError(size, self.link.max_payload)
        return frames.replying(encoded, reply, block, payload)

    def answer(self, reply: bytes, payload: Payload, headers: HeadersLike | None) -> None:
        """`send` to the unchanged reply subject of a received message. Raises as `send`."""
        if self.hooked is not None:
            put = partial(self._plain.answer, reply, payload)
            self.hooked.send(reply.decode("utf-8", "replace"), payload, None, headers, put)
            return
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        block = b"" if headers is None else self.encode_headers(headers)
        if len(block) + len(payload) > self.link.max_payload:
            raise MaxPayloadError(len(block) + len(payload), self.link.max_payload)
        self.outbox.put(frames.message(reply, block, payload))

    def encode_subject(self, subject: str) -> bytes:
        """The encoded subject of a publish. Raises BadSubjectError."""
        if (encoded := self._subjects.get(subject)) is not None:
            return encoded
        check_publish_subject(subject, strict=self._options.check_subjects)
        encoded = subject.encode()
        self.check_line(subject, encoded)
        if len(self._subjects) >= _MAX_CACHED_SUBJECTS:
            self._subjects.clear()
        self._subjects[subject] = encoded
        return encoded

    def check_line(self, subject: str, target: bytes) -> None:
        """Raise BadSubjectError when a line with `target` is longer than the server accepts."""
        check_line(subject, target, self._options.max_control_line)

    def encode_headers(self, headers: HeadersLike | bytes) -> bytes:
        """The header block, unchanged if it is encoded.

        Raises BadHeaderError, HeadersNotSupportedError.
        """
        if isinstance(headers, bytes):
            return headers
        check_headers(self.link.info)
        return encode_headers(headers if isinstance(headers, Headers) else Headers(headers))


class NumberedPublishes:
    """`send_replying` for millions of messages whose reply subjects are `<head><number><tail>`.

    Keeps the beginning of the frames for each subject. `head` ends with a dot; `tail` is empty or
    begins with a dot.
    """

    __slots__ = ("_heads", "_link", "_outbox", "_publishing", "_reply", "_tail", "newest")

    def __init__(self, publishing: Publishing, head: bytes, tail: bytes = b"") -> None:
        self.newest = 0
        """The greatest number that may have been taken by the outbox, even if `send` raised."""
        self._publishing = publishing
        self._link = publishing.link
        self._outbox = publishing.outbox
        self._reply = head
        self._tail = tail
        self._heads: dict[str, bytes] = {}

    def send(
        self, number: int, subject: str, payload: Payload, headers: HeadersLike | None = None
    ) -> None:
        """Send one message at the end of the loop's turn. Raises as `Publishing.send`."""
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        head = self._heads.get(subject) or self._head(subject)
        block = b"" if headers is None else self._publishing.encode_headers(headers)
        size = len(block) + len(payload)
        if size > self._link.max_payload:
            raise MaxPayloadError(size, self._link.max_payload)
        if headers is None:
            frame = numbered_publish(head, number, self._tail, payload)
        else:
            frame = frames.message(b"%b%d%b" % (head, number, self._tail), block, payload)
        if number > self.newest:
            self.newest = number
        self._outbox.put(frame)

    def _head(self, subject: str) -> bytes:
        head = b"%b %b" % (self._publishing.encode_subject(subject), self._reply)
        self._publishing.check_line(subject, head)
        if len(self._heads) >= _MAX_CACHED_SUBJECTS:
            self._heads.clear()
        self._heads[subject] = head
        return head
