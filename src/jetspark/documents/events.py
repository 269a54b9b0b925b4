"""Advisories and metrics as documents: every type of nats-server 2.15.

Events about streams, consumers and API calls are published in their account; those marked "System
account" only there.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import product
from typing import Final

import msgspec

from jetspark.documents.document import Document, Moment, Span, from_wire
from jetspark.documents.streams import ErrorDocument, PeerInfo, StreamState
from jetspark.errors import ConfigError, DocumentError
from jetspark.nearest import did_you_mean_or_list
from jetspark.subjects import check_name, check_publish_subject
from jetspark.validation import texts_of
from jetspark.wire.documents import decode_document
from jetspark.wire.js_api import names_of


class Event(Document, frozen=True, kw_only=True):
    """The common fields of all events; an event of an unknown type has only these."""

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
    """The account of the client."""
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
    """The id of an MQTT client."""
    nonce: str | None = None
    reply: str | None = None


class StreamEvent(Event, frozen=True, kw_only=True):
    """The common fields of events about a stream."""

    stream: str
    account: str | None = None
    """Only in the system account, and there not in every event."""


class ConsumerEvent(StreamEvent, frozen=True, kw_only=True):
    """The common fields of events about a consumer."""

    consumer: str


class DeliveryEvent(ConsumerEvent, frozen=True, kw_only=True):
    """The common fields of events about the delivery of a message."""

    stream_seq: int
    deliveries: int


class ServerEvent(Event, frozen=True, kw_only=True):
    """The common fields of events about a server. System account."""

    server: str
    server_id: str
    cluster: str | None = None


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
        """The stream that the call was about; None for calls about none or all."""
        return names_of(self.subject).get("stream")

    @property
    def consumer(self) -> str | None:
        """The consumer that the call was about."""
        return names_of(self.subject).get("consumer")

    @property
    def error(self) -> ErrorDocument | None:
        """Why the call failed; None for success."""
        try:
            error = decode_document(self.response, "answer").get("error")
            return None if error is None else from_wire(ErrorDocument, error)
        except DocumentError:
            return None


class ApiLimitReachedEvent(Event, frozen=True, kw_only=True):
    """A server's queue of API requests was full, and was dropped. System account."""

    server: str
    dropped: int


# -- streams -----------------------------------------------------------------------------------


class StreamActionEvent(StreamEvent, frozen=True, kw_only=True):
    """A stream was created, changed or deleted."""

    action: str
    """ "create", "modify" or "delete"."""


class StreamLeaderElectedEvent(StreamEvent, frozen=True, kw_only=True):
    """A replicated stream has a new leader."""

    leader: str
    """The server's name."""
    replicas: list[PeerInfo] = msgspec.field(default_factory=list)


class StreamQuorumLostEvent(StreamEvent, frozen=True, kw_only=True):
    """A replicated stream has no quorum: too few of its servers are available."""

    replicas: list[PeerInfo] = msgspec.field(default_factory=list)


class StreamBatchAbandonedEvent(StreamEvent, frozen=True, kw_only=True):
    """An atomic batch was abandoned (2.12, ADR-50)."""

    batch: str
    reason: str
    """ "timeout", "large", "incomplete" or "unsupported"."""


class SnapshotCreateEvent(StreamEvent, frozen=True, kw_only=True):
    """A snapshot (backup) of a stream started."""

    state: StreamState
    client: Caller | None = None


class SnapshotCompleteEvent(StreamEvent, frozen=True, kw_only=True):
    """A snapshot (backup) of a stream ended."""

    start: Moment
    end: Moment
    client: Caller | None = None
    error: str | None = None
    """Why it failed; None for success, or before server 2.15."""


class RestoreCreateEvent(StreamEvent, frozen=True, kw_only=True):
    """A restore of a stream started."""

    client: Caller | None = None


class RestoreCompleteEvent(StreamEvent, frozen=True, kw_only=True):
    """A restore of a stream ended, successfully or not."""

    start: Moment
    end: Moment
    bytes: int
    client: Caller | None = None


# -- consumers ---------------------------------------------------------------------------------


class ConsumerActionEvent(ConsumerEvent, frozen=True, kw_only=True):
    """A consumer was created or deleted."""

    action: str
    """ "create" or "delete"."""


class ConsumerPauseEvent(ConsumerEvent, frozen=True, kw_only=True):
    """A consumer was paused or resumed (2.11)."""

    paused: bool
    pause_until: Moment | None = None


class ConsumerLeaderElectedEvent(ConsumerEvent, frozen=True, kw_only=True):
    """A replicated consumer has a new leader."""

    leader: str
    """The server's name."""
    replicas: list[PeerInfo] = msgspec.field(default_factory=list)


class ConsumerQuorumLostEvent(ConsumerEvent, frozen=True, kw_only=True):
    """A replicated consumer has no quorum: too few of its servers are available."""

    replicas: list[PeerInfo] = msgspec.field(default_factory=list)


class ConsumerGroupPinnedEvent(ConsumerEvent, frozen=True, kw_only=True):
    """A priority group has a new pinned client (2.11, ADR-42)."""

    group: str
    pinned_id: str


