"""Documents about streams: every field of nats-server 2.15, under its wire name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Self, TypedDict

import msgspec

from jetspark.documents.document import Document, Moment, Span
from jetspark.timestamps import Seconds
from jetspark.wire.headers import Headers, PayloadCodec, codec_of, parse_headers
from jetspark.wire.js_api import api_prefix_of


class RetentionPolicy(StrEnum):
    """When messages are removed: by limits only, without interest, or after one acknowledgement."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORK_QUEUE = "workqueue"


class DiscardPolicy(StrEnum):
    """Messages that a full stream discards: its oldest ones, or new ones."""

    OLD = "old"
    NEW = "new"


class StorageType(StrEnum):
    FILE = "file"
    MEMORY = "memory"


class Compression(StrEnum):
    NONE = "none"
    S2 = "s2"


class PersistMode(StrEnum):
    """Whether the server syncs before it acks, or later (2.12)."""

    DEFAULT = "default"
    ASYNC = "async"


class Placement(Document, frozen=True, kw_only=True):
    """Placement: a cluster, servers with all these tags, a preferred leader."""

    cluster: str | None = None
    tags: list[str] | None = None
    preferred: str | None = None


class External(Document, frozen=True, kw_only=True):
    """The route to a stream of another domain (`of_domain`) or account.

    `api` is the prefix of its API ("$JS.hub.API" for the domain "hub"; for another account, the
    subject that imports its API). `deliver` is the prefix of its delivery subjects, when only some
    are imported.
    """

    api: str
    deliver: str = ""

    @classmethod
    def of_domain(cls, domain: str, *, deliver: str = "") -> Self:
        """The stream's address in a JetStream domain. Raises BadNameError."""
        return cls(api=api_prefix_of(domain, None), deliver=deliver)


class SubjectTransform(Document, frozen=True, kw_only=True):
    """Subjects that match `src` are stored as `dest`."""

    src: str
    dest: str


class SourceConsumer(Document, frozen=True, kw_only=True):
    """An existing consumer that a source or mirror reads through."""

    name: str | None = None
    deliver_subject: str | None = None


class Source(Document, frozen=True, kw_only=True):
    """An origin of a stream: one of its `sources`, or its `mirror`."""

    name: str
    opt_start_seq: int | None = None
    opt_start_time: Moment | None = None
    filter_subject: str | None = None
    subject_transforms: list[SubjectTransform] | None = None
    external: External | None = None
    consumer: SourceConsumer | None = None


class Republish(Document, frozen=True, kw_only=True):
    """Republish stored messages as core NATS messages."""

    dest: str
    src: str | None = None
    """None for all subjects of the stream."""
    headers_only: bool | None = None


class ConsumerLimits(Document, frozen=True, kw_only=True):
    """Upper limits, and defaults, for the stream's consumers."""

    inactive_threshold: Span | None = None
    max_ack_pending: int | None = None


class StreamConfig(Document, frozen=True, kw_only=True):
    """A stream's configuration. None: not given (the default, or unchanged)."""

    name: str | None = None
    description: str | None = None
    subjects: list[str] | None = None
    """The stream's subjects; wildcards allowed."""
    retention: Annotated[str, RetentionPolicy] | None = None
    """A RetentionPolicy."""
    max_consumers: int | None = None
    max_msgs: int | None = None
    max_bytes: int | None = None
    max_age: Span | None = None
    max_msgs_per_subject: int | None = None
    max_msg_size: int | None = None
    """Bytes of one message, headers included."""
    discard: Annotated[str, DiscardPolicy] | None = None
    """A DiscardPolicy."""
    discard_new_per_subject: bool | None = None
    storage: Annotated[str, StorageType] | None = None
    """A StorageType."""
    num_replicas: int | None = None
    no_ack: bool | None = None
    duplicate_window: Span | None = None
    """Time for which a Nats-Msg-Id is remembered."""
    placement: Placement | None = None
    mirror: Source | None = None
    sources: list[Source] | None = None
    compression: Annotated[str, Compression] | None = None
    """A Compression (2.10)."""
    first_seq: int | None = None
    """Sequence of the first message of a new stream (2.10)."""
    subject_transform: SubjectTransform | None = None
    republish: Republish | None = None
    allow_direct: bool | None = None
    mirror_direct: bool | None = None
    sealed: bool | None = None
    deny_delete: bool | None = None
    deny_purge: bool | None = None
    allow_rollup_hdrs: bool | None = None
    consumer_limits: ConsumerLimits | None = None
    allow_msg_ttl: bool | None = None
    """Per-message TTL, ADR-43 (2.11)."""
    subject_delete_marker_ttl: Span | None = None
    allow_msg_counter: bool | None = None
    """Counters, ADR-49 (2.12)."""
    allow_atomic: bool | None = None
    """Atomic batches, ADR-50 (2.12)."""
    allow_msg_schedules: bool | None = None
    """Scheduled messages, ADR-51 (2.12)."""
    persist_mode: Annotated[str, PersistMode] | None = None
    """A PersistMode (2.12)."""
    allow_batched: bool | None = None
    """Fast-ingest batches, ADR-50 (2.14)."""
    metadata: dict[str, str] | None = None
    template_owner: str | None = None
    """The template that created the stream (servers before 2.11)."""


