"""Publishes whose reply subjects differ in a number: `<head><number><tail>`.

Contract: as `Publishing.send_replying`, for millions of messages to few subjects. The beginning of
the frames is kept for each subject, so that a frame needs one formatting operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetspark.errors import MaxPayloadError
from jetspark.payloads import Payload, payload_bytes
from jetspark.subjects import check_publish_subject

if TYPE_CHECKING:
    from jetspark.client.publishing import Publishing
    from jetspark.wire.headers import HeadersLike

_SUBJECTS_REMEMBERED: Final = 4096


class NumberedPublishes:
    """`head` ends with a dot; `tail` is empty or begins with a dot, and contains no %."""

    __slots__ = ("_heads", "_link", "_outbox", "_plain", "_publishing", "_reply", "_with_headers")

    def __init__(self, publishing: Publishing, head: bytes, tail: bytes = b"") -> None:
        self._publishing = publishing
        self._link = publishing.link
        self._outbox = publishing.outbox
        self._reply = head
        self._plain = b"PUB %%b%%d%b %%d\r\n%%b\r\n" % tail
        self._with_headers = b"HPUB %%b%%d%b %%d %%d\r\n%%b%%b\r\n" % tail
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
        block = b"" if headers is None else self._publishing.encode_headers(headers)
        size = len(block) + len(payload)
        if size > self._link.max_payload:
            raise MaxPayloadError(size, self._link.max_payload)
        if headers is None:
            frame = self._plain % (head, number, size, payload)
        else:
            frame = self._with_headers % (head, number, len(block), size, block, payload)
        self._outbox.put(frame)

    def _head(self, subject: str) -> bytes:
        head = b"%b %b" % (self._publishing.encode_subject(subject), self._reply)
        self._publishing.check_line(subject, head)
        if len(self._heads) >= _SUBJECTS_REMEMBERED:
            self._heads.clear()
        self._heads[subject] = head
        return head
