"""No field of the server is missing: not by its source, not by what a live one answers.

`SERVER` lists the fields of nats-server's structs. The live test makes everything that there is and
walks through the answers along our types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
from scripts import fields
from tests.conftest import NeedsServer, Unique
from tests.jetstream.eventually import eventually
from tests.jetstream.peer_configs import CONSUMERS, LATER, STREAMS, consumer_config, stream_config
from tests.support.cluster import Cluster
from tests.support.leaf import HubAndLeaf

from jetspark.documents.consumers import ConsumerConfig, ConsumerInfo, PauseState
from jetspark.documents.document import Document, field_names, text_of_time, to_wire
from jetspark.documents.streams import (
    AccountInfo,
    External,
    PubAck,
    Source,
    SourceConsumer,
    StoredMsg,
    StreamInfo,
)
from jetspark.full_client import Client, connect
from jetspark.server import NatsServer
from jetspark.wire import js_api

DOCUMENTS = {cls.__name__: cls for cls in fields.documents()}

# The structs of nats-server 2.15 under our names, with the JSON names of their fields.
SERVER = """
AccountInfo: memory storage reserved_memory reserved_storage streams consumers limits domain api
  tiers
AccountLimits: max_memory max_storage max_streams max_consumers max_ack_pending
  memory_max_stream_bytes storage_max_stream_bytes max_bytes_required
Alternate: name domain cluster
APIStats: level total errors inflight
ClusterInfo: name raft_group leader leader_since system_account traffic_account replicas desired
ConsumerConfig: durable_name name description deliver_policy opt_start_seq opt_start_time ack_policy
  ack_wait max_deliver backoff filter_subject filter_subjects replay_policy rate_limit_bps
  sample_freq max_waiting max_ack_pending flow_control headers_only max_batch max_expires max_bytes
  deliver_subject deliver_group idle_heartbeat inactive_threshold num_replicas mem_storage direct
  sourcing metadata pause_until priority_groups priority_policy priority_timeout
ConsumerInfo: stream_name name created config delivered ack_floor num_ack_pending num_redelivered
  num_waiting num_pending cluster push_bound paused pause_remaining ts priority_groups
ConsumerLimits: inactive_threshold max_ack_pending
DesiredCluster: created name replicas origin status
DesiredPeer: name offline peer
ErrorDocument: code err_code description
External: api deliver
LostData: msgs bytes
MoveOrigin: replicas placement retention
MoveStatus: description type err
PauseState: paused pause_until pause_remaining
PeerInfo: name current offline active lag peer pending
Placement: cluster tags preferred
PriorityGroupState: group pinned_client_id pinned_ts
PubAck: stream seq domain duplicate val batch count
Republish: src dest headers_only
SequenceInfo: consumer_seq stream_seq last_active
Source: name opt_start_seq opt_start_time filter_subject subject_transforms external consumer
SourceConsumer: name deliver_subject
SourceInfo: name external lag seq active error filter_subject subject_transforms
StoredMsg: subject seq hdrs data time
StreamConfig: name description subjects retention max_consumers max_msgs max_bytes max_age
  max_msgs_per_subject max_msg_size discard storage num_replicas no_ack duplicate_window placement
  mirror sources compression first_seq subject_transform republish allow_direct mirror_direct
  discard_new_per_subject sealed deny_delete deny_purge allow_rollup_hdrs consumer_limits
  allow_msg_ttl subject_delete_marker_ttl allow_msg_counter allow_atomic allow_msg_schedules
  persist_mode allow_batched metadata
StreamInfo: config created state domain cluster mirror sources alternates ts did_create
StreamState: messages bytes first_seq first_ts last_seq last_ts num_subjects subjects num_deleted
  deleted lost consumer_count
