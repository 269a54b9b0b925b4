"""How long the requests of an exported service took, as the server measures it (ADR-3). Pure.

A server measures a sample of the requests that come through an account's export with `latency`, and
publishes each measurement in that account, on the subject that the export names.
"""

from __future__ import annotations

from typing import Final

from jetspark.errors import JetStreamError
from jetspark.jetstream.documents.document import Moment, Span, from_wire
from jetspark.jetstream.events.documents import Caller, Event
from jetspark.wire.documents import decode_document

LATENCY_TYPE: Final = "io.nats.server.metric.v1.service_latency"


class ServiceLatency(Event, frozen=True, kw_only=True):
    """One request to a service of the account, measured."""

    status: int
    """200; 400: it was no request, 408: not answered in time, 503: the service is not there."""
    description: str | None = None
    """What was wrong, if the status is not 200."""
    requestor: Caller | None = None
    """The requester; its `rtt` only, unless its account shares more (`share` of the import)."""
    responder: Caller | None = None
    """The client that answered."""
    header: dict[str, list[str]] | None = None
    """The headers for whose sake it was measured, with sampling by headers."""
    start: Moment | None = None
    """When the requester sent it, by the server's clock and the round-trip time."""
    service: Span | None = None
    """In the service."""
    system: Span | None = None
    """In servers and between them."""
    total: Span | None = None
    """From the requester and back."""


def parse_latency(data: bytes) -> ServiceLatency:
    """The measurement in a payload. Raises JetStreamError when it is none."""
    raw = decode_document(data, "event")
    if (said := raw.get("type")) != LATENCY_TYPE:
        raise JetStreamError(f"The event is no service latency, but of type {said!r}.")
    return from_wire(ServiceLatency, raw)
