"""Documents about consumers: every field of nats-server 2.15, under its wire name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, TypedDict

import msgspec

from jetspark.documents.document import Document, Moment, Span
from jetspark.documents.streams import ClusterInfo
from jetspark.timestamps import Seconds


class DeliverPolicy(StrEnum):
    """Start of a new consumer in the stream."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    LAST_PER_SUBJECT = "last_per_subject"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"


class AckPolicy(StrEnum):
    """Messages that must be acknowledged."""

    EXPLICIT = "explicit"
    ALL = "all"
    NONE = "none"
    FLOW_CONTROL = "flow_control"


class ReplayPolicy(StrEnum):
    """Pace of delivery: as fast as possible, or as the messages were published."""

    INSTANT = "instant"
    ORIGINAL = "original"


class PriorityPolicy(StrEnum):
    """Order in which pull requests of priority groups are served (ADR-42)."""

    NONE = "none"
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"


class ConsumerConfig(Document, frozen=True, kw_only=True):
    """A consumer's configuration. None: not given (the server's default, or unchanged)."""

    durable_name: str | None = None
    """A consumer with a durable name exists until it is deleted."""
    name: str | None = None
    """A consumer with only a name is removed after `inactive_threshold` (server's default: 5 s)."""
    description: str | None = None
    deliver_policy: Annotated[str, DeliverPolicy] | None = None
    """A DeliverPolicy."""
    opt_start_seq: int | None = None
    opt_start_time: Moment | None = None
    ack_policy: Annotated[str, AckPolicy] | None = None
    """An AckPolicy; `create_consumer` sets "explicit" by default."""
    ack_wait: Span | None = None
    max_deliver: int | None = None
    backoff: list[Span] | None = None
    """Waits before each redelivery, in place of `ack_wait`."""
    filter_subject: str | None = None
    filter_subjects: list[str] | None = None
    """Several filters (2.10); not together with `filter_subject`."""
    replay_policy: Annotated[str, ReplayPolicy] | None = None
    """A ReplayPolicy."""
    rate_limit_bps: int | None = None
    sample_freq: str | None = None
    """Percentage of acks reported as metrics, such as "30%"."""
    max_waiting: int | None = None
    max_ack_pending: int | None = None
    flow_control: bool | None = None
    headers_only: bool | None = None
    max_batch: int | None = None
    """Most messages of one pull request."""
    max_expires: Span | None = None
    max_bytes: int | None = None
    deliver_subject: str | None = None
    """Makes it a push consumer."""
    deliver_group: str | None = None
    idle_heartbeat: Span | None = None
    inactive_threshold: Span | None = None
    num_replicas: int | None = None
    """0: as many as the stream."""
    mem_storage: bool | None = None
    direct: bool | None = None
    """Reserved for the server."""
    sourcing: bool | None = None
    """Reserved for the server (2.14)."""
    metadata: dict[str, str] | None = None
    pause_until: Moment | None = None
    """Delivers nothing until then (2.11)."""
    priority_groups: list[str] | None = None
    priority_policy: Annotated[str, PriorityPolicy] | None = None
    """A PriorityPolicy (2.11)."""
    priority_timeout: Span | None = None
    """Time without a pull after which the pinned client loses its pin (2.11)."""


class ConsumerSettings(TypedDict, total=False):
    """Options for a group's consumers; the group sets the others."""

    description: str | None
    deliver_policy: str | None
    opt_start_seq: int | None
    opt_start_time: datetime | None
    ack_policy: str | None
    max_deliver: int | None
    backoff: Sequence[Seconds] | None
    replay_policy: str | None
    rate_limit_bps: int | None
    sample_freq: str | None
    max_waiting: int | None
    flow_control: bool | None
    headers_only: bool | None
    max_batch: int | None
    max_expires: Seconds | None
    max_bytes: int | None
    deliver_group: str | None
    idle_heartbeat: Seconds | None
    num_replicas: int | None
    mem_storage: bool | None
    direct: bool | None
    sourcing: bool | None
    metadata: Mapping[str, str] | None
    pause_until: datetime | None
    extra: dict[str, Any]


class ConsumerOptions(ConsumerSettings, total=False):
    """The fields of ConsumerConfig as options, for type checkers. Times may be seconds."""

    durable_name: str | None
    name: str | None
    ack_wait: Seconds | None
    filter_subject: str | None
    filter_subjects: str | Iterable[str] | None
    max_ack_pending: int | None
    deliver_subject: str | None
    inactive_threshold: Seconds | None
    priority_groups: str | Iterable[str] | None
    priority_policy: str | None
    priority_timeout: Seconds | None


class PauseState(Document, frozen=True, kw_only=True):
    """Whether a consumer is paused, and for how long (2.11)."""

    paused: bool = False
    pause_until: Moment | None = None
    pause_remaining: Span | None = None


class SequenceInfo(Document, frozen=True, kw_only=True):
    """A position, as consumer sequence and as stream sequence."""

    consumer_seq: int = 0
    stream_seq: int = 0
    last_active: Moment | None = None


class PriorityGroupState(Document, frozen=True, kw_only=True):
    """The pinned client of a priority group."""

    group: str
    pinned_client_id: str | None = None
    pinned_ts: Moment | None = None


class ConsumerInfo(Document, frozen=True, kw_only=True):
    """A consumer: its configuration and state."""

    stream_name: str
    name: str
    created: Moment
    config: ConsumerConfig = msgspec.field(default_factory=ConsumerConfig)
    delivered: SequenceInfo = msgspec.field(default_factory=SequenceInfo)
    ack_floor: SequenceInfo = msgspec.field(default_factory=SequenceInfo)
    """The position up to which everything is acknowledged."""
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0
    """Pull requests waiting."""
    num_pending: int = 0
    """Messages not yet delivered."""
    cluster: ClusterInfo | None = None
    push_bound: bool = False
    paused: bool = False
    pause_remaining: Span | None = None
    ts: Moment | None = None
    """When the server answered."""
    priority_groups: list[PriorityGroupState] = msgspec.field(default_factory=list)