SubjectTransform: src dest
Tier: memory storage reserved_memory reserved_storage streams consumers limits
"""

# What the live test does not bring about.
RARE = {
    "AccountInfo.tiers": "accounts with tiered limits, from JWTs only",
    "APIStats.inflight": "API calls of others at the same moment",
    "Alternate.domain": "a cluster with a domain and a mirror",
    "ConsumerConfig.direct": "consumers of the server's own",
    "ConsumerConfig.sourcing": "consumers of the server's own",
    "DesiredPeer.offline": "a move while a server is down",
    "MoveOrigin.placement": "a move to another cluster",
    "MoveStatus.err": "a move that fails",
    "PeerInfo.lag": "a replica that is behind",
    "PeerInfo.offline": "a replica that is down",
    "PeerInfo.pending": "a replica that has not joined yet",
    "Placement.tags": "servers with tags; test_peers has some",
    "Placement.preferred": "requests to step down; no stream is configured with it",
    "SourceInfo.error": "an origin that refuses, for half a minute",
    "StreamConfig.template_owner": "servers before 2.11",
    "StreamState.lost": "a damaged store",
}
NEVER = {"ErrorDocument", "LostData", "Tier"}  # below a rare field only


def server_fields() -> dict[str, set[str]]:
    entries = SERVER.strip().replace("\n  ", " ").splitlines()
    return {name: set(rest.split()) for name, rest in (line.split(": ") for line in entries)}


def test_every_field_of_the_server_is_here() -> None:
    ours = {name: set(field_names(cls)) for name, cls in DOCUMENTS.items()}
    assert ours.keys() == server_fields().keys()
    missing = {name: known - ours[name] for name, known in server_fields().items()}
    assert {name: known for name, known in missing.items() if known} == {}
    more = {(name, one) for name in ours for one in ours[name] - server_fields()[name]}
    assert more == {("StreamConfig", "template_owner")}


def test_the_page_is_made_from_the_types() -> None:
    page = Path(__file__).parents[2] / "docs" / "fields.md"
    assert page.read_text("utf-8") == fields.page()


class Walk:
    """Goes through answers along our types; notes every field that it sees."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.unknown: set[str] = set()

    def through(self, cls: type[Document], raw: dict[str, Any]) -> None:
        types = {field.encode_name: field.type for field in msgspec.structs.fields(cls)}
        for name, value in raw.items():
            (self.seen if name in types else self.unknown).add(f"{cls.__name__}.{name}")
            inner = _document_in(types.get(name))
            if inner is None or not value:
                continue
            for one in value if isinstance(value, list) else [value]:
                self.through(inner, one)


def _document_in(kind: Any) -> type[Document] | None:
    """The document class in an annotation such as `list[Source] | None`."""
    if isinstance(kind, type) and issubclass(kind, Document):
        return kind
    return next(filter(None, map(_document_in, get_args(kind))), None)


async def test_documents_of_a_live_server_have_no_unknown_field_and_all_known_ones(
    shared_server: NatsServer,
    nats_cluster: Cluster,
    hub_and_leaf: HubAndLeaf,
    unique: Unique,
    needs_server: NeedsServer,
) -> None:
    needs_server("2.15")
    walk = Walk()
    async with connect(shared_server.url) as nc:
        await see_configurations(walk, nc, unique)
        await see_states(walk, nc, unique("S"))
        await see_publishing(walk, nc, unique("P"))
    async with connect(nats_cluster.urls) as nc:
        await see_replicas(walk, nc, unique("R"))
    async with connect(hub_and_leaf.leaf.url) as nc:
        await see_domains(walk, nc, unique("M"))
    assert walk.unknown == set()
    expected = {f"{name}.{one}" for name, cls in DOCUMENTS.items() for one in field_names(cls)}
    unseen = {one for one in expected - walk.seen if one.partition(".")[0] not in NEVER}
    assert unseen - RARE.keys() == set()


async def call(
    nc: Client, which: js_api.Call, body: dict[str, Any] | None = None, **names: str
) -> dict[str, Any]:
    answer = await nc.jetstream().api.call(which, body, **names)
    return {k: v for k, v in answer.items() if k not in ("total", "offset", "limit")}


async def see_stream(walk: Walk, nc: Client, name: str) -> dict[str, Any]:
    body = {"deleted_details": True, "subjects_filter": ">"}
    info = await call(nc, js_api.STREAM_INFO, body, stream=name)
    walk.through(StreamInfo, info)
    return info


async def see_configurations(walk: Walk, nc: Client, unique: Unique) -> None:
    js = nc.jetstream()
    for case in STREAMS:
        name = unique("S")
        await js.create_stream(stream_config(case, name))
        await see_stream(walk, nc, name)
        await js.delete_stream(name)
    name = unique("S")
    body: dict[str, Any] = {"name": name, "subjects": [f"{name}.>"]}
    walk.through(StreamInfo, await call(nc, js_api.STREAM_CREATE, body, stream=name))
    for case in CONSUMERS:
        config = to_wire(ConsumerConfig(**consumer_config(case, name)))
        body = {"stream_name": name, "config": {"ack_policy": "explicit"} | config}
        made = await call(nc, js_api.CONSUMER_CREATE, body, stream=name, consumer="c")
        walk.through(ConsumerInfo, made)
        await js.stream(name).delete_consumer("c")
    await js.stream(name).update(sealed=True)
    await see_stream(walk, nc, name)
    await js.delete_stream(name)
    name = unique("S")  # of a stream just deleted, the folder may still be going
    through = SourceConsumer(name="c", deliver_subject=f"to.{name}")
    await js.create_stream(name=name, sources=[Source(name="ELSEWHERE", consumer=through)])
    await see_stream(walk, nc, name)
    await js.delete_stream(name)
    walk.through(AccountInfo, await call(nc, js_api.ACCOUNT_INFO))


