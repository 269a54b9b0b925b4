"""Joins the reports of a traced message's servers to a tree, by their hop ids. Pure.

A server that forwards the message names the hop: "1", "2" at the first server, "1.1" behind "1".
The next server's report carries that name, so it is known which reports are missing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import field

from jetspark.errors import DocumentError, JetsparkError
from jetspark.wire.documents import convert_document, decode_document

# -------------------------------------------------------------------------------------------------
# The report of one server (ADR-41).


_KINDS: Final = ("client", "route", "gateway", "system", "leaf node", "JetStream", "account")
"""Kinds of connections, in the order of the server's numbers."""


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One step in a server; an event of an unknown type has only these fields. `raw` has all."""

    type: str
    at: datetime = field(name="ts")
    """The time, by that server's clock."""
    error: str = ""
    """Why the message went no further; empty if it did."""
    raw: dict[str, Any]


class _OfConnection(TraceEvent, frozen=True, kw_only=True):
    kind: int
    connection_id: int = field(name="cid")
    name: str = ""
    """The name of the client, or of the server at the other end."""

    @property
    def connection(self) -> str:
        """The kind: client, route, gateway, leaf node, system, JetStream or account."""
        return _KINDS[self.kind] if 0 <= self.kind < len(_KINDS) else f"connection {self.kind}"


class TraceIngress(_OfConnection, frozen=True, kw_only=True):
    """The message came into the server."""

    account: str = field(name="acc")
    subject: str = field(name="subj")


class TraceMapping(TraceEvent, frozen=True, kw_only=True):
    """The account's subject mapping gave the message another subject."""

    to: str


class TraceExport(TraceEvent, frozen=True, kw_only=True):
    """The message went into another account through a stream export."""

    account: str = field(name="acc")
    to: str


class TraceImport(TraceEvent, frozen=True, kw_only=True):
    """The message went into another account through a service import."""

    account: str = field(name="acc")
    subject: str = field(name="from")
    """The import's subject."""
    to: str


class TraceStream(TraceEvent, frozen=True, kw_only=True):
    """The message reached a stream, which stored it unless there is an error."""

    stream: str
    subject: str = ""
    """The subject under which it is stored."""
    no_interest: bool = field(name="nointerest", default=False)
    """Whether the stream keeps messages for consumers only, and none wants this one."""


class TraceEgress(_OfConnection, frozen=True, kw_only=True):
    """The message left the server, to a client or to another server."""

    hop: str = ""
    """The id of the next server's report, such as "1.2"; empty when none will come."""
    account: str = field(name="acc", default="")
    """The receiver's account, if it is another one."""
    subscription: str = field(name="sub", default="")
    """The client's subscription."""
    queue: str = ""

    @property
    def reports(self) -> bool:
        """Whether a report of the next server will come."""
        return bool(self.hop) and not self.error


_TYPES: Final[dict[str, type[TraceEvent]]] = {
    "in": TraceIngress,
    "sm": TraceMapping,
    "se": TraceExport,
    "si": TraceImport,
    "js": TraceStream,
    "eg": TraceEgress,
}


