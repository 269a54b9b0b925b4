"""The kinds of events: their types, classes and subjects.

Contract: pure. An unknown type, or one that a newer server writes differently, becomes a plain
Event with its fields in `extra`. The subjects subscribed to never overlap, so no event comes twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from jetspark.errors import ConfigError, DocumentError
from jetspark.jetstream.documents.document import from_wire
from jetspark.jetstream.events import documents
from jetspark.jetstream.events.documents import Event
from jetspark.subjects import check_name, check_publish_subject, nearest_name
from jetspark.wire.documents import decode_document

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


class _Sort(NamedTuple):
    cls: type[Event]
    subjects: tuple[str, ...]
    """After the prefix."""


_STREAM = "ADVISORY.STREAM.{}.{{stream}}".format
_CONSUMER = "ADVISORY.CONSUMER.{}.{{stream}}.{{consumer}}".format
_SERVER = "ADVISORY.SERVER.{}".format

# Two kinds have a second subject: the documentation has another one than the servers use.
_ACK_OF_DOCUMENT = "METRIC.CONSUMER_ACK.{stream}.{consumer}"
_MAX_DELIVER_OF_DOCUMENT = "ADVISORY.MAX_DELIVERIES.{stream}.{consumer}"

_SORTS: Final[dict[EventKind, _Sort]] = {
    EventKind.API_AUDIT: _Sort(documents.ApiAuditEvent, ("ADVISORY.API",)),
    EventKind.API_LIMIT_REACHED: _Sort(
        documents.ApiLimitReachedEvent, ("ADVISORY.API.LIMIT_REACHED",)
    ),
    EventKind.CONSUMER_ACK: _Sort(
        documents.ConsumerAckMetric,
        ("METRIC.CONSUMER.ACK.{stream}.{consumer}", _ACK_OF_DOCUMENT),
    ),
    EventKind.CONSUMER_ACTION: _Sort(
        documents.ConsumerActionEvent, (_CONSUMER("CREATED"), _CONSUMER("DELETED"))
    ),
    EventKind.CONSUMER_GROUP_PINNED: _Sort(
        documents.ConsumerGroupPinnedEvent, (_CONSUMER("PINNED"),)
    ),
    EventKind.CONSUMER_GROUP_UNPINNED: _Sort(
        documents.ConsumerGroupUnpinnedEvent, (_CONSUMER("UNPINNED"),)
    ),
    EventKind.CONSUMER_LEADER_ELECTED: _Sort(
        documents.ConsumerLeaderElectedEvent, (_CONSUMER("LEADER_ELECTED"),)
    ),
    EventKind.CONSUMER_PAUSE: _Sort(documents.ConsumerPauseEvent, (_CONSUMER("PAUSE"),)),
    EventKind.CONSUMER_QUORUM_LOST: _Sort(
        documents.ConsumerQuorumLostEvent, (_CONSUMER("QUORUM_LOST"),)
    ),
    EventKind.DOMAIN_LEADER_ELECTED: _Sort(
        documents.DomainLeaderElectedEvent, ("ADVISORY.DOMAIN.LEADER_ELECTED",)
    ),
    EventKind.MAX_DELIVER: _Sort(
        documents.MaxDeliverEvent, (_CONSUMER("MAX_DELIVERIES"), _MAX_DELIVER_OF_DOCUMENT)
    ),
    EventKind.META_RESCUE: _Sort(documents.MetaRescueEvent, (_SERVER("META_RESCUE"),)),
    EventKind.NAK: _Sort(documents.NakEvent, (_CONSUMER("MSG_NAKED"),)),
    EventKind.RESTORE_COMPLETE: _Sort(
        documents.RestoreCompleteEvent, (_STREAM("RESTORE_COMPLETE"),)
    ),
    EventKind.RESTORE_CREATE: _Sort(documents.RestoreCreateEvent, (_STREAM("RESTORE_CREATE"),)),
    EventKind.SERVER_OUT_OF_SPACE: _Sort(
        documents.ServerOutOfSpaceEvent, (_SERVER("OUT_OF_STORAGE"),)
    ),
    EventKind.SERVER_REMOVED: _Sort(documents.ServerRemovedEvent, (_SERVER("REMOVED"),)),
    EventKind.SNAPSHOT_COMPLETE: _Sort(
        documents.SnapshotCompleteEvent, (_STREAM("SNAPSHOT_COMPLETE"),)
    ),
    EventKind.SNAPSHOT_CREATE: _Sort(documents.SnapshotCreateEvent, (_STREAM("SNAPSHOT_CREATE"),)),
    EventKind.STREAM_ACTION: _Sort(
        documents.StreamActionEvent, (_STREAM("CREATED"), _STREAM("UPDATED"), _STREAM("DELETED"))
    ),
    EventKind.STREAM_BATCH_ABANDONED: _Sort(
        documents.StreamBatchAbandonedEvent, (_STREAM("BATCH_ABANDONED"),)
    ),
    EventKind.STREAM_LEADER_ELECTED: _Sort(
        documents.StreamLeaderElectedEvent, (_STREAM("LEADER_ELECTED"),)
    ),
    EventKind.STREAM_QUORUM_LOST: _Sort(documents.StreamQuorumLostEvent, (_STREAM("QUORUM_LOST"),)),
    EventKind.TERMINATED: _Sort(documents.TerminatedEvent, (_CONSUMER("MSG_TERMINATED"),)),
}

# By the whole type with its version: another version may have another shape.
EVENT_TYPES: Final[dict[str, type[Event]]] = {
    f"io.nats.jetstream.{sort.subjects[0].partition('.')[0].lower()}.v1.{kind}": sort.cls
    for kind, sort in _SORTS.items()
}

# Everything about one stream or consumer, future kinds too. API audits and out-of-space advisories
# have the stream in their payload only: those are filtered here.
_OF_ALL_STREAMS: Final = ("ADVISORY.API", _SERVER("OUT_OF_STORAGE"))
_OF_A_STREAM: Final = (_STREAM("*"),)
_OF_A_CONSUMER: Final = (
    _CONSUMER("*"),
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
            pass  # written differently: kept as it came
    return from_wire(Event, raw)


def event_kinds(kinds: str | Iterable[str]) -> frozenset[EventKind]:
    """Words as kinds. Raises ConfigError, which suggests a similar one, for an unknown word."""
    known = {str(kind): kind for kind in EventKind}
    words = [kinds] if isinstance(kinds, str) else list(kinds)
    if not words:
        raise ConfigError("kinds is empty; None means all.")
    for word in words:
        if str(word) not in known:
            near = nearest_name(str(word), known)
            hint = f"; did you mean {near!r}?" if near else f"; there are {', '.join(known)}."
            raise ConfigError(f"No events are of kind {word!r}{hint}")
    return frozenset(known[str(word)] for word in words)


def event_subjects(
    kinds: Iterable[str] | None = None,
    stream: str | None = None,
    consumer: str | None = None,
    *,
    prefix: str = DEFAULT_EVENT_PREFIX,
) -> list[str]:
    """What to subscribe to for these events, as narrow as subjects allow.

    Raises ConfigError for an unknown kind, and for one without a stream or consumer when one is
    given; BadNameError, BadSubjectError.
    """
    check_publish_subject(prefix)
    names = {"stream": "*", "consumer": "*"}
    for what, name in (("stream", stream), ("consumer", consumer)):
        if name is not None:
            names[what] = check_name(what, name)
    if kinds is None and stream is None and consumer is None:
        return [f"{prefix}.>"]
    if kinds is not None:
        wanted = sorted(event_kinds(kinds))
        _check_told(wanted, stream, consumer)
        tails = [subject for kind in wanted for subject in _SORTS[kind].subjects]
    elif consumer is not None:
        tails = [_OF_ALL_STREAMS[0], *_OF_A_CONSUMER]
    else:
        tails = [*_OF_ALL_STREAMS, *_OF_A_STREAM, *_OF_A_CONSUMER]
    return [f"{prefix}.{tail.format_map(names)}" for tail in tails]


def _check_told(kinds: Iterable[EventKind], stream: str | None, consumer: str | None) -> None:
    for what, name in (("stream", stream), ("consumer", consumer)):
        for kind in kinds if name is not None else ():
            if not hasattr(_SORTS[kind].cls, what):
                raise ConfigError(f"Events of kind {str(kind)!r} are about no {what}.")
