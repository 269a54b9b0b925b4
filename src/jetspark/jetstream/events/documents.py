"""Advisories and metrics as documents: every type of nats-server 2.15.

Events about streams, consumers and API calls are published in their account; those marked "System
account" only there. `events.kinds` maps types to classes.
"""

from __future__ import annotations

import msgspec

from jetspark.errors import DocumentError
from jetspark.jetstream.documents.document import Document, Moment, Span, from_wire
from jetspark.jetstream.documents.streams import ErrorDocument, PeerInfo, StreamState
from jetspark.wire.documents import decode_document
from jetspark.wire.js_api import names_of


class Event(Document, frozen=True, kw_only=True):
    """What all events have in common; one of an unknown type is just this."""

    type: str
    """The whole type, such as "io.nats.jetstream.advisory.v1.max_deliver"."""
    id: str | None = None
    timestamp: Moment | None = None
    domain: str | None = None
    """The JetStream domain of the server that published it."""

    @property
    def kind(self) -> str:
        """The last token of the type, an EventKind if it is known."""
        return self.type.rpartition(".")[2]


class Caller(Document, frozen=True, kw_only=True):
    """The client that made a request. Fields that do not apply are empty."""

    user: str | None = None
    acc: str | None = None
    """Its account."""
    svc: str | None = None
    """The account that serves it, when the API is imported from there."""
    name: str | None = None
    """The connection's name."""
    host: str | None = None
    id: int | None = None
    lang: str | None = None
    ver: str | None = None
    rtt: Span | None = None
    start: Moment | None = None
    stop: Moment | None = None
    server: str | None = None
    cluster: str | None = None
    alts: list[str] | None = None
    jwt: str | None = None
    issuer_key: str | None = None
    name_tag: str | None = None
    tags: list[str] | None = None
    kind: str | None = None
    client_type: str | None = None
    client_id: str | None = None
    """Of an MQTT client."""
    nonce: str | None = None
    reply: str | None = None


# -- the API -----------------------------------------------------------------------------------


class ApiAuditEvent(Event, frozen=True, kw_only=True):
    """A call of the JetStream API: the caller, the request and the whole answer."""

    server: str
    subject: str
    """The subject of the call."""
    response: str
    """The answer as the server sent it, JSON."""
    request: str | None = None
    """The request as the client sent it, JSON; None for an empty one."""
    client: Caller | None = None

    @property
    def stream(self) -> str | None:
        """The stream that the call was about, None for calls about none or all."""
        return names_of(self.subject).get("stream")

    @property
    def consumer(self) -> str | None:
        """The consumer that the call was about."""
        return names_of(self.subject).get("consumer")

    @property
    def error(self) -> ErrorDocument | None:
        """Why the call failed; None when it did not."""
        try:
            found = decode_document(self.response, "answer").get("error")
            return None if found is None else from_wire(ErrorDocument, found)
        except DocumentError:
            return None


class ApiLimitReachedEvent(Event, frozen=True, kw_only=True):
    """A server's queue of API requests was full, and was dropped. System account."""

    server: str
    dropped: int


# -- streams -----------------------------------------------------------------------------------


class StreamActionEvent(Event, frozen=True, kw_only=True):
    """A stream was created, changed or deleted."""

    stream: str
    action: str
    """ "create", "modify" or "delete"."""


class StreamLeaderElectedEvent(Event, frozen=True, kw_only=True):
    """A replicated stream has a new leader."""

    stream: str
    leader: str
    """The server's name."""
    replicas: list[PeerInfo] = msgspec.field(default_factory=list)
    account: str | None = None
    """Only in the system account."""


class StreamQuorumLostEvent(Event, frozen=True, kw_only=True):
    """A replicated stream has no quorum: too few of its servers are available."""

    stream: str
    replicas: list[PeerInfo] = msgspec.field(default_factory=list)
    account: str | None = None
    """Only in the system account."""


class StreamBatchAbandonedEvent(Event, frozen=True, kw_only=True):
    """An atomic batch was abandoned (2.12, ADR-50)."""

    stream: str
    batch: str
    reason: str
    """ "timeout", "large", "incomplete" or "unsupported"."""
    account: str | None = None
    """Only in the system account."""


class SnapshotCreateEvent(Event, frozen=True, kw_only=True):
    """A snapshot (backup) of a stream started."""

    stream: str
    state: StreamState
    client: Caller | None = None


