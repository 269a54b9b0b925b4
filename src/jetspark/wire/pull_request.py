"""The pull request's document (ADR-13, ADR-37, ADR-42), for the client and `bulk`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jetspark.wire.documents import encode_document

if TYPE_CHECKING:
    from jetspark.wire.events import MessageFrame


class PullRequest(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The request of CONSUMER.MSG.NEXT. Fields with their default are not sent."""

    batch: int
    """Most messages to deliver."""
    max_bytes: int = 0
    """Most bytes to deliver; 0: no limit."""
    no_wait: bool = False
    """Deliver what is available and end the request."""
    expires: int = 0
    """Nanoseconds that the request may wait on the server."""
    idle_heartbeat: int = 0
    """Nanoseconds between idle heartbeats; 0: none."""
    group: str | None = None
    """The priority group."""
    id: str | None = None
    """The pin id of this client (Nats-Pin-Id), in a pinned priority group."""
    min_pending: int | None = None
    min_ack_pending: int | None = None
    priority: int | None = None
    """0 to 9; lower ones are served first."""

    def encode(self) -> bytes:
        """As JSON."""
        return encode_document(self)


def delivery_size(frame: MessageFrame) -> int:
    """Bytes of a delivery, as the server counts them for `max_bytes`."""
    return (
        len(frame.subject)
        + len(frame.reply or b"")
        + len(frame.headers or b"")
        + len(frame.payload)
    )
