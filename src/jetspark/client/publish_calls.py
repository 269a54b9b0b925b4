"""The calls of a client that publish (row C5)."""

from __future__ import annotations

from jetspark.client.prepared import Sendable, parts_of
from jetspark.connection.fit import COMMON_LINE, check_headers, check_line
from jetspark.connection.options import ConnectOptions
from jetspark.connection.outbox import Outbox
from jetspark.connection.supervisor import Supervisor
from jetspark.errors import MaxPayloadError
from jetspark.payloads import Payload, payload_bytes
from jetspark.subjects import check_publish_subject
from jetspark.wire import frames
from jetspark.wire.headers import Headers, HeadersLike, encode_headers

_SUBJECTS_REMEMBERED = 4096


class PublishCalls:
    """Mixed into the client."""

    options: ConnectOptions
    _link: Supervisor
    _outbox: Outbox
    _good_subjects: dict[str, bytes]
    """Subjects that may be published to, encoded."""
    _out_msgs: int

    async def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send one message; waits while the network takes no more. Raises as publish_nowait."""
        if self._outbox.crowded:
            payload = payload_bytes(payload)  # as it is now, not when there is room again
            await self._outbox.wait()
        self.publish_nowait(subject, payload, reply=reply, headers=headers)

    async def publish_msg(self, message: Sendable) -> None:
        """`publish` a message made before, or one that was received. Raises as publish_nowait."""
        subject, data, reply, headers = parts_of(message)
        await self.publish(subject, data, reply=reply, headers=headers)

    def publish_nowait(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send one message with this turn of the event loop.

        `payload`: any bytes-like object. Raises BadPayloadError for what is none, BadSubjectError,
        BadHeaderError, MaxPayloadError, HeadersNotSupportedError, OutboundBufferError
        (pending_size bytes wait already), ConnectionClosedError.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        try:
            target = self._good_subjects.get(subject) or self._check_subject(subject)
        except TypeError:  # a list has no hash
            check_publish_subject(subject)
            raise
        if reply is not None:
            check_publish_subject(reply, strict=False)
            target = b"%b %b" % (target, reply.encode())
            check_line(reply, target, self.options.max_control_line)
        block = b"" if headers is None else self._encode(headers)
        size = len(block) + len(payload)
        if size > self._link.max_payload:
            raise MaxPayloadError(size, self._link.max_payload)
        self._outbox.put(frames.message(target, block, payload))
        self._out_msgs += 1

    def publish_replying(
        self,
        subject: str,
        payload: Payload,
        reply: bytes,
        headers: HeadersLike | bytes | None = None,
        *,
        now: bool = False,
    ) -> None:
        """`publish_nowait` for who makes many reply subjects: they come encoded and unchecked.

        `headers` may be encoded, too. `now`: with this call, not with this turn of the loop.
        """
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        try:
            encoded = self._good_subjects.get(subject) or self._check_subject(subject)
        except TypeError:
            check_publish_subject(subject)
            raise
        if len(encoded) + len(reply) > COMMON_LINE:
            check_line(subject, b"%b %b" % (encoded, reply), self.options.max_control_line)
        if headers is None:
            block = b""
        else:
            block = headers if isinstance(headers, bytes) else self._encode(headers)
        size = len(block) + len(payload)
        if size > self._link.max_payload:
            raise MaxPayloadError(size, self._link.max_payload)
        frame = frames.replying(encoded, reply, block, payload)
        if now:
            self._outbox.put_now(frame)
        else:
            self._outbox.put(frame)
        self._out_msgs += 1

    def _check_subject(self, subject: str) -> bytes:
        """The subject, encoded."""
        check_publish_subject(subject, strict=self.options.check_subjects)
        encoded = subject.encode()
        check_line(subject, encoded, self.options.max_control_line)
        if len(self._good_subjects) >= _SUBJECTS_REMEMBERED:
            self._good_subjects.clear()
        self._good_subjects[subject] = encoded
        return encoded

    def _encode(self, headers: HeadersLike) -> bytes:
        check_headers(self._link.info)
        return encode_headers(headers if isinstance(headers, Headers) else Headers(headers))
