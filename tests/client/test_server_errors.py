"""Every -ERR of a nats-server: what ends, what stays, and what is told."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.conftest import Connect, next_of
from tests.conftest import MakeServer, Unique
from tests.support.scripted_server import ScriptedServer

from jetspark import Reconnected, blocking, errors
from jetspark.client.client import CoreClient
from jetspark.connection.options import make_options
from jetspark.connection.server_errors import ERRORS, meaning_of
from jetspark.server import NatsServer

WITHIN = 30

# As the sources write them; of each meaning one, at least.
TEXTS = {
    "permissions violation for subscription": 'Permissions Violation for Subscription to "one"',
    "permissions violation for publish": 'Permissions Violation for Publish to "some.where"',
    "authentication expired": "User Authentication Expired",
    "authentication revoked": "User Authentication Revoked",
}
MORE = [
    'Permissions Violation for Subscription to "one", too many tokens',
    'Permissions Violation for Subscription to "one" (sid "1")',
    'Permissions Violation for Publish with Reply of "_R_.x"',
    "Connection throttling is active. Please try again later.",
]


@pytest.mark.parametrize("text", [*(TEXTS.get(text, text) for text in ERRORS), *MORE, "Unheard"])
async def test_an_error_ends_what_the_server_ends_and_nothing_else(text: str) -> None:
    told: asyncio.Queue[errors.JetsparkError] = asyncio.Queue()
    async with ScriptedServer() as server:
        options = make_options(server.url, reconnect_wait=0.01, reconnect_jitter=0.0)
        client = CoreClient(options, error_callback=told.put_nowait)
        connecting = asyncio.create_task(client.connect())
        peer = await server.accept()
        await peer.shake_hands()
        await connecting
        one = client.subscribe("one")
        await peer.expect(b"SUB one 1")
        error, ends = meaning_of(text, server.url)
        peer.send(b"-ERR '%b'\r\n" % text.encode())
        found = await asyncio.wait_for(told.get(), WITHIN)
        assert (type(found), str(found)) == (type(error), str(error))
        if ends == "link":
            again = await server.accept()
            await again.shake_hands()
            await again.expect(b"SUB one 1")
        else:
            assert client.stats.reconnects == 0
            assert client.is_connected
            refused = ends == "subscription" and "Invalid Subject" not in text
            # Of a malformed subject it is the one that is malformed, and "one" is not.
            refused = refused and not isinstance(error, errors.InvalidSubjectError)
            assert one.active != refused
            if refused:
                with pytest.raises(type(error)):
                    await one.next(WITHIN)
                await peer.expect(b"UNSUB 1")
            pinging = asyncio.create_task(client.flush())
            await peer.expect(b"PING")
            peer.send(b"PONG\r\n")
            await asyncio.wait_for(pinging, WITHIN)
        await client.close()


def test_what_the_server_quotes_is_read_as_it_was_meant() -> None:
    text = r'Permissions Violation for Subscription to "a\"b.\\" using queue "q\u00e9" (sid "12")'
    error, _ = meaning_of(text, "")
    assert isinstance(error, errors.PermissionsError)
    found = (error.operation, error.subject, error.queue, error.sid)
    assert found == ("subscription", 'a"b.\\', "qé", 12)


# -- by real servers -----------------------------------------------------------------------------


async def test_one_subscription_too_many_fails_alone(
    make_server: MakeServer, connect: Connect
) -> None:
    nc = await connect(make_server("max_subscriptions: 3").url)
    kept = [nc.subscribe(f"kept.{number}") for number in range(3)]
    await nc.flush()
    many = [nc.subscribe(f"more.{number}") for number in range(4)]
    for sub in many:
        with pytest.raises(errors.SubscriptionLimitError):
            await sub.next(WITHIN)
    # A request needs one, too: it fails at once.
    with pytest.raises(errors.JetsparkError, match="maximum subscriptions exceeded"):
        await nc.request("a", timeout=WITHIN)
    await nc.force_reconnect()
    for sub in kept:
        await nc.publish(sub.subject, b"x")
        assert (await sub.next(WITHIN)).data == b"x"
    kept.pop().unsubscribe()
    another = nc.subscribe("another")
    await nc.publish("another", b"y")
    assert (await another.next(WITHIN)).data == b"y"
    assert nc.stats.reconnects == 1


LIMITED = """
authorization {
  users = [{ user: u, password: p, permissions: {
    publish: { allow: ["may.>", "_INBOX.>"] }, subscribe: { deny: ["no.>"] }
  } }]
}
"""


async def test_a_request_that_may_not_be_published_fails_at_once(
    make_server: MakeServer, connect: Connect
) -> None:
    nc = await connect(make_server(LIMITED).url, user="u", password="p")
    answering = nc.subscribe("may.ask", callback=lambda message: message.respond(b"yes"))
    for _ in range(2):
        with pytest.raises(errors.PermissionsError) as raised:
            await nc.request("no.way", timeout=10 * WITHIN)
        assert (raised.value.operation, raised.value.subject) == ("publish", "no.way")
    with pytest.raises(errors.PermissionsError):
        await nc.request_many("no.way", timeout=10 * WITHIN).all()
    refused, answer = await asyncio.gather(
        nc.request("no.way", timeout=10 * WITHIN), nc.request("may.ask"), return_exceptions=True
    )
    assert isinstance(refused, errors.PermissionsError)
    assert not isinstance(answer, BaseException)
    assert answer.data == b"yes"
    assert len(nc.requests) == 0
    assert nc.stats.reconnects == 0
    await answering.drain()


def test_a_request_that_may_not_be_published_fails_at_once_without_async(
    make_server: MakeServer,
) -> None:
    with blocking.connect(make_server(LIMITED).url, user="u", password="p") as nc:
        with pytest.raises(errors.PermissionsError):
            nc.request("no.way", timeout=10 * WITHIN)
        with pytest.raises(errors.PermissionsError):
            list(nc.request_many("no.way", timeout=10 * WITHIN))
        with pytest.raises(errors.PermissionsError):
            nc.subscribe("no.way").next(WITHIN)
        assert nc.stats.reconnects == 0


async def test_a_reply_subject_of_the_server_is_refused_and_the_link_stays(
    shared_server: NatsServer, connect: Connect
) -> None:
    told: asyncio.Queue[errors.JetsparkError] = asyncio.Queue()
    nc = await connect(shared_server.url, error_callback=told.put_nowait)
    await nc.publish("a", reply="_R_.reserved")
    error = await asyncio.wait_for(told.get(), WITHIN)
    assert isinstance(error, errors.PermissionsError)
    assert (error.operation, error.subject) == ("publish", "_R_.reserved")
    await nc.flush()
    # All replies would go there.
    mine = await connect(shared_server.url, inbox_prefix="_R_.mine")
    with pytest.raises(errors.PermissionsError):
        await mine.request("a", timeout=10 * WITHIN)
    assert nc.stats.reconnects == mine.stats.reconnects == 0


async def test_a_malformed_subject_ends_its_own_subscription(
    shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    nc = await connect(shared_server.url, check_subjects=False)
    good, bad, later = (nc.subscribe(name) for name in (unique("a"), "b..c", unique("d")))
    with pytest.raises(errors.InvalidSubjectError):
        await bad.next(WITHIN)
    for sub in (good, later):
        await nc.publish(sub.subject, b"x")
        assert (await sub.next(WITHIN)).data == b"x"
    assert nc.stats.reconnects == 0


async def test_a_subject_of_too_many_tokens_ends_its_own_subscription(
    make_server: MakeServer, connect: Connect
) -> None:
    nc = await connect(make_server("max_subscription_tokens: 3").url)
    good, bad = nc.subscribe("a.b.c"), nc.subscribe("a.b.c.d")
    with pytest.raises(errors.PermissionsError, match="too many tokens"):
        await bad.next(WITHIN)
    await nc.publish("a.b.c", b"x")
    assert (await good.next(WITHIN)).data == b"x"
    assert nc.stats.reconnects == 0


async def test_a_line_that_no_server_takes_is_refused_before_it_is_sent(nc: CoreClient) -> None:
    longest = "a" * 4074
    for send in (
        lambda: nc.publish_nowait(longest + "a"),
        lambda: nc.publish_nowait(longest[:2000], reply=longest[:2100]),
        lambda: nc.publish_nowait(longest[:-10], reply="reply.subject"),
        lambda: nc.publishing.send_replying(longest, b"", b"reply"),
        lambda: nc.subscribe(longest + "a"),
        lambda: nc.subscribe(longest[:2000], queue=longest[:2100]),
    ):
        with pytest.raises(errors.BadSubjectError, match="max_control_line, 4096 bytes"):
            send()
    nc.subscribe(longest)
    await nc.publish(longest)
    await nc.publish(longest[:2000], reply=longest[:2073], headers={"a": "b"})
    await nc.flush()
    assert nc.last_error is None
    assert nc.stats.reconnects == 0


async def test_a_server_that_takes_shorter_lines_ends_one_subscription_and_not_all(
    make_server: MakeServer, connect: Connect
) -> None:
    nc = await connect(make_server("max_control_line: 512").url)
    good, bad = nc.subscribe("good"), nc.subscribe("bad." + "x" * 600)
    with pytest.raises(errors.ControlLineError):
        await bad.next(WITHIN)
    await nc.publish("good", b"x")
    assert (await good.next(WITHIN)).data == b"x"
    before = nc.stats.reconnects
    assert before <= 2
    lost = nc.events()
    await nc.publish("b" * 600)  # told, and over with the next link
    await next_of(lost, Reconnected)
    assert nc.stats.reconnects == before + 1
    assert good.active
    await nc.flush()


async def test_too_many_connections_have_their_own_error(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server("max_connections: 2")  # one may still be that of its start
    with pytest.raises(errors.ConnectionLimitError):
        for _ in range(3):
            await connect(server.url)


async def test_cluster_port_is_refused_by_name(make_server: MakeServer, connect: Connect) -> None:
    from tests.support.ports import free_port

    port = free_port()
    make_server(f'cluster {{ name: c, listen: "127.0.0.1:{port}" }}', jetstream=False)
    with pytest.raises(errors.ServerRefusedError, match="not a client port"):
        await connect(f"nats://127.0.0.1:{port}")
