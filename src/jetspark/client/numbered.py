"""Publishes of one inbox that are told apart by a number: `<inbox><number>` is the reply subject.

Contract: as `publish_replying`, and meant for millions of messages to few subjects. What all
frames for a subject begin with is kept, so that the rest of a frame is one formatting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetspark.connection.fit import check_line
from jetspark.errors import MaxPayloadError
from jetspark.payloads import Payload, payload_bytes
from jetspark.subjects import check_publish_subject

if TYPE_CHECKING:
    from jetspark.client.client import Client
    from jetspark.wire.headers import HeadersLike

_SUBJECTS_REMEMBERED: Final = 4096


class NumberedPublishes:
    """`inbox` ends with a dot."""

    __slots__ = ("_client", "_heads", "_inbox", "_link", "_outbox")

    def __init__(self, client: Client, inbox: bytes) -> None:
        self._client = client
        self._link = client._link
        self._outbox = client._outbox
        self._inbox = inbox
        self._heads: dict[str, bytes] = {}

    def send(
        self, number: int, subject: str, payload: Payload, headers: HeadersLike | None = None
    ) -> None:
        """One message, with this turn of the loop. Raises as `Client.publish_nowait`."""
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        try:
            head = self._heads.get(subject) or self._head(subject)
        except TypeError:  # a list has no hash
            check_publish_subject(subject)
            raise
        block = b"" if headers is None else self._client._encode(headers)
        size = len(block) + len(payload)
        if size > self._link.max_payload:
            raise MaxPayloadError(size, self._link.max_payload)
        if headers is None:
            frame = b"PUB %b%d %d\r\n%b\r\n" % (head, number, size, payload)
        else:
            sizes = number, len(block), size
            frame = b"HPUB %b%d %d %d\r\n%b%b\r\n" % (head, *sizes, block, payload)
        self._outbox.put(frame)
        self._client._out_msgs += 1

    def _head(self, subject: str) -> bytes:
        head = b"%b %b" % (self._client._check_subject(subject), self._inbox)
        check_line(subject, head, self._client.options.max_control_line)
        if len(self._heads) >= _SUBJECTS_REMEMBERED:
            self._heads.clear()
        self._heads[subject] = head
        return head
