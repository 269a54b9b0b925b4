"""The answers of servers in the system account. Pure.

Field names are those of the wire. Fields that are stable since server 2.10 are typed; the others
are in `extra`, and parts that change often are parsed JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from jetspark.documents.document import Document, Moment, Span
from jetspark.documents.streams import ErrorDocument, StreamState

DataT_co = TypeVar("DataT_co", covariant=True)


class ServerSummary(Document, frozen=True, kw_only=True):
    """The server that answers."""

    name: str
    id: str
    host: str = ""
    cluster: str = ""
    domain: str = ""
    ver: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    jetstream: bool = False
    time: Moment | None = None


@dataclass(frozen=True, slots=True)
class Answer(Generic[DataT_co]):
    """The answer of one server."""

    server: ServerSummary
    data: DataT_co


class Traffic(Document, frozen=True, kw_only=True):
    """Messages and bytes."""

    msgs: int = 0
    bytes: int = 0


class Statsz(Document, frozen=True, kw_only=True):
    """The state of a server in numbers."""

    start: Moment | None = None
    mem: int = 0
    cores: int = 0
    cpu: float = 0.0
    connections: int = 0
    total_connections: int = 0
    active_accounts: int = 0
    subscriptions: int = 0
    sent: Traffic = msgspec.field(default_factory=Traffic)
    received: Traffic = msgspec.field(default_factory=Traffic)
    slow_consumers: int = 0
    active_servers: int = 0
    routes: list[dict[str, Any]] = msgspec.field(default_factory=list)
    gateways: list[dict[str, Any]] = msgspec.field(default_factory=list)
    jetstream: dict[str, Any] | None = None


class Varz(Document, frozen=True, kw_only=True):
    """The configuration and the state of a server."""

    server_id: str
    server_name: str = ""
    version: str = ""
    host: str = ""
    port: int = 0
    max_connections: int = 0
    max_payload: int = 0
    ping_interval: Span | None = None
    start: Moment | None = None
    now: Moment | None = None
    uptime: str = ""
    mem: int = 0
    cores: int = 0
    cpu: float = 0.0
    connections: int = 0
    total_connections: int = 0
    routes: int = 0
    leafnodes: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    slow_consumers: int = 0
    subscriptions: int = 0
    system_account: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    config_load_time: Moment | None = None
    jetstream: dict[str, Any] | None = None
    cluster: dict[str, Any] | None = None


class ConnectionInfo(Document, frozen=True, kw_only=True):
    """A client's connection."""

    cid: int
    kind: str = ""
    type: str = ""
    ip: str = ""
    port: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    start: Moment | None = None
    last_activity: Moment | None = None
    stop: Moment | None = None
    """When the connection ended, with its `reason`."""
    reason: str = ""
    rtt: str = ""
    uptime: str = ""
    idle: str = ""
    pending_bytes: int = 0
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    subscriptions: int = 0
    subscriptions_list: list[str] = msgspec.field(default_factory=list)
    authorized_user: str = ""
    """The user; set with `auth=True`, as is `account`."""
    account: str = ""
    tls_version: str = ""


class _OfServer(Document, frozen=True, kw_only=True):
    server_id: str
    now: Moment | None = None


class Connz(_OfServer, frozen=True, kw_only=True):
    """The connections of a server, a page of them."""

    num_connections: int = 0
    """Connections in this page."""
    total: int = 0
    offset: int = 0
    limit: int = 0
    connections: list[ConnectionInfo] = msgspec.field(default_factory=list)


class Subz(Document, frozen=True, kw_only=True):
    """A subscription."""

    subject: str
    account: str = ""
    qgroup: str = ""
    sid: str = ""
    msgs: int = 0
    cid: int = 0


class Subsz(Document, frozen=True, kw_only=True):
    """A server's routing of subjects, and a page of its subscriptions."""

    server_id: str = ""
    num_subscriptions: int = 0
    num_cache: int = 0
    num_inserts: int = 0
    num_removes: int = 0
    num_matches: int = 0
    cache_hit_rate: float = 0.0
    max_fanout: int = 0
    avg_fanout: float = 0.0
    total: int = 0
    offset: int = 0
    limit: int = 0
    subscriptions_list: list[Subz] = msgspec.field(default_factory=list)


class Jsz(Document, frozen=True, kw_only=True):
    """The JetStream of a server, or of one account on it."""

    server_id: str = ""
    now: Moment | None = None
    disabled: bool = False
    streams: int = 0
    consumers: int = 0
    messages: int = 0
    bytes: int = 0
    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    accounts: int = 0
    ha_assets: int = 0
    total: int = 0
    """The number of accounts, for paging."""
    api: dict[str, Any] | None = None
    meta_cluster: dict[str, Any] | None = None
    account_details: list[dict[str, Any]] = msgspec.field(default_factory=list)


