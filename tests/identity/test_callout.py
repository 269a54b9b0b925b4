"""An authorization callout service against real servers, which ask it for each login."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.jetstream.eventually import eventually
from tests.support.callout import CalloutKeys

import jetspark.errors as errors
from jetspark import identity
from jetspark.acl import Roles
from jetspark.full_client import connect

if TYPE_CHECKING:
    from tests.conftest import MakeServer

    from jetspark.full_client import Client
    from jetspark.server import NatsServer

PASSWORDS = {"ann": "apples", "bob": "berries"}


@pytest.fixture
def keys() -> CalloutKeys:
    return CalloutKeys()


@pytest.fixture
def server(make_server: MakeServer, keys: CalloutKeys) -> NatsServer:
    return make_server(keys.config())


async def authorize(request: identity.AuthRequest) -> identity.Grant:
    given = request.connect_opts
    if PASSWORDS.get(given.user) != given.password:
        raise errors.CalloutRefusal("wrong password")
    may = identity.UserClaims(
        pub=identity.Allowed(allow=["fruit.*"]), sub=identity.Allowed(allow=["fruit.>", "_INBOX.>"])
    )
    return identity.Grant(account="APP", name=f"{given.user} of APP", may=may)


async def login(server: NatsServer, user: str, password: str = "", **options: Any) -> Client:
    password = password or PASSWORDS.get(user, "x")
    url = server.url
    return await connect(url, user=user, password=password, connect_timeout=30, **options)


async def service(server: NatsServer, told: Any = print) -> Client:
    return await connect(server.url, user="auth", password="auth", error_callback=told)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_callout_grants_and_refuses(make_server: MakeServer, encrypted: bool) -> None:
    keys = CalloutKeys(xkey=identity.CurveKeyPair.new() if encrypted else None)
    server = make_server(keys.config())
    async with (
        await service(server) as nc,
        await nc.auth_callout(authorize, signer=keys.signer, xkey=keys.xkey) as callout,
    ):
        reported: list[errors.JetsparkError] = []
        async with await login(server, "ann", error_callback=reported.append) as ann:
            sub = ann.subscribe("fruit.>")
            await ann.publish("fruit.apple", b"red")
            assert (await sub.next(30)).data == b"red"
            await ann.publish("vegetables")
            await ann.flush()
            assert [type(error) for error in reported] == [errors.PermissionsError]
        with pytest.raises(errors.AuthError):
            await login(server, "bob", "apples")
        with pytest.raises(errors.AuthError):
            await login(server, "nobody")
        assert (callout.stats.granted, callout.stats.refused) == (1, 2)
        assert (callout.stats.failed, callout.stats.invalid) == (0, 0)


async def test_callout_handler_knows_server_client_and_tls(make_server: MakeServer) -> None:
    keys = CalloutKeys()
    server = make_server(keys.config(), name="asks")
    requests: list[identity.AuthRequest] = []

    def look(request: identity.AuthRequest) -> identity.Grant:
        requests.append(request)
        roles = Roles().publisher("a.*")
        return identity.Grant(account="APP", may=roles, expires=timedelta(hours=1))

    async with (
        await service(server) as nc,
        await nc.auth_callout(look, signer=keys.signer),
        connect(server.url, token="secret", name="mine", connect_timeout=30),
    ):
        pass
    (request,) = requests
    assert request.server_id.name == "asks"
    assert request.server_id.id.startswith("N")
    assert (request.client_info.kind, request.client_info.type) == ("Client", "nats")
    assert request.client_info.host == "127.0.0.1"
    assert (request.connect_opts.auth_token, request.connect_opts.name) == ("secret", "mine")
    assert request.connect_opts.password == ""
    assert request.client_tls is None
    assert "secret" not in repr(request)


async def test_a_handler_that_fails_lets_nobody_in(server: NatsServer, keys: CalloutKeys) -> None:
    reports: list[errors.JetsparkError] = []
    answers: list[object] = [
        ValueError("secret text"),
        None,
        True,
        identity.Grant(account=""),
        identity.Grant(account="APP", signer=identity.KeyPair.new(identity.KeyKind.ACCOUNT)),
        identity.Grant(account="APP", expires=-1),
    ]

    async def decide(request: identity.AuthRequest) -> identity.Grant:
        answer = answers[int(request.connect_opts.user)]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    async with (
        await service(server, reports.append) as nc,
        await nc.auth_callout(decide, signer=keys.signer) as callout,
    ):
        for number in range(len(answers)):
            with pytest.raises(errors.AuthError):
                await login(server, str(number))
        assert callout.stats.failed == len(answers)
    assert len(reports) == len(answers)
    assert "secret text" not in server.log


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"signer": identity.KeyPair.new(identity.KeyKind.ACCOUNT)}, "for another service"),
        ({"xkey": identity.CurveKeyPair.new()}, "not encrypted"),
        ({"servers": [identity.KeyPair.new(identity.KeyKind.SERVER).public]}, "unknown server"),
    ],
)
async def test_requests_that_are_not_for_it_are_refused(
    server: NatsServer, keys: CalloutKeys, change: dict[str, Any], why: str
) -> None:
    reports: list[errors.JetsparkError] = []
    async with await service(server, reports.append) as nc:
        async with await nc.auth_callout(authorize, **{"signer": keys.signer, **change}) as callout:
            with pytest.raises(errors.AuthError):
                await login(server, "ann")
            assert callout.stats.invalid == 1
        assert why in str(reports[0])
        assert nc.server_info is not None
        ours = [nc.server_info.server_id]
        async with await nc.auth_callout(authorize, signer=keys.signer, servers=ours):
            await (await login(server, "ann")).close()


async def test_instances_share_and_stop_in_order(server: NatsServer, keys: CalloutKeys) -> None:
    held, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(request: identity.AuthRequest) -> identity.Grant:
        held.set()
        await go_on.wait()
        return await authorize(request)

    async with await service(server) as nc:
        one = await nc.auth_callout(slowly, signer=keys.signer)
        waiting = asyncio.create_task(login(server, "ann"))
        await asyncio.wait_for(held.wait(), 30)
        two = await nc.auth_callout(authorize, signer=keys.signer)
        stopping = asyncio.create_task(one.stop())
        await eventually(lambda: not one._sub.active)
        await (await login(server, "bob")).close()
        assert two.stats.granted == 1
        go_on.set()
        await stopping
        await (await waiting).close()
        await one.wait_stopped()
        assert one.stats.granted == 1
        await one.stop()
        await two.stop()


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"payload": 10}, "payload"),
        ({"subs": 2}, "subs"),
        ({"data": 0}, "data"),
        ({"src": ["192.0.2.0/24"]}, "src"),
        ({"allowed_connection_types": ["WEBSOCKET"]}, "allowed_connection_types"),
        ({"bearer_token": True}, "bearer_token"),
        ({"issuer_account": CalloutKeys().signer.public}, "issuer_account"),
    ],
)
def test_a_grant_with_claims_without_effect_is_refused(claims: dict[str, Any], name: str) -> None:
    with pytest.raises(errors.ConfigError, match=f"enforce {name} for"):
        identity.Grant(account="APP", may=identity.UserClaims(**claims))


async def test_servers_enforce_what_a_grant_takes(server: NatsServer, keys: CalloutKeys) -> None:
    now = datetime.now(UTC)
    later = identity.HoursOfDay(
        start=f"{now + timedelta(hours=2):%H:00:00}", end=f"{now + timedelta(hours=3):%H:00:00}"
    )
    claims: dict[str, dict[str, Any]] = {
        "all": {},
        "limits": {"payload": 10, "subs": 2, "data": 10},
        "src": {"src": ["192.0.2.0/24"]},
        "types": {"allowed_connection_types": ["WEBSOCKET"]},
        "none left": {"payload": -1, "subs": -1, "data": -1, "src": [], "bearer_token": False},
        "times": {"times": [later], "times_location": "UTC"},
        "proxy": {"proxy_required": True},
        "answers": {"pub": identity.Allowed(deny=[">"]), "resp": identity.AllowedResponses(max=1)},
    }

    def grant(request: identity.AuthRequest) -> identity.Grant:
        user = request.connect_opts.user
        grant = identity.Grant(account="APP", name=user)
        object.__setattr__(grant, "may", identity.UserClaims(**claims[user]))  # unchecked
        return grant

    async with await service(server) as nc, await nc.auth_callout(grant, signer=keys.signer):
        for user in ("limits", "src", "types", "none left"):
            async with await login(server, user) as ignoring:
                subs = [ignoring.subscribe(f"many.{number}") for number in range(5)]
                await ignoring.publish("many.4", bytes(100))
                assert (await subs[4].next(30)).data == bytes(100)
        for user in ("times", "proxy"):  # servers before 2.12 ignore proxy_required: we refuse
            with pytest.raises(errors.AuthError):
                await login(server, user)
        reported: list[errors.JetsparkError] = []
        async with (
            await login(server, "all") as asking,
            await login(server, "answers", error_callback=reported.append) as answering,
        ):
            served, inbox = answering.subscribe("service"), asking.subscribe("answers")
            await asyncio.gather(asking.flush(), answering.flush())
            await asking.publish("service", reply="answers")
            request = await served.next(30)
            await request.respond(b"1")
            await request.respond(b"2")
            await answering.flush()
            assert (await inbox.next(30)).data == b"1"
            await eventually(lambda: len(reported) == 1)
            assert [type(error) for error in reported] == [errors.PermissionsError]


async def test_keys_of_another_kind_are_refused(server: NatsServer, keys: CalloutKeys) -> None:
    user = identity.KeyPair.new()
    async with await service(server) as nc:
        with pytest.raises(errors.NKeyError, match="SA…"):
            await nc.auth_callout(authorize, signer=user)
        with pytest.raises(errors.NKeyError, match="A…"):
            await nc.auth_callout(authorize, signer=keys.signer, account=user.public)
        with pytest.raises(errors.NKeyError, match="N…"):
            await nc.auth_callout(authorize, signer=keys.signer, servers=[user.public])
        with pytest.raises(errors.ConfigError, match="concurrency"):
            await nc.auth_callout(authorize, signer=keys.signer, concurrency=0)


async def test_role_auth_callout_has_what_it_needs_and_no_more(make_server: MakeServer) -> None:
    keys = CalloutKeys(xkey=identity.CurveKeyPair.new())
    block = Roles().auth_callout().to_config()
    users = "users: [ { user: auth, password: auth"
    server = make_server(keys.config().replace(users, f"{users}, {block}"))
    reported: list[errors.JetsparkError] = []
    async with (
        await service(server, reported.append) as nc,
        await nc.auth_callout(authorize, signer=keys.signer, xkey=keys.xkey) as callout,
    ):
        await (await login(server, "ann")).close()
        assert (callout.stats.granted, reported) == (1, [])
        nc.subscribe("$SYS.REQ.USER.AUTH")
        await nc.publish("other")
        await nc.flush()
        assert [type(error) for error in reported] == [errors.PermissionsError] * 2