class ConsumerGroupUnpinnedEvent(ConsumerEvent, frozen=True, kw_only=True):
    """A priority group has lost its pinned client (2.11, ADR-42)."""

    group: str
    reason: str
    """ "admin" or "timeout"."""


class ConsumerAckMetric(DeliveryEvent, frozen=True, kw_only=True):
    """A sampled acknowledgement and its delay. See ConsumerConfig.sample_freq."""

    consumer_seq: int
    ack_time: Span
    """Time from the delivery to the ack."""


class MaxDeliverEvent(DeliveryEvent, frozen=True, kw_only=True):
    """A message was delivered `max_deliver` times without an ack, and will not be again."""


class NakEvent(DeliveryEvent, frozen=True, kw_only=True):
    """A message was negatively acknowledged (`nak`)."""

    consumer_seq: int


class TerminatedEvent(DeliveryEvent, frozen=True, kw_only=True):
    """A message was terminated (`term`), and will not be delivered again."""

    consumer_seq: int
    reason: str | None = None


# -- servers -----------------------------------------------------------------------------------


class DomainLeaderElectedEvent(Event, frozen=True, kw_only=True):
    """The JetStream cluster has a new leader for its metadata. System account."""

    leader: str
    """The id of its peer in the cluster's metadata group."""
    replicas: list[PeerInfo] = msgspec.field(default_factory=list)
    cluster: str | None = None


class ServerOutOfSpaceEvent(ServerEvent, frozen=True, kw_only=True):
    """A server ran out of storage and disabled JetStream."""

    stream: str | None = None
    """The stream where it was noticed."""


class ServerRemovedEvent(ServerEvent, frozen=True, kw_only=True):
    """A server was removed from its cluster and disabled JetStream."""


class MetaRescueEvent(ServerEvent, frozen=True, kw_only=True):
    """The quorum of the cluster's metadata group was lowered by force (2.15)."""

    prev_quorum: int
    new_quorum: int


# -------------------------------------------------------------------------------------------------
# The kinds of events: their types, classes and subjects.
#
# Contract: pure. An unknown type, or one that a newer server writes differently, becomes a plain
# Event with its fields in `extra`. The subscribed subjects never overlap, so no event arrives
# twice.


DEFAULT_EVENT_PREFIX: Final = "$JS.EVENT"


class EventKind(StrEnum):
    """The kinds of events, by the last token of their type."""

    API_AUDIT = "api_audit"
    API_LIMIT_REACHED = "api_limit_reached"
    CONSUMER_ACK = "consumer_ack"
    CONSUMER_ACTION = "consumer_action"
    CONSUMER_GROUP_PINNED = "consumer_group_pinned"
    CONSUMER_GROUP_UNPINNED = "consumer_group_unpinned"
    CONSUMER_LEADER_ELECTED = "consumer_leader_elected"
    CONSUMER_PAUSE = "consumer_pause"
    CONSUMER_QUORUM_LOST = "consumer_quorum_lost"
    DOMAIN_LEADER_ELECTED = "domain_leader_elected"
    MAX_DELIVER = "max_deliver"
    META_RESCUE = "meta_rescue"
    NAK = "nak"
    RESTORE_COMPLETE = "restore_complete"
    RESTORE_CREATE = "restore_create"
    SERVER_OUT_OF_SPACE = "server_out_of_space"
    SERVER_REMOVED = "server_removed"
    SNAPSHOT_COMPLETE = "snapshot_complete"
    SNAPSHOT_CREATE = "snapshot_create"
    STREAM_ACTION = "stream_action"
    STREAM_BATCH_ABANDONED = "stream_batch_abandoned"
    STREAM_LEADER_ELECTED = "stream_leader_elected"
    STREAM_QUORUM_LOST = "stream_quorum_lost"
    TERMINATED = "terminated"


def _stream(*events: str) -> tuple[str, ...]:
    return tuple(f"ADVISORY.STREAM.{event}.{{stream}}" for event in events)


def _consumer(*events: str) -> tuple[str, ...]:
    return tuple(f"ADVISORY.CONSUMER.{event}.{{stream}}.{{consumer}}" for event in events)


# Two kinds have a second subject, since the documentation's differs from the servers'.
_ACK_OF_DOCUMENT = "METRIC.CONSUMER_ACK.{stream}.{consumer}"
_MAX_DELIVER_OF_DOCUMENT = "ADVISORY.MAX_DELIVERIES.{stream}.{consumer}"