class AccountJsz(Document, frozen=True, kw_only=True):
    """The JetStream of one account on a server."""

    name: str
    id: str = ""
    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    api: dict[str, Any] | None = None
    stream_detail: list[dict[str, Any]] = msgspec.field(default_factory=list)


class HealthProblem(Document, frozen=True, kw_only=True):
    """A problem of a server."""

    type: str
    account: str = ""
    stream: str = ""
    consumer: str = ""
    error: str = ""


class Healthz(Document, frozen=True, kw_only=True):
    """Whether a server is healthy."""

    status: str
    """"ok", or the kind of problem."""
    status_code: int = 200
    error: str = ""
    errors: list[HealthProblem] = msgspec.field(default_factory=list)
    """Problems of the server; set with `details=True`."""

    @property
    def ok(self) -> bool:
        """Whether everything is healthy."""
        return self.status == "ok"


class AccountDetail(Document, frozen=True, kw_only=True):
    """An account as a server knows it."""

    account_name: str
    update_time: Moment | None = None
    is_system: bool = False
    expired: bool = False
    complete: bool = False
    jetstream_enabled: bool = False
    leafnode_connections: int = 0
    client_connections: int = 0
    subscriptions: int = 0
    jwt: str = ""
    name_tag: str = ""
    tags: list[str] = msgspec.field(default_factory=list)


class Accountz(_OfServer, frozen=True, kw_only=True):
    """The accounts of a server."""

    system_account: str = ""
    accounts: list[str] = msgspec.field(default_factory=list)
    account_detail: AccountDetail | None = None
    """Details of one account; set with `account=`."""


class AccountStat(Document, frozen=True, kw_only=True):
    """An account in numbers, on one server."""

    acc: str
    name: str = ""
    conns: int = 0
    leafnodes: int = 0
    total_conns: int = 0
    num_subscriptions: int = 0
    sent: Traffic = msgspec.field(default_factory=Traffic)
    received: Traffic = msgspec.field(default_factory=Traffic)
    slow_consumers: int = 0


class AccountStatz(_OfServer, frozen=True, kw_only=True):
    """Accounts in numbers, on one server."""

    account_statz: list[AccountStat] = msgspec.field(default_factory=list)


class Routez(_OfServer, frozen=True, kw_only=True):
    """The routes of a server to others of its cluster."""

    server_name: str = ""
    num_routes: int = 0
    routes: list[dict[str, Any]] = msgspec.field(default_factory=list)


class Gatewayz(_OfServer, frozen=True, kw_only=True):
    """The gateways of a server to other clusters, by their names."""

    name: str = ""
    outbound_gateways: dict[str, Any] = msgspec.field(default_factory=dict)
    inbound_gateways: dict[str, Any] = msgspec.field(default_factory=dict)


class Leafz(_OfServer, frozen=True, kw_only=True):
    """The leaf nodes of a server."""

    leafnodes: int = 0
    leafs: list[dict[str, Any]] = msgspec.field(default_factory=list)


class RaftPeer(Document, frozen=True, kw_only=True):
    """Another server of a Raft group."""

    name: str
    known: bool = False
    last_replicated_index: int = 0
    last_seen: str = ""
    """How long ago, as "1.5s"."""


class RaftGroup(Document, frozen=True, kw_only=True):
    """The part of one server in a Raft group."""

    id: str
    """The server's name in Raft, as in `leader`, `voted_for` and `peers`."""
    state: str
    """"LEADER", "FOLLOWER", "CANDIDATE" or "CLOSED"."""
    size: int = 0
    quorum_needed: int = 0
    observer: bool = False
    paused: bool = False
    committed: int = 0
    applied: int = 0
    catching_up: bool = False
    leader: str = ""
    leader_since: Moment | None = None
    ever_had_leader: bool = False
    term: int = 0
    voted_for: str = ""
    pterm: int = 0
    pindex: int = 0
    ipq_proposal_len: int = 0
    ipq_entry_len: int = 0
    ipq_resp_len: int = 0
    ipq_apply_len: int = 0
    wal: StreamState | None = None
    """The group's log."""
    peers: dict[str, RaftPeer] = msgspec.field(default_factory=dict)


class Raftz(Document, frozen=True, kw_only=True):
    """The Raft groups of an account on a server."""

    groups: dict[str, RaftGroup] = msgspec.field(default_factory=dict)
    """By name; that of JetStream's metadata is "_meta_", in the system account."""


class MetaRescue(Document, frozen=True, kw_only=True):
    """The answer of one server to `System.rescue_meta`: its quorum before and after, or `error`."""

    server: str
    server_id: str
    prev_quorum: int = 0
    new_quorum: int = 0
    error: ErrorDocument | None = None