class StreamSettings(TypedDict, total=False):
    """Options of a stream whose name and origins are set elsewhere."""

    description: str | None
    max_consumers: int | None
    max_msgs: int | None
    max_bytes: int | None
    max_age: Seconds | None
    max_msgs_per_subject: int | None
    max_msg_size: int | None
    discard: str | None
    discard_new_per_subject: bool | None
    storage: str | None
    num_replicas: int | None
    no_ack: bool | None
    duplicate_window: Seconds | None
    placement: Placement | Mapping[str, Any] | None
    compression: str | None
    first_seq: int | None
    subject_transform: SubjectTransform | Mapping[str, Any] | None
    republish: Republish | Mapping[str, Any] | None
    allow_direct: bool | None
    mirror_direct: bool | None
    sealed: bool | None
    deny_delete: bool | None
    deny_purge: bool | None
    allow_rollup_hdrs: bool | None
    consumer_limits: ConsumerLimits | Mapping[str, Any] | None
    allow_msg_ttl: bool | None
    subject_delete_marker_ttl: Seconds | None
    allow_msg_counter: bool | None
    allow_atomic: bool | None
    allow_msg_schedules: bool | None
    persist_mode: str | None
    allow_batched: bool | None
    metadata: Mapping[str, str] | None
    template_owner: str | None
    extra: dict[str, Any]


class UnnamedStreamOptions(StreamSettings, total=False):
    """Options of a stream whose name is set elsewhere."""

    subjects: str | Iterable[str] | None
    retention: str | None
    mirror: Source | Mapping[str, Any] | None
    sources: Iterable[Source | Mapping[str, Any]] | None


class StreamOptions(UnnamedStreamOptions, total=False):
    """The fields of StreamConfig as options, for type checkers. Times may be seconds."""

    name: str | None


class LostData(Document, frozen=True, kw_only=True):
    """Messages that the store found damaged."""

    msgs: list[int] = msgspec.field(default_factory=list)
    bytes: int = 0


