"""The calls of a client that publish (row C5)."""

from __future__ import annotations

from jetspark.client.prepared import Sendable
from jetspark.connection.fit import check_headers
from jetspark.connection.options import ConnectOptions
from jetspark.connection.outbox import Outbox
from jetspark.connection.supervisor import Supervisor
from jetspark.errors import MaxPayloadError
from jetspark.subjects import check_publish_subject
from jetspark.wire import frames
from jetspark.wire.headers import Headers, HeadersLike, encode_headers

_SUBJECTS_REMEMBERED = 4096


class PublishCalls:
    """Mixed into the client."""

    options: ConnectOptions
    _link: Supervisor
    _outbox: Outbox
    _good_subjects: set[str]
    _out_msgs: int

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send one message; waits while the network takes no more. Raises as publish_nowait."""
        if self._outbox.crowded:
            await self._outbox.wait()
        self.publish_nowait(subject, payload, reply=reply, headers=headers)

    async def publish_msg(self, message: Sendable) -> None:
        """`publish` a message made before, or one that was received. Raises as publish_nowait."""
        await self.publish(
            message.subject, message.data, reply=message.reply, headers=message.headers or None
        )

    def publish_nowait(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send one message with this turn of the event loop.

        Raises BadSubjectError, BadHeaderError, MaxPayloadError, HeadersNotSupportedError,
        OutboundBufferError (pending_size bytes wait already), ConnectionClosedError.
        """
        if subject not in self._good_subjects:
            self._check_subject(subject)
        if reply is not None:
            check_publish_subject(reply, strict=False)
        link = self._link
        if headers is None:
            if len(payload) > link.max_payload:
                raise MaxPayloadError(len(payload), link.max_payload)
            self._outbox.put(frames.pub(subject, payload, reply))
        else:
            block = self._encode(headers)
            size = len(block) + len(payload)
            if size > link.max_payload:
                raise MaxPayloadError(size, link.max_payload)
            self._outbox.put(frames.hpub(subject, block, payload, reply))
        self._out_msgs += 1

    def publish_replying(
        self,
        subject: str,
        payload: bytes,
        reply: bytes,
        headers: HeadersLike | bytes | None = None,
        *,
        now: bool = False,
    ) -> None:
        """`publish_nowait` for who makes many reply subjects: they come encoded and unchecked.

        `headers` may be encoded, too. `now`: with this call, not with this turn of the loop.
        """
        if subject not in self._good_subjects:
            self._check_subject(subject)
        if headers is None:
            block = b""
        else:
            block = headers if isinstance(headers, bytes) else self._encode(headers)
        size = len(block) + len(payload)
        if size > self._link.max_payload:
            raise MaxPayloadError(size, self._link.max_payload)
        frame = frames.replying(subject.encode(), reply, block, payload)
        if now:
            self._outbox.put_now(frame)
        else:
            self._outbox.put(frame)
        self._out_msgs += 1

    def _check_subject(self, subject: str) -> None:
        check_publish_subject(subject, strict=self.options.check_subjects)
        if len(self._good_subjects) >= _SUBJECTS_REMEMBERED:
            self._good_subjects.clear()
        self._good_subjects.add(subject)

    def _encode(self, headers: HeadersLike) -> bytes:
        check_headers(self._link.info)
        return encode_headers(headers if isinstance(headers, Headers) else Headers(headers))
