"""The calls of a client that publish."""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop

from jetspark.client.prepared import Sendable, parts_of
from jetspark.client.publishing import Publishing
from jetspark.connection.options import ConnectOptions
from jetspark.payloads import Payload, payload_bytes
from jetspark.wire.headers import HeadersLike


class PublishCalls:
    """Mixed into the client."""

    options: ConnectOptions
    publishing: Publishing
    loop: asyncio.AbstractEventLoop

    def check_loop(self) -> None:
        """Raises ConfigError in another event loop or thread than the client's."""
        raise NotImplementedError

    async def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        reply: str | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send one message; waits while the link accepts no more. Raises as publish_nowait."""
        if get_running_loop() is not self.loop:  # asked here, as it is for each message
            self.check_loop()
        publishing = self.publishing
        if publishing.outbox.crowded:
            payload = payload_bytes(payload)  # a copy: the caller may change it in the meantime
            await publishing.outbox.wait()
        publishing.send(subject, payload, reply, headers)

    async def publish_msg(self, message: Sendable) -> None:
        """`publish` a PreparedMessage, or a message that was received.

        Raises as publish_nowait, and ConfigError for anything else.
        """
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

        `payload`: any bytes-like object. Raises BadPayloadError for anything else, BadSubjectError,
        BadHeaderError, MaxPayloadError, HeadersNotSupportedError, OutboundBufferError
        (`pending_size` bytes are buffered already), ConnectionClosedError, ConfigError in another
        event loop or thread than the client's.
        """
        self.check_loop()
        self.publishing.send(subject, payload, reply, headers)

    def publish_replying(
        self,
        subject: str,
        payload: Payload,
        reply: bytes,
        headers: HeadersLike | bytes | None = None,
    ) -> None:
        """`publish_nowait` with a reply subject that is encoded, and not checked.

        `headers` may be encoded, too. Raises as publish_nowait.
        """
        self.publishing.send_replying(subject, payload, reply, headers)