async def see_states(walk: Walk, nc: Client, name: str) -> None:
    """A stream with holes, a consumer with a pinned client, one that is bound and paused."""
    js = nc.jetstream()
    await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    for _ in range(3):
        await js.publish(f"{name}.a", b"x", headers={"k": "v"})
    await js.stream(name).delete_msg(2)
    pinned = ConsumerConfig(name="c", priority_groups=["g"], priority_policy="pinned_client")
    await js.stream(name).create_consumer(pinned)
    request = json.dumps({"batch": 1, "group": "g", "expires": 1_000_000_000}).encode()
    async with nc.subscribe(nc.new_inbox()) as inbox:
        await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", request, reply=inbox.subject)
        await inbox.next(2)
        info = await call(nc, js_api.CONSUMER_INFO, stream=name, consumer="c")
    walk.through(ConsumerInfo, info)
    async with nc.subscribe(f"to.{name}"):
        await nc.flush()
        await js.stream(name).create_push_consumer(name="p", deliver_subject=f"to.{name}")
        walk.through(ConsumerInfo, await call(nc, js_api.CONSUMER_INFO, stream=name, consumer="p"))
    await see_stream(walk, nc, name)
    answer = await call(nc, js_api.MSG_GET, {"seq": 1}, stream=name)
    walk.through(StoredMsg, answer["message"])

    until = {"pause_until": text_of_time(LATER)}
    answer = await call(nc, js_api.CONSUMER_PAUSE, until, stream=name, consumer="p")
    walk.through(PauseState, answer)
    await js.delete_stream(name)


async def see_publishing(walk: Walk, nc: Client, name: str) -> None:
    js = nc.jetstream()
    await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory", allow_atomic=True)
    batch = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    for headers in ({"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "1"}, batch):
        ack = await nc.request(f"{name}.a", b"", headers=headers)
        walk.through(PubAck, json.loads(ack.data))
    await js.delete_stream(name)
    await js.create_stream(name=f"{name}_C", subjects=[f"{name}.>"], allow_msg_counter=True)
    ack = await nc.request(f"{name}.a", b"", headers={"Nats-Incr": "1"})
    walk.through(PubAck, json.loads(ack.data))
    await js.delete_stream(f"{name}_C")


async def see_replicas(walk: Walk, nc: Client, name: str) -> None:
    """A stream with placement that grows from one replica to three, its mirror, its consumer."""
    js = nc.jetstream()
    placement = {"cluster": "shared", "tags": []}
    await js.create_stream({"name": name, "subjects": [f"{name}.>"], "placement": placement})
    await js.stream(name).create_consumer(durable_name="c")
    await js.create_stream(name=f"{name}_M", mirror=Source(name=name))
    await js.stream(name).update(num_replicas=3, retention="interest")

    async def cluster() -> dict[str, Any]:
        found: dict[str, Any] = (await see_stream(walk, nc, name))["cluster"]
        return found

    async def moving() -> bool:
        return "status" in ((await cluster()).get("desired") or {})

    async def replicated() -> bool:
        return len((await cluster()).get("replicas") or []) == 2

    await eventually(moving)
    await eventually(replicated)
    walk.through(ConsumerInfo, await call(nc, js_api.CONSUMER_INFO, stream=name, consumer="c"))
    await js.delete_stream(f"{name}_M")
    await js.delete_stream(name)


async def see_domains(walk: Walk, nc: Client, name: str) -> None:
    js = nc.jetstream()
    hub = External.of_domain("hub")
    await nc.jetstream(domain="hub").create_stream(name=name, subjects=[f"{name}.>"])
    await js.create_stream(name=f"{name}_M", mirror=Source(name=name, external=hub))
    await see_stream(walk, nc, f"{name}_M")
    await js.create_stream(name=f"{name}_S", sources=[Source(name=name, external=hub)])
    await nc.jetstream(domain="hub").publish(f"{name}.a")

    async def copied() -> bool:
        return bool((await see_stream(walk, nc, f"{name}_S"))["state"]["messages"])

    await eventually(copied)
    walk.through(AccountInfo, await call(nc, js_api.ACCOUNT_INFO))
    ack = await nc.request(f"{name}.a", b"")
    walk.through(PubAck, json.loads(ack.data))


def test_the_walk_notices_what_is_not_known() -> None:
    walk = Walk()
    walk.through(StreamInfo, {"new": 1, "config": {"name": "S", "mirror": {"name": "M", "x": 1}}})
    assert walk.unknown == {"StreamInfo.new", "Source.x"}
    assert "StreamConfig.mirror" in walk.seen
