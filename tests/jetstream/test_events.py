"""Each event that a real server can be made to send, by making it send it; and the iterator."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import pytest
from tests.conftest import MakeServer, MakeStream, NeedsServer, Reported, Unique

from jetspark import blocking, errors
from jetspark.documents import events as documents
from jetspark.documents.events import Event
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream import EventKind
from jetspark.jetstream.events import Events
from jetspark.server import NatsServer

EventT = TypeVar("EventT", bound=Event)

SYSTEM = """
accounts {
  SYS: { users: [ { user: sys, password: sys } ] }
  A: { jetstream: enabled, users: [ { user: a, password: a } ] }
}
system_account: SYS
no_auth_user: a
"""


async def told(events: Events, cls: type[EventT]) -> EventT:
    """The next event, which is of this class and has nothing that we do not know."""
    event = await events.next(30)
    assert isinstance(event, cls), event
    assert event.extra == {}
    assert event.timestamp is not None
    assert event.id
    return event


async def api(nc: Client, tail: str, document: object = None) -> dict[str, Any]:
    payload = b"" if document is None else json.dumps(document).encode()
    reply = await nc.request(f"$JS.API.{tail}", payload)
    answer: dict[str, Any] = json.loads(reply.data)
    assert "error" not in answer, answer
    return answer


async def api_when_led(nc: Client, tail: str, document: object) -> None:
    """Ask until an answer comes: a server that was the leader for a moment only gives none."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(errors.RequestTimeoutError):
                await nc.request(f"$JS.API.{tail}", json.dumps(document).encode(), timeout=2)
                return


# -- what a single server tells ------------------------------------------------------------------


async def test_events_of_a_stream_made_updated_and_deleted(js: JetStream, unique: Unique) -> None:
    name = unique("S")
    async with js.events(kinds=["stream_action"], stream=name) as events:
        await js.create_stream(name=name, subjects=[name])
        await js.stream(name).update(description="changed")
        await js.delete_stream(name)
        said = [await told(events, documents.StreamActionEvent) for _ in range(3)]
    assert [event.action for event in said] == ["create", "modify", "delete"]
    assert {(event.stream, event.kind) for event in said} == {(name, EventKind.STREAM_ACTION)}


async def test_events_of_a_consumer_created_and_deleted(js: JetStream, stream: str) -> None:
    async with js.events(kinds=["consumer_action"], stream=stream, consumer="c") as events:
        await js.stream(stream).create_consumer(name="other", durable_name="other")
        consumer = await js.stream(stream).create_consumer(name="c", durable_name="c")
        await consumer.delete()
        said = [await told(events, documents.ConsumerActionEvent) for _ in range(2)]
    assert [(event.consumer, event.action) for event in said] == [("c", "create"), ("c", "delete")]


async def test_events_of_acks_naks_and_terminated_messages(js: JetStream, stream: str) -> None:
    for number in range(4):
        await js.publish(f"{stream}.{number}")
    consumer = await js.stream(stream).create_consumer(
        durable_name="c", sample_freq="100%", max_deliver=2, ack_wait=60
    )
    async with js.events(
        kinds=["consumer_ack", "nak", "terminated", "max_deliver"], stream=stream
    ) as events:
        acked, ended, given_back = await consumer.fetch(3, timeout=5)
        await acked.ack()
        metric = await told(events, documents.ConsumerAckMetric)
        await ended.term()
        terminated = await told(events, documents.TerminatedEvent)
        await given_back.nak()
        naked = await told(events, documents.NakEvent)
        (again,) = await consumer.fetch(1, timeout=5)
        await again.nak()
        assert (await told(events, documents.NakEvent)).deliveries == 2
        await consumer.fetch(1)  # the server looks for something to deliver
        exceeded = await told(events, documents.MaxDeliverEvent)
    assert (metric.stream, metric.consumer, metric.stream_seq) == (stream, "c", 1)
    assert timedelta(0) < metric.ack_time < timedelta(seconds=5)
    assert (terminated.stream_seq, terminated.deliveries, terminated.reason) == (2, 1, None)
    assert (naked.stream_seq, naked.consumer_seq, naked.deliveries) == (3, 3, 1)
    assert (exceeded.consumer, exceeded.stream_seq, exceeded.deliveries) == ("c", 3, 2)


