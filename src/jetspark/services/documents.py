"""What services say of themselves: the answers to PING, INFO and STATS (ADR-32). Pure.

Field names are those of the wire; fields that this version does not know are in `extra`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from jetspark.jetstream.documents.document import Document, Moment, Span


class ServicePing(Document, frozen=True, kw_only=True):
    """One instance of a service."""

    name: str
    """Of the service, shared by its instances."""
    id: str
    """Of this instance."""
    version: str
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    type: str = ""
    rtt: Span | None = None
    """How long this answer to a ping took, measured here. It is not on the wire."""


class EndpointInfo(Document, frozen=True, kw_only=True):
    """An endpoint of a service."""

    name: str
    subject: str
    """What it listens on, the prefix of its group included."""
    queue_group: str = ""
    """Empty: every instance gets each request."""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)


class ServiceInfo(Document, frozen=True, kw_only=True):
    """One instance of a service with its endpoints."""

    name: str
    id: str
    version: str
    description: str = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    endpoints: list[EndpointInfo] = msgspec.field(default_factory=list)
    type: str = ""


class EndpointStats(Document, frozen=True, kw_only=True):
    """What an endpoint has done since its service began, or was reset."""

    name: str
    subject: str
    queue_group: str = ""
    num_requests: int = 0
    num_errors: int = 0
    """Requests whose handler raised, and errors that handlers have answered with."""
    last_error: str = ""
    processing_time: Span | None = None
    """In the handler, of all requests together."""
    average_processing_time: Span | None = None
    data: Any = None
    """What the service's `stats_handler` adds."""


class ServiceStats(Document, frozen=True, kw_only=True):
    """The statistics of one instance of a service."""

    name: str
    id: str
    version: str
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    started: Moment | None = None
    endpoints: list[EndpointStats] = msgspec.field(default_factory=list)
    type: str = ""