class _Server(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    id: str
    cluster: str = ""
    domain: str = ""
    version: str = field(name="ver", default="")


def parse_report(data: bytes) -> TracedServer:
    """The report of one server, without those behind it. Raises JetsparkError for another one."""
    try:
        raw = decode_document(data, "report")
        server = convert_document(raw["server"], _Server, "server")
        headers = (raw.get("request") or {}).get("header") or {}
        return TracedServer(
            name=server.name,
            id=server.id,
            version=server.version,
            cluster=server.cluster,
            domain=server.domain,
            hop=str((headers.get("Nats-Trace-Hop") or [""])[0]),
            events=tuple(_event(event) for event in raw.get("events") or ()),
            servers=(),
            raw=raw,
        )
    except DocumentError as error:
        raise JetsparkError(
            f"A server's report of a trace cannot be read: {error.reason}."
        ) from None
    except (LookupError, TypeError, AttributeError) as error:
        raise JetsparkError(f"A server's report of a trace cannot be read: {error}.") from None


def _event(raw: dict[str, Any]) -> TraceEvent:
    return convert_document({**raw, "raw": raw}, _TYPES.get(raw["type"], TraceEvent), "event")


# -------------------------------------------------------------------------------------------------
# A tree of lines, drawn as text.


@dataclass(frozen=True, slots=True)
class Line:
    """One line, and those below it. `wrong`: it shows an error."""

    text: str
    below: list[Line] = dataclasses.field(default_factory=list)
    wrong: bool = False


def drawn(line: Line) -> Iterator[str]:
    """The lines of the tree, without control characters."""
    yield ("✗ " if line.wrong else "") + plain(line.text)
    for index, branch in enumerate(line.below):
        last = index == len(line.below) - 1
        first, *rest = drawn(branch)
        yield ("└─ " if last else "├─ ") + first
        yield from (("   " if last else "│  ") + text for text in rest)


def plain(text: str) -> str:
    """The text with control characters escaped: others choose the names."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


FIRST = ""
"""The hop of the server of this connection."""


@dataclass(frozen=True, slots=True)
class TracedServer:
    """A server that the message reached, and what it did with it."""

    name: str
    id: str
    version: str
    cluster: str
    """The cluster; empty without one."""
    domain: str
    """The JetStream domain; empty without one."""
    hop: str
    """Empty for the first server, "2" for the second one to which it forwarded the message."""
    events: tuple[TraceEvent, ...]
    """Events in the order in which they happened."""
    servers: tuple[TracedServer, ...]
    """The servers to which it forwarded the message, if they reported."""
    raw: dict[str, Any]
    """The report, with fields that jetspark does not know."""

    @property
    def ingress(self) -> TraceIngress | None:
        """The arrival of the message; None if it was not reported."""
        return next((event for event in self.events if isinstance(event, TraceIngress)), None)

    @property
    def egresses(self) -> tuple[TraceEgress, ...]:
        """Clients and servers to which the message went."""
        return tuple(event for event in self.events if isinstance(event, TraceEgress))

    @property
    def streams(self) -> tuple[TraceStream, ...]:
        """The streams that the message reached here."""
        return tuple(event for event in self.events if isinstance(event, TraceStream))

    def after(self, egress: TraceEgress) -> TracedServer | None:
        """The server at the other end; None for a client, or when it did not report."""
        if not egress.hop:
            return None
        return next((server for server in self.servers if server.hop == egress.hop), None)

    def walk(self) -> Iterator[TracedServer]:
        """Yield this server and all to which it forwarded the message."""
        yield self
        for server in self.servers:
            yield from server.walk()


@dataclass(frozen=True, slots=True)
class MissingServer:
    """A server that got the message but did not report in time."""

    hop: str
    name: str
    """Empty for the first server."""
    sender: str
    """The server that forwarded the message to it; empty for the first one."""

    def __str__(self) -> str:
        if self.hop == FIRST:
            return "the server of this connection did not report"
        return f"{plain(self.name) or 'a server'}, behind {plain(self.sender)}, did not report"


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """The path of one message; `str` draws it.

    Example:
        ```python
        trace = await nc.trace("orders.eu", b"42 apples")
        print(trace.complete)  # True
        print("ORDERS" in str(trace))  # True
        ```
    """

    subject: str
    delivered: bool
    """False: the message was only traced, neither delivered nor stored."""
    root: TracedServer | None
    """The server of this connection, with the others behind it; None when it did not report."""
    missing: tuple[MissingServer, ...]
    """Servers that are not in the tree."""
    detached: tuple[TracedServer, ...] = ()
    """Servers that reported, but whose predecessor did not."""

    @property
    def complete(self) -> bool:
        """Whether all servers that got the message reported."""
        return not self.missing

    @property
    def servers(self) -> tuple[TracedServer, ...]:
        """All servers that reported, the first one first."""
        tops = (self.root, *self.detached)
        return tuple(server for top in tops if top is not None for server in top.walk())

    @property
    def clients(self) -> tuple[TraceEgress, ...]:
        """The clients that got the message, or would have."""
        return tuple(
            egress
            for server in self.servers
            for egress in server.egresses
            if egress.connection == "client" and not egress.error
        )

    @property
    def streams(self) -> tuple[TraceStream, ...]:
        """The streams that the message reached."""
        return tuple(stream for server in self.servers for stream in server.streams)

    @property
    def errors(self) -> tuple[TraceEvent, ...]:
        """The steps at which the message went no further."""
        return tuple(event for server in self.servers for event in server.events if event.error)

    @property
    def no_interest(self) -> bool:
        """Whether no server had a subscription, and no stream took the message.

        False where the trace ends early: incomplete, at the border of an account, or at an error.
        """
        return self.complete and not any(
            _may_arrive(event) for s in self.servers for event in s.events
        )

    def __str__(self) -> str:
        return "\n".join(drawn(_lines(self)))


class Reports:
    """Collects reports until none is missing."""

    def __init__(self) -> None:
        self._by_hop: dict[str, TracedServer] = {}

    def __len__(self) -> int:
        return len(self._by_hop)

    def add(self, report: TracedServer) -> None:
        """Add a report; only the first one of a hop counts."""
        self._by_hop.setdefault(report.hop, report)

    def missing(self) -> tuple[MissingServer, ...]:
        """The servers whose reports have not come."""
        if FIRST not in self._by_hop:
            return (MissingServer(FIRST, "", ""),)
        return tuple(
            MissingServer(egress.hop, egress.name, report.name)
            for report in self._by_hop.values()
            for egress in report.egresses
            if egress.reports and egress.hop not in self._by_hop
        )

    def joined(self, subject: str, *, delivered: bool) -> MessageTrace:
        """The tree of the reports so far."""
        reports = self._by_hop
        trees = {
            hop: _tree(hop, reports)
            for hop in reports
            if hop == FIRST or _before(hop) not in reports
        }
        root = trees.pop(FIRST, None)
        return MessageTrace(subject, delivered, root, self.missing(), tuple(trees.values()))


def _before(hop: str) -> str:
    """The hop of the previous server."""
    return hop.rpartition(".")[0]


def _may_arrive(event: TraceEvent) -> bool:
    """Whether somebody may receive the message, or no report says what became of it."""
    if isinstance(event, TraceEgress):
        return not event.reports
    return not isinstance(event, TraceIngress | TraceMapping) or bool(event.error)


def _tree(hop: str, reports: Mapping[str, TracedServer]) -> TracedServer:
    report = reports[hop]
    sent = [egress.hop for egress in report.egresses if egress.hop]
    next_hops = [
        next_hop
        for next_hop in dict.fromkeys(sent)
        if next_hop in reports and _before(next_hop) == hop
    ]
    return dataclasses.replace(
        report, servers=tuple(_tree(next_hop, reports) for next_hop in next_hops)
    )


# -- for people ----------------------------------------------------------------------------------


def _lines(trace: MessageTrace) -> Line:
    delivery = "delivered" if trace.delivered else "only traced, not delivered"
    below = [_server(top) for top in (trace.root, *trace.detached) if top is not None]
    end = "complete" if trace.complete else "INCOMPLETE: " + "; ".join(map(str, trace.missing))
    end += ": nobody subscribes to it, and no stream stores it" if trace.no_interest else ""
    counts = (
        (len(trace.servers), "server"),
        (len(trace.streams), "stream"),
        (len(trace.clients), "client"),
        (len(trace.errors), "error"),
    )
    summary = ", ".join(f"{n} {noun}{'s' * (n != 1)}" for n, noun in counts if n)
    return Line(f"{trace.subject} ({delivery})", [*below, Line(f"{summary}; {end}")])


def _server(server: TracedServer) -> Line:
    facts = [f"cluster {server.cluster}"] if server.cluster else []
    facts += [f"domain {server.domain}"] if server.domain else []
    facts += [f"nats-server {server.version}"] if server.version else []
    head = f"{server.name} ({', '.join(facts)})" if facts else server.name
    return Line(head, [_reported(server, event) for event in server.events])


def _reported(server: TracedServer, event: TraceEvent) -> Line:
    text, below = event.type, []
    match event:
        case TraceIngress():
            text = f"in: {_connection(event)}, account {event.account}, as {event.subject}"
        case TraceMapping():
            text = f"mapped to {event.to}"
        case TraceExport():
            text = f"by stream export to account {event.account}, as {event.to}"
        case TraceImport():
            text = f"by service import to account {event.account}, as {event.to}"
        case TraceStream():
            text = f"stream {event.stream}" + (f", as {event.subject}" if event.subject else "")
            text += ", which has no consumer for it" if event.no_interest else ""
        case TraceEgress():
            text = f"out: {_connection(event)}"
            text += f", account {event.account}" if event.account else ""
            text += f", subscription {event.subscription}" if event.subscription else ""
            text += f", queue group {event.queue}" if event.queue else ""
            if (receiver := server.after(event)) is not None:
                below = [_server(receiver)]
            elif event.reports:
                below = [Line("no report")]
    return Line(text + (f": {event.error}" if event.error else ""), below, wrong=bool(event.error))


def _connection(event: TraceIngress | TraceEgress) -> str:
    name = f' "{event.name}"' if event.name else ""
    return f"{event.connection} {event.connection_id}{name}"
