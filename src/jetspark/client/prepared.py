"""A message to be sent later with `publish_msg` or `request_msg`.

Contract: a plain value that may be changed and sent any number of times. Types are checked when it
is created, the rest when it is sent. A received message (`Message` and its subclasses) can be sent
in the same way.
"""

from __future__ import annotations

from typing import Protocol

from jetspark.errors import ConfigError, shown
from jetspark.payloads import Payload, byte_view, payload_bytes
from jetspark.subjects import check_publish_subject
from jetspark.wire.headers import Headers, HeadersLike


class Sendable(Protocol):
    """What can be published: PreparedMessage, Message, and any object with these attributes."""

    @property
    def subject(self) -> str:
        """Where it goes."""

    @property
    def data(self) -> Payload:
        """The payload."""

    @property
    def reply(self) -> str | None:
        """The reply subject."""

    @property
    def headers(self) -> Headers | None:
        """The headers; None is the same as empty."""


def parts_of(message: Sendable) -> tuple[str, Payload, str | None, Headers | None]:
    """(subject, data, reply, headers). Raises ConfigError for anything but a message."""
    try:
        return message.subject, message.data, message.reply, message.headers or None
    except AttributeError:
        raise ConfigError(
            f"message is a PreparedMessage or a Message, not {shown(message)}: "
            "use publish(subject, payload)."
        ) from None


class PreparedMessage:
    """`subject`, `data`, `reply` and `headers` may be set at any time.

    Raises BadHeaderError for headers that the protocol cannot carry, BadSubjectError for a subject
    or reply that is no str, BadPayloadError for data that is not bytes-like.
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
        if not isinstance(subject, str):
            check_publish_subject(subject)
        if reply is not None and not isinstance(reply, str):
            check_publish_subject(reply, what="reply subject")
        if type(data) is not bytes:
            byte_view(data)
        self.subject = subject
        self.data = data
        self.reply = reply
        self.headers = Headers(headers)

    def __repr__(self) -> str:
        return f"PreparedMessage(subject={self.subject!r}, {len(payload_bytes(self.data))} bytes)"