class StreamState(Document, frozen=True, kw_only=True):
    """The state of a stream. Times are None until the first message."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first_ts: Moment | None = None
    last_ts: Moment | None = None
    num_subjects: int = 0
    subjects: dict[str, int] | None = None
    """Messages by subject, if requested."""
    num_deleted: int = 0
    deleted: list[int] | None = None
    """Sequences deleted between first and last, if requested."""
    lost: LostData | None = None
    consumer_count: int = 0


class ErrorDocument(Document, frozen=True, kw_only=True):
    """An error inside a document."""

    code: int
    err_code: int = 0
    description: str = ""


class SourceInfo(Document, frozen=True, kw_only=True):
    """The state of one source or of the mirror."""

    name: str
    external: External | None = None
    lag: int = 0
    """Messages still to be copied."""
    seq: int = 0
    active: Span | None = None
    """Time since the last contact; -1 ns: never."""
    error: ErrorDocument | None = None
    filter_subject: str | None = None
    subject_transforms: list[SubjectTransform] | None = None


class Alternate(Document, frozen=True, kw_only=True):
    """A mirror of the stream, nearest first."""

    name: str
    cluster: str = ""
    domain: str | None = None


class PeerInfo(Document, frozen=True, kw_only=True):
    """A server that replicates the stream or consumer."""

    name: str
    current: bool = False
    offline: bool = False
    active: Span | None = None
    lag: int = 0
    peer: str = ""
    pending: bool = False


class DesiredPeer(Document, frozen=True, kw_only=True):
    """A server that will replicate the stream or consumer."""

    name: str
    offline: bool = False
    peer: str = ""


class MoveOrigin(Document, frozen=True, kw_only=True):
    """The cluster from which a stream or consumer moves."""

    replicas: int = 0
    placement: Placement | None = None
    retention: str | None = None


class MoveStatus(Document, frozen=True, kw_only=True):
    """The progress of a move."""

    description: str = ""
    type: Any = None
    err: str | None = None


class DesiredCluster(Document, frozen=True, kw_only=True):
    """The cluster to which a stream or consumer moves (2.15)."""

    created: Moment | None = None
    name: str | None = None
    replicas: list[DesiredPeer] = msgspec.field(default_factory=list)
    origin: MoveOrigin | None = None
    status: MoveStatus | None = None


class ClusterInfo(Document, frozen=True, kw_only=True):
    """The replicas and the leader."""

    name: str | None = None
    raft_group: str | None = None
    leader: str | None = None
    leader_since: Moment | None = None
    system_account: bool = False
    traffic_account: str | None = None
    replicas: list[PeerInfo] = msgspec.field(default_factory=list)
    desired: DesiredCluster | None = None


class StreamInfo(Document, frozen=True, kw_only=True):
    """A stream: its configuration, creation time and state."""

    config: StreamConfig
    created: Moment
    state: StreamState
    domain: str | None = None
    cluster: ClusterInfo | None = None
    mirror: SourceInfo | None = None
    sources: list[SourceInfo] = msgspec.field(default_factory=list)
    alternates: list[Alternate] = msgspec.field(default_factory=list)
    ts: Moment | None = None
    """When the server answered."""
    did_create: bool = False
    """Set in the answer to create_stream; also true when an equal stream existed."""

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.config.name or ""


class PubAck(Document, frozen=True, kw_only=True):
    """The ack of a published message: stream and sequence."""

    stream: str
    seq: int
    duplicate: bool = False
    """A message with this Nats-Msg-Id was stored before; `seq` is its sequence."""
    domain: str | None = None
    val: str | None = None
    """A counter's value after this message (ADR-49)."""
    batch: str | None = None
    count: int | None = None
    """Messages of the batch (ADR-50)."""


class StoredMsg(Document, frozen=True, kw_only=True):
    """A message stored in a stream."""

    subject: str
    seq: int
    time: Moment
    data: bytes = b""
    hdrs: bytes | None = None
    """The published header block."""

    @property
    def headers(self) -> Headers | None:
        """The headers; None when there are none. Raises BadHeaderError when malformed."""
        return None if self.hdrs is None else parse_headers(self.hdrs)[0]

    def decode(self, codec: PayloadCodec) -> Any:
        """The value of the payload. Raises CodecError, BadHeaderError, as the codec's registry."""
        return codec_of(codec).decode(self.data, self.headers)


class AccountLimits(Document, frozen=True, kw_only=True):
    """-1 for no limit."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
    max_bytes_required: bool = False


class Tier(Document, frozen=True, kw_only=True):
    """Usage and limits of an account, in bytes and counts."""

    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    streams: int = 0
    consumers: int = 0
    limits: AccountLimits | None = None


class APIStats(Document, frozen=True, kw_only=True):
    """The account's API calls; `level` is the API level of the server (2.11)."""

    total: int = 0
    errors: int = 0
    level: int = 0
    inflight: int = 0


class AccountInfo(Tier, frozen=True, kw_only=True):
    """JetStream usage and limits of the account."""

    api: APIStats | None = None
    domain: str | None = None
    tiers: dict[str, Tier] | None = None
    """Limits by replica class ("R1", "R3") when the account has tiered limits."""