_CLASSES: Final[dict[type[Event], tuple[str, ...]]] = {
    ApiAuditEvent: ("ADVISORY.API",),
    ApiLimitReachedEvent: ("ADVISORY.API.LIMIT_REACHED",),
    ConsumerAckMetric: ("METRIC.CONSUMER.ACK.{stream}.{consumer}", _ACK_OF_DOCUMENT),
    ConsumerActionEvent: _consumer("CREATED", "DELETED"),
    ConsumerGroupPinnedEvent: _consumer("PINNED"),
    ConsumerGroupUnpinnedEvent: _consumer("UNPINNED"),
    ConsumerLeaderElectedEvent: _consumer("LEADER_ELECTED"),
    ConsumerPauseEvent: _consumer("PAUSE"),
    ConsumerQuorumLostEvent: _consumer("QUORUM_LOST"),
    DomainLeaderElectedEvent: ("ADVISORY.DOMAIN.LEADER_ELECTED",),
    MaxDeliverEvent: (*_consumer("MAX_DELIVERIES"), _MAX_DELIVER_OF_DOCUMENT),
    MetaRescueEvent: ("ADVISORY.SERVER.META_RESCUE",),
    NakEvent: _consumer("MSG_NAKED"),
    RestoreCompleteEvent: _stream("RESTORE_COMPLETE"),
    RestoreCreateEvent: _stream("RESTORE_CREATE"),
    ServerOutOfSpaceEvent: ("ADVISORY.SERVER.OUT_OF_STORAGE",),
    ServerRemovedEvent: ("ADVISORY.SERVER.REMOVED",),
    SnapshotCompleteEvent: _stream("SNAPSHOT_COMPLETE"),
    SnapshotCreateEvent: _stream("SNAPSHOT_CREATE"),
    StreamActionEvent: _stream("CREATED", "UPDATED", "DELETED"),
    StreamBatchAbandonedEvent: _stream("BATCH_ABANDONED"),
    StreamLeaderElectedEvent: _stream("LEADER_ELECTED"),
    StreamQuorumLostEvent: _stream("QUORUM_LOST"),
    TerminatedEvent: _consumer("MSG_TERMINATED"),
}
"""The classes in the order of EventKind, and their subjects after the prefix."""
_KINDS: Final = dict(zip(EventKind, _CLASSES.items(), strict=True))

# Keyed by the whole type with its version, since another version may have another shape.
EVENT_TYPES: Final[dict[str, type[Event]]] = {
    f"io.nats.jetstream.{subjects[0].partition('.')[0].lower()}.v1.{kind}": cls
    for kind, (cls, subjects) in _KINDS.items()
}

# Everything about one stream or consumer, future kinds too. API audits and out-of-space advisories
# have the stream only in their payload, and are filtered here.
_OF_ALL_STREAMS: Final = ("ADVISORY.API", "ADVISORY.SERVER.OUT_OF_STORAGE")
_OF_A_STREAM: Final = _stream("*")
_OF_A_CONSUMER: Final = (
    *_consumer("*"),
    "METRIC.CONSUMER.*.{stream}.{consumer}",
    _MAX_DELIVER_OF_DOCUMENT,
    _ACK_OF_DOCUMENT,
)


def parse_event(data: bytes) -> Event:
    """The event in a payload. Raises JetStreamError when it is not one."""
    raw = decode_document(data, "event")
    cls = EVENT_TYPES.get(str(raw.get("type")))
    if cls is not None:
        try:
            return from_wire(cls, raw)
        except DocumentError:
            pass  # written differently: kept unchanged
    return from_wire(Event, raw)


def event_kinds(kinds: str | Iterable[str]) -> frozenset[EventKind]:
    """Words as kinds. Raises ConfigError, which suggests a similar one, for an unknown word."""
    kinds_by_name = {str(kind): kind for kind in EventKind}
    words = texts_of("kinds", kinds)
    if not words:
        raise ConfigError("kinds is empty; None means all.")
    for word in words:
        if str(word) not in kinds_by_name:
            hint = did_you_mean_or_list(str(word), kinds_by_name)
            raise ConfigError(f"There is no kind of event {word!r}{hint}")
    return frozenset(kinds_by_name[str(word)] for word in words)


def event_subjects(
    kinds: Iterable[str] | None = None,
    stream: str | None = None,
    consumer: str | None = None,
    *,
    prefix: str = DEFAULT_EVENT_PREFIX,
) -> list[str]:
    """The subjects of these events, as narrow as possible.

    Raises ConfigError for an unknown kind, and for one without a stream or consumer when one is
    given; BadNameError, BadSubjectError.
    """
    check_publish_subject(prefix)
    names = {"stream": "*", "consumer": "*"}
    for role, name in (("stream", stream), ("consumer", consumer)):
        if name is not None:
            names[role] = check_name(role, name)
    if kinds is None and stream is None and consumer is None:
        return [f"{prefix}.>"]
    if kinds is not None:
        selected = sorted(event_kinds(kinds))
        roles = [w for w, name in (("stream", stream), ("consumer", consumer)) if name is not None]
        for role, kind in product(roles, selected):
            if not hasattr(_KINDS[kind][0], role):
                raise ConfigError(f"Events of kind {str(kind)!r} do not name a {role}.")
        tails = [subject for kind in selected for subject in _KINDS[kind][1]]
    elif consumer is not None:
        tails = [_OF_ALL_STREAMS[0], *_OF_A_CONSUMER]
    else:
        tails = [*_OF_ALL_STREAMS, *_OF_A_STREAM, *_OF_A_CONSUMER]
    return [f"{prefix}.{tail.format_map(names)}" for tail in tails]