class SnapshotCompleteEvent(Event, frozen=True, kw_only=True):
    """A snapshot (backup) of a stream ended."""

    stream: str
    start: Moment
    end: Moment
    client: Caller | None = None
    error: str | None = None
    """Why it failed; None when it did not, or when the server is older than 2.15."""


class RestoreCreateEvent(Event, frozen=True, kw_only=True):
    """A restore of a stream started."""

    stream: str
    client: Caller | None = None


class RestoreCompleteEvent(Event, frozen=True, kw_only=True):
    """A restore of a stream ended, successfully or not."""

    stream: str
    start: Moment
    end: Moment
    bytes: int
    client: Caller | None = None


# -- consumers ---------------------------------------------------------------------------------


class ConsumerActionEvent(Event, frozen=True, kw_only=True):
    """A consumer was created or deleted."""

    stream: str
    consumer: str
    action: str
    """ "create" or "delete"."""


class ConsumerPauseEvent(Event, frozen=True, kw_only=True):
    """A consumer was paused or resumed (2.11)."""

    stream: str
    consumer: str
    paused: bool
    pause_until: Moment | None = None


class ConsumerLeaderElectedEvent(Event, frozen=True, kw_only=True):
    """A replicated consumer has a new leader."""

    stream: str
    consumer: str
    leader: str
    """The server's name."""
    replicas: list[PeerInfo] = msgspec.field(default_factory=list)
    account: str | None = None
    """Only in the system account."""


class ConsumerQuorumLostEvent(Event, frozen=True, kw_only=True):
    """A replicated consumer has no quorum: too few of its servers are available."""

    stream: str
    consumer: str
    replicas: list[PeerInfo] = msgspec.field(default_factory=list)
    account: str | None = None
    """Only in the system account."""


class ConsumerGroupPinnedEvent(Event, frozen=True, kw_only=True):
    """A priority group has a new pinned client (2.11, ADR-42)."""

    stream: str
    consumer: str
    group: str
    pinned_id: str
    account: str | None = None


class ConsumerGroupUnpinnedEvent(Event, frozen=True, kw_only=True):
    """A priority group has lost its pinned client (2.11, ADR-42)."""

    stream: str
    consumer: str
    group: str
    reason: str
    """ "admin" or "timeout"."""
    account: str | None = None


class ConsumerAckMetric(Event, frozen=True, kw_only=True):
    """A sampled acknowledgement and its delay. See ConsumerConfig.sample_freq."""

    stream: str
    consumer: str
    stream_seq: int
    consumer_seq: int
    ack_time: Span
    """From the delivery to the ack."""
    deliveries: int


class MaxDeliverEvent(Event, frozen=True, kw_only=True):
    """A message was delivered `max_deliver` times without an ack, and will not be again."""

    stream: str
    consumer: str
    stream_seq: int
    deliveries: int


class NakEvent(Event, frozen=True, kw_only=True):
    """A message was negatively acknowledged (`nak`)."""

    stream: str
    consumer: str
    stream_seq: int
    consumer_seq: int
    deliveries: int


class TerminatedEvent(Event, frozen=True, kw_only=True):
    """A message was terminated (`term`), and will not be delivered again."""

    stream: str
    consumer: str
    stream_seq: int
    consumer_seq: int
    deliveries: int
    reason: str | None = None


# -- servers -----------------------------------------------------------------------------------


class DomainLeaderElectedEvent(Event, frozen=True, kw_only=True):
    """The JetStream cluster has a new leader for its metadata. System account."""

    leader: str
    """The id of its peer in the cluster's metadata group."""
    replicas: list[PeerInfo] = msgspec.field(default_factory=list)
    cluster: str | None = None


class ServerOutOfSpaceEvent(Event, frozen=True, kw_only=True):
    """A server ran out of storage and disabled JetStream. System account."""

    server: str
    server_id: str
    stream: str | None = None
    """The stream that noticed it."""
    cluster: str | None = None


class ServerRemovedEvent(Event, frozen=True, kw_only=True):
    """A server was removed from its cluster and disabled JetStream. System account."""

    server: str
    server_id: str
    cluster: str | None = None


class MetaRescueEvent(Event, frozen=True, kw_only=True):
    """The quorum of the cluster's metadata group was lowered by force (2.15). System account."""

    server: str
    server_id: str
    prev_quorum: int
    new_quorum: int
    cluster: str | None = None
