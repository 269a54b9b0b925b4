"""What one server reports of a traced message (ADR-41). Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import field

from jetspark.errors import DocumentError, JetsparkError
from jetspark.wire.documents import convert_document, decode_document

_KINDS: Final = ("client", "route", "gateway", "system", "leaf node", "JetStream", "account")
"""In the order of the server's numbers."""


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One step in a server; one of an unknown type is just this. `raw` has all fields."""

    type: str
    at: datetime = field(name="ts")
    """By the clock of that server."""
    error: str = ""
    """Why it went no further; empty: it did."""
    raw: dict[str, Any]


class _OfConnection(TraceEvent, frozen=True, kw_only=True):
    kind: int
    connection_id: int = field(name="cid")
    name: str = ""
    """Of a client, or of the server at the other end."""

    @property
    def connection(self) -> str:
        """client, route, gateway, leaf node, system, JetStream or account."""
        return _KINDS[self.kind] if 0 <= self.kind < len(_KINDS) else f"connection {self.kind}"


class TraceIngress(_OfConnection, frozen=True, kw_only=True):
    """The message came into the server."""

    account: str = field(name="acc")
    subject: str = field(name="subj")


class TraceMapping(TraceEvent, frozen=True, kw_only=True):
    """A subject mapping of the account gave it another subject."""

    to: str


class TraceExport(TraceEvent, frozen=True, kw_only=True):
    """It went into another account by a stream export."""

    account: str = field(name="acc")
    to: str


class TraceImport(TraceEvent, frozen=True, kw_only=True):
    """It went into another account by a service import."""

    account: str = field(name="acc")
    subject: str = field(name="from")
    """The subject of the import."""
    to: str


class TraceStream(TraceEvent, frozen=True, kw_only=True):
    """It reached a stream of JetStream, which stored it unless there is an error."""

    stream: str
    subject: str = ""
    """As it is stored."""
    no_interest: bool = field(name="nointerest", default=False)
    """The stream keeps messages for consumers only, and none wants this one."""


class TraceEgress(_OfConnection, frozen=True, kw_only=True):
    """It left the server, to a client or to another server."""

    hop: str = ""
    """The id of the next server's report, such as "1.2"; empty: none comes."""
    account: str = field(name="acc", default="")
    """Of the receiver, if it is another one."""
    subscription: str = field(name="sub", default="")
    """Of a client."""
    queue: str = ""

    @property
    def reports(self) -> bool:
        """Whether a report of the server there is to come."""
        return bool(self.hop) and not self.error


_TYPES: Final[dict[str, type[TraceEvent]]] = {
    "in": TraceIngress,
    "sm": TraceMapping,
    "se": TraceExport,
    "si": TraceImport,
    "js": TraceStream,
    "eg": TraceEgress,
}


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Which server reports."""

    name: str
    id: str
    cluster: str = ""
    domain: str = ""
    """The JetStream domain."""
    version: str = field(name="ver", default="")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one server. `raw`: the whole document."""

    server: ServerFacts
    hop: str
    """Of this server; empty for the one that the client is connected to."""
    events: tuple[TraceEvent, ...]
    raw: dict[str, Any]


def parse_report(data: bytes) -> Report:
    """Raises JetsparkError for what is none."""
    try:
        raw = decode_document(data, "report")
        events = tuple(_event(one) for one in raw.get("events") or ())
        headers = (raw.get("request") or {}).get("header") or {}
        hop = (headers.get("Nats-Trace-Hop") or [""])[0]
        return Report(
            server=convert_document(raw["server"], ServerFacts, "server"),
            hop=str(hop),
            events=events,
            raw=raw,
        )
    except DocumentError as error:
        raise JetsparkError(f"A server's report of a trace cannot be read: {error.why}.") from None
    except (LookupError, TypeError, AttributeError) as error:
        raise JetsparkError(f"A server's report of a trace cannot be read: {error}.") from None


def _event(raw: dict[str, Any]) -> TraceEvent:
    return convert_document({**raw, "raw": raw}, _TYPES.get(raw["type"], TraceEvent), "event")