async def test_events_of_a_consumer_paused_and_resumed(
    js: JetStream, nc: Client, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    await js.stream(stream).create_consumer(durable_name="c")
    async with js.events(kinds=[EventKind.CONSUMER_PAUSE], stream=stream) as events:
        until = datetime.now(UTC) + timedelta(hours=1)
        pause = {"pause_until": until.isoformat()}
        await api(nc, f"CONSUMER.PAUSE.{stream}.c", pause)
        paused = await told(events, documents.ConsumerPauseEvent)
        await api(nc, f"CONSUMER.PAUSE.{stream}.c")
        resumed = await told(events, documents.ConsumerPauseEvent)
    assert (paused.paused, paused.pause_until) == (True, until)
    assert (resumed.paused, resumed.pause_until) == (False, None)


async def test_events_of_a_client_pinned_and_unpinned(
    js: JetStream, nc: Client, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    await js.stream(stream).create_consumer(
        durable_name="c", priority_groups=["g"], priority_policy="pinned_client"
    )
    await js.publish(f"{stream}.1")
    inbox = nc.new_inbox()
    kinds = [EventKind.CONSUMER_GROUP_PINNED, EventKind.CONSUMER_GROUP_UNPINNED]
    async with (
        nc.subscribe(inbox) as pulled,
        js.events(kinds=kinds, stream=stream, consumer="c") as events,
    ):
        pull = json.dumps({"batch": 1, "group": "g", "expires": 10**9}).encode()
        await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c", pull, reply=inbox)
        message = await pulled.next(30)
        assert message.headers is not None
        pinned = await told(events, documents.ConsumerGroupPinnedEvent)
        await api(nc, f"CONSUMER.UNPIN.{stream}.c", {"group": "g"})
        unpinned = await told(events, documents.ConsumerGroupUnpinnedEvent)
    assert (pinned.group, pinned.pinned_id) == ("g", message.headers.get("Nats-Pin-Id"))
    assert (unpinned.group, unpinned.reason) == ("g", "admin")


async def test_abandoned_batch_publishes_its_event(
    js: JetStream, nc: Client, make_stream: MakeStream, needs_server: NeedsServer
) -> None:
    needs_server("2.12")
    name = await make_stream(allow_atomic=True)
    async with js.events(stream=name, kinds="stream_batch_abandoned") as events:
        for number in ("1", "3"):
            headers = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": number}
            await nc.publish(f"{name}.a", b"", headers=headers)
        abandoned = await told(events, documents.StreamBatchAbandonedEvent)
    assert (abandoned.stream, abandoned.batch, abandoned.reason) == (name, "b", "incomplete")


async def test_events_of_a_backup(js: JetStream, make_stream: MakeStream, tmp_path: Path) -> None:
    stream = await make_stream(storage="file")
    await js.publish(f"{stream}.1", b"hello")
    kinds = ["snapshot_create", "snapshot_complete", "restore_create", "restore_complete"]
    async with js.events(stream=stream, kinds=kinds) as events:
        made = await js.backup_stream(stream, tmp_path / "b")
        created = await told(events, documents.SnapshotCreateEvent)
        complete = await told(events, documents.SnapshotCompleteEvent)
        await js.delete_stream(stream)
        await js.restore_stream(tmp_path / "b")
        begun = await told(events, documents.RestoreCreateEvent)
        done = await told(events, documents.RestoreCompleteEvent)
    assert created.state.messages == 1
    assert created.client is not None
    assert created.client.acc == "$G"
    assert complete.start <= complete.end
    assert complete.error is None
    assert (begun.stream, done.stream, done.bytes) == (stream, stream, made.size)


async def test_api_audits_have_the_whole_request_and_answer(
    js: JetStream, nc: Client, stream: str
) -> None:
    async with js.events(kinds=["api_audit"], stream=stream) as events:
        await js.stream_names().all()  # about no stream
        await js.stream(stream).info(deleted_details=True)
        info = await told(events, documents.ApiAuditEvent)
        with pytest.raises(errors.JetsparkError):
            await js.stream(stream).consumer("absent")
        failed = await told(events, documents.ApiAuditEvent)
        await js.stream(stream).create_consumer(name="c", filter_subject=f"{stream}.a.b")
        # For a server before 2.10 it is looked first whether the consumer is there.
        while (made := await told(events, documents.ApiAuditEvent)).error is not None:
            assert made.consumer == "c"
    assert info.subject == f"$JS.API.STREAM.INFO.{stream}"
    assert json.loads(info.request or "") == {"deleted_details": True}
    assert json.loads(info.response)["config"]["name"] == stream
    assert info.client is not None
    assert info.client.acc == "$G"
    assert info.error is None
    assert (made.stream, made.consumer) == (stream, "c")
    assert failed.consumer == "absent"
    assert failed.error is not None
    assert failed.error.err_code == 10014


# -- what only the system account is told ----------------------------------------------------------


async def test_a_full_api_queue_is_told(make_server: MakeServer, needs_server: NeedsServer) -> None:
    needs_server("2.12")
    server = make_server(f"jetstream {{ request_queue_limit: 1 }}\n{SYSTEM}", name="narrow")
    async with (
        connect(server.url, user="sys", password="sys") as system,
        connect(server.url) as nc,
        system.jetstream().events(kinds=["api_limit_reached"]) as events,
    ):
        await system.flush()
        await nc.publish("$JS.API.INFO", reply=nc.new_inbox())
        reached = await told(events, documents.ApiLimitReachedEvent)
    assert reached.server == "narrow"
    assert reached.dropped in (0, 1)  # the server may have begun with the one


async def heard_from_everywhere(events: Events, urls: list[str], **user: Any) -> None:
    """Until all servers know that somebody listens; they tell nobody else.

    What was subscribed to before `events` on the same connection is known then, too.
    """
    (subject,) = events.subjects
    probe = subject.replace("*", "probe")
    for url in urls:
        async with connect(url, **user) as nc:
            while True:
                await nc.publish(probe, b'{"type": "probe"}')
                await nc.flush()
                await asyncio.sleep(0.05)
                if events.pending:
                    break
        with pytest.raises(errors.RequestTimeoutError):
            await events.next(0.01)  # it is of no kind that is wanted


async def test_events_of_leaders_and_removed_servers(
    make_cluster: Callable[..., Any], tmp_path: Any, needs_server: NeedsServer
) -> None:
    needs_server("2.10")
    config = tmp_path / "cluster.conf"
    config.write_text(SYSTEM, "utf-8")
    cluster = make_cluster(3, name="EV", extra=("--config", str(config)))
    urls = cluster.urls
    async with (
        connect(urls[0], user="sys", password="sys") as system,
        connect(urls[0]) as nc,
        system.jetstream().events(kinds=["stream_leader_elected"]) as of_system,
        nc.jetstream().events(kinds=["stream_leader_elected"], stream="S") as of_stream,
        nc.jetstream().events(kinds=["consumer_leader_elected"], consumer="c") as of_consumer,
        system.jetstream().events(kinds=["domain_leader_elected"]) as of_domain,
        system.jetstream().events(kinds=["server_removed"]) as removed,
    ):
        js = nc.jetstream()
        await heard_from_everywhere(of_consumer, urls)
        await heard_from_everywhere(removed, urls, user="sys", password="sys")
        await js.create_stream(name="S", subjects=["s"], num_replicas=3)
        stream = await told(of_stream, documents.StreamLeaderElectedEvent)
        same = await told(of_system, documents.StreamLeaderElectedEvent)
        await js.stream("S").create_consumer(durable_name="c")
        consumer = await told(of_consumer, documents.ConsumerLeaderElectedEvent)
        await api(system, "META.LEADER.STEPDOWN")
        domain = await told(of_domain, documents.DomainLeaderElectedEvent)
        leader = next(peer for peer in domain.replicas if peer.peer == domain.leader)
        gone = next(peer.name for peer in domain.replicas if peer is not leader)
        await api_when_led(system, "SERVER.REMOVE", {"peer": gone})
        server = await told(removed, documents.ServerRemovedEvent)
    assert stream.leader.startswith("EV-n")
    assert {peer.name for peer in stream.replicas} == {"EV-n1", "EV-n2", "EV-n3"}
    assert (stream.account, same.account) == (None, "A")
    assert (consumer.stream, consumer.consumer) == ("S", "c")
    assert domain.cluster == "EV"
    assert server.server == gone


# -- where events come from ------------------------------------------------------------------------


async def test_a_context_with_a_domain_gets_its_events_only(on_hub: Client, unique: Unique) -> None:
    name = unique("S")
    leaf, hub = on_hub.jetstream(domain="leaf"), on_hub.jetstream(domain="hub")
    async with (
        leaf.events(kinds=["stream_action"], stream=name) as of_leaf,
        on_hub.jetstream().events(kinds=["stream_action"], stream=name) as of_both,
    ):
        await hub.create_stream(name=name, subjects=[f"hub.{name}"])
        assert (await told(of_both, documents.StreamActionEvent)).domain == "hub"
        # Interest has to reach the leaf before it tells.
        while of_both.pending == 0:
            await leaf.create_stream(name=name, subjects=[f"leaf.{name}"])
            await leaf.delete_stream(name)
        assert (await told(of_leaf, documents.StreamActionEvent)).domain == "leaf"
    await hub.delete_stream(name)


async def test_events_of_another_account_come_on_its_prefix(make_server: MakeServer) -> None:
    server = make_server("""
        accounts {
          A: { jetstream: enabled, users: [ { user: a, password: a } ],
               exports: [ { stream: "$JS.EVENT.>" } ] }
          B: { users: [ { user: b, password: b } ],
               imports: [ { stream: { account: A, subject: "$JS.EVENT.>" }, prefix: "from.A" } ] }
        }""")
    async with (
        connect(server.url, user="a", password="a") as a,
        connect(server.url, user="b", password="b") as b,
        b.jetstream().events(stream="S", prefix="from.A.$JS.EVENT") as events,
    ):
        await b.flush()
        await a.jetstream().create_stream(name="S")
        kinds = {(await events.next(30)).kind, (await events.next(30)).kind}
    assert kinds == {"stream_action", "api_audit"}


@pytest.mark.parametrize(
    ("tail", "kind"),
    [("METRIC.CONSUMER_ACK", "consumer_ack"), ("ADVISORY.MAX_DELIVERIES", "max_deliver")],
)
async def test_events_on_documented_subjects_are_received_too(
    js: JetStream, nc: Client, unique: Unique, tail: str, kind: str
) -> None:
    name = unique("S")
    event = {
        "type": f"io.nats.jetstream.{tail.partition('.')[0].lower()}.v1.{kind}",
        "stream": name,
        "consumer": "c",
        "stream_seq": 1,
        "consumer_seq": 1,
        "ack_time": 1,
        "deliveries": 1,
    }
    async with (
        js.events(kinds=[kind], stream=name) as by_kind,
        js.events(stream=name, consumer="c") as by_name,
    ):
        await nc.publish(f"$JS.EVENT.{tail}.{name}.c", json.dumps(event).encode())
        for events in (by_kind, by_name):
            heard = await events.next(30)
            assert (heard.kind, type(heard) is Event) == (kind, False)
        await nc.flush()
        assert by_kind.pending == by_name.pending == 0


# -- the iterator ----------------------------------------------------------------------------------


async def publish_event(nc: Client, stream: str, consumer: str = "c", **fields: object) -> None:
    event = {"type": "io.nats.jetstream.advisory.v2.of_the_future", **fields}
    await nc.publish(
        f"$JS.EVENT.ADVISORY.CONSUMER.NEW.{stream}.{consumer}", json.dumps(event).encode()
    )


async def test_an_unknown_event_keeps_its_fields_and_what_is_none_is_reported_and_left_out(
    js: JetStream, nc: Client, unique: Unique, reported: Reported
) -> None:
    name = unique("S")
    async with js.events(stream=name, consumer="c") as events:
        await nc.publish(f"$JS.EVENT.ADVISORY.CONSUMER.NEW.{name}.c", b"no JSON")
        await publish_event(nc, name, id="1", level={"a": [1]})
        event = await events.next(30)
    assert type(event) is Event
    assert (event.kind, event.id, event.extra) == ("of_the_future", "1", {"level": {"a": [1]}})
    assert [f"CONSUMER.NEW.{name}.c" in str(error) for error in reported] == [True]


async def test_a_slow_event_reader_is_reported_once_and_drops_are_counted(
    js: JetStream, nc: Client, unique: Unique, reported: Reported
) -> None:
    name = unique("S")
    async with (
        js.events(stream=name, pending_msgs_limit=2) as events,
        js.events(stream=name, pending_bytes_limit=1) as none_fits,
    ):
        for number in range(5):
            await publish_event(nc, name, id=str(number))
        await nc.flush()
        assert (events.pending, events.dropped, none_fits.dropped) == (2, 3, 5)
        assert [(await events.next(30)).id for _ in range(2)] == ["0", "1"]
    assert [type(error) for error in reported] == [errors.SlowConsumerError] * 2


async def test_received_events_survive_close(js: JetStream, nc: Client, unique: Unique) -> None:
    name = unique("S")
    closed, with_client = (js.events(stream=name) for _ in range(2))
    await publish_event(nc, name, id="1")
    await nc.flush()
    closed.close()
    await publish_event(nc, name, id="2")
    await nc.flush()
    await nc.close()
    assert [event.id async for event in closed] == ["1"]
    assert [event.id async for event in with_client] == ["1", "2"]
    for events in (closed, with_client):
        with pytest.raises(errors.ConnectionClosedError):
            await events.next()


async def test_a_refused_subject_ends_the_events(make_server: MakeServer) -> None:
    server = make_server("""
        authorization { users: [ { user: u, password: u, permissions: {
          subscribe: [ "$JS.EVENT.ADVISORY.STREAM.CREATED.>", "_INBOX.>" ] } } ] }""")
    async with connect(server.url, user="u", password="u") as nc:
        events = nc.jetstream().events(kinds=["stream_action"])
        with pytest.raises(errors.PermissionsError):
            await events.next(30)
        assert not events.active


async def test_wrong_event_options_are_refused(js: JetStream) -> None:
    wrong: list[tuple[dict[str, Any], str | None]] = [
        ({"kinds": ["max_delivery"]}, "did you mean 'max_deliver'"),
        ({"kinds": ["domain_leader_elected"], "stream": "S"}, "do not name a stream"),
        ({"kinds": ["stream_action"], "consumer": "c"}, "do not name a consumer"),
        ({"kinds": []}, "empty"),
        ({"pending_msgs_limit": 0}, "pending_msgs_limit must be at least 1"),
        ({"pending_bytes_limit": 0}, "pending_bytes_limit must be at least 1"),
        *(({"stream": "a.b"}, None), ({"consumer": "*"}, None), ({"prefix": "a..b"}, None)),
    ]
    for options, said in wrong:
        with pytest.raises(errors.ConfigError, match=said):
            js.events(**options)


# -- without async ---------------------------------------------------------------------------------


def test_blocking_events_both_ways(shared_server: NatsServer, unique: Unique) -> None:
    name = unique("S")
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        called: SimpleQueue[str] = SimpleQueue()

        def callback(event: Any) -> None:
            js.account_info()  # the client may be used
            called.put(event.action)

        watched = js.events(kinds=["stream_action"], stream=name, callback=callback)
        with js.events(kinds=["stream_action"], stream=name) as events:
            js.create_stream(name=name)
            js.delete_stream(name)
            first: Any = next(events)
            second: Any = events.next(30)
            assert [first.action, second.action] == ["create", "delete"]
            assert watched.subjects == events.subjects
        assert list(events) == []
        with pytest.raises(errors.ConfigError, match="callback"):
            iter(watched)
        nc.drain()
        assert [called.get_nowait() for _ in range(2)] == ["create", "delete"]
    assert not watched.active
    watched.close()
