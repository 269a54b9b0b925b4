"""What sends in place of the plain objects when there are hooks."""

from __future__ import annotations

from jetspark.client.hooking import Hooked, Hooking
from jetspark.client.messages import Message
from jetspark.client.publishing import FrameOutbox, Publishing
from jetspark.client.request_calls import RequestCalls
from jetspark.connection.options import ConnectOptions
from jetspark.connection.supervisor import Supervisor
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.headers import HeadersLike


class HookedPublishing(Publishing):
    """Tells of messages that are sent one by one; publishers and batches tell of theirs."""

    hooked: Hooked

    def __init__(
        self, link: Supervisor, options: ConnectOptions, outbox: FrameOutbox, hooked: Hooked
    ) -> None:
        super().__init__(link, options, outbox)
        self.hooked = hooked

    def into(self, outbox: FrameOutbox) -> Publishing:
        return HookedPublishing(self.link, self._options, outbox, self.hooked)

    def send(
        self, subject: str, payload: Payload, reply: str | None, headers: HeadersLike | None
    ) -> None:
        plain = super().send
        self.hooked.send(
            subject, payload, reply, headers, lambda sent: plain(subject, payload, reply, sent)
        )

    def send_asking(
        self, subject: str, payload: Payload, reply: bytes, headers: HeadersLike | None
    ) -> None:
        plain = super().send_asking
        self.hooked.send(
            subject,
            payload,
            reply.decode(),
            headers,
            lambda sent: plain(subject, payload, reply, sent),
        )

    def answer(self, reply: bytes, payload: Payload, headers: HeadersLike | None) -> None:
        plain = super().answer
        self.hooked.send(
            reply.decode("utf-8", "replace"),
            payload,
            None,
            headers,
            lambda sent: plain(reply, payload, sent),
        )


class HookedCalls(RequestCalls):
    """Mixed into a client before its other classes; then `use_hooks`, before it is used."""

    hooking: Hooking
    _hooked: Hooked

    def use_hooks(self, hooked: Hooked) -> None:
        """Tell of all that is sent from now on."""
        plain = self.publishing
        self.hooking = self._hooked = hooked
        self.publishing = HookedPublishing(plain.link, self.options, plain.outbox, hooked)

    async def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """As `RequestCalls.request`."""
        plain = super().request
        return await self._hooked.asked(
            subject,
            payload,
            headers,
            lambda sent: plain(subject, payload, timeout=timeout, headers=sent),
        )

    async def ask(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """As `RequestCalls.ask`."""
        plain = super().ask
        return await self._hooked.asked(
            subject,
            payload,
            headers,
            lambda sent: plain(subject, payload, timeout=timeout, headers=sent),
        )
