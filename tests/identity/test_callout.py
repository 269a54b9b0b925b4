"""An authorization callout service against real servers, which ask it for each login."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.jetstream.eventually import eventually
from tests.support.callout import CalloutKeys

from jetspark.acl import Roles
from jetspark.errors import (
    AuthError,
    CalloutRefusal,
    ConfigError,
    JetsparkError,
    NKeyError,
    PermissionsError,
)
from jetspark.full_client import connect
from jetspark.identity import (
    Allowed,
    AllowedResponses,
    AuthRequest,
    CurveKeyPair,
    Grant,
    HoursOfDay,
    KeyKind,
    KeyPair,
    UserClaims,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.full_client import Client
    from jetspark.server import NatsServer

PASSWORDS = {"ann": "apples", "bob": "berries"}


async def authorize(request: AuthRequest) -> Grant:
    given = request.connect_opts
    if PASSWORDS.get(given.user) != given.password:
        raise CalloutRefusal("wrong password")
    may = UserClaims(pub=Allowed(allow=["fruit.*"]), sub=Allowed(allow=["fruit.>", "_INBOX.>"]))
    return Grant(account="APP", name=f"{given.user} of APP", may=may)


async def login(server: NatsServer, user: str, password: str = "", **options: Any) -> Client:
    password = password or PASSWORDS.get(user, "x")
    url = server.url
    return await connect(url, user=user, password=password, connect_timeout=30, **options)


async def service(server: NatsServer) -> Client:
    return await connect(server.url, user="auth", password="auth", error_callback=print)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_callout_grants_and_refuses(
    make_server: Callable[..., NatsServer], encrypted: bool
) -> None:
    keys = CalloutKeys(xkey=CurveKeyPair.new() if encrypted else None)
    server = make_server(keys.config())
    async with (
        await service(server) as nc,
        await nc.auth_callout(authorize, signer=keys.signer, xkey=keys.xkey) as callout,
    ):
        errors: list[JetsparkError] = []
        async with await login(server, "ann", error_callback=errors.append) as ann:
            sub = ann.subscribe("fruit.>")
            await ann.publish("fruit.apple", b"red")
            assert (await sub.next(30)).data == b"red"
            await ann.publish("vegetables")
            await ann.flush()
            assert [type(error) for error in errors] == [PermissionsError]
        with pytest.raises(AuthError):
            await login(server, "bob", "apples")
        with pytest.raises(AuthError):
            await login(server, "nobody")
        assert (callout.stats.granted, callout.stats.refused) == (1, 2)
        assert (callout.stats.failed, callout.stats.invalid) == (0, 0)


async def test_callout_handler_knows_server_client_and_tls(
    make_server: Callable[..., NatsServer],
) -> None:
    keys = CalloutKeys()
    server = make_server(keys.config(), name="asks")
    requests: list[AuthRequest] = []

    def look(request: AuthRequest) -> Grant:
        requests.append(request)
        roles = Roles().publisher("a.*")
        return Grant(account="APP", may=roles, expires=timedelta(hours=1))

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


async def test_callout_whose_handler_fails_lets_nobody_in(
    make_server: Callable[..., NatsServer],
) -> None:
    keys = CalloutKeys()
    server = make_server(keys.config())
    reports: list[JetsparkError] = []
    answers: list[object] = [
        ValueError("secret text"),
        None,
        True,
        Grant(account=""),
        Grant(account="APP", signer=KeyPair.new(KeyKind.ACCOUNT)),
        Grant(account="APP", expires=-1),
    ]

    async def decide(request: AuthRequest) -> Grant:
        answer = answers[int(request.connect_opts.user)]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    async with (
        connect(server.url, user="auth", password="auth", error_callback=reports.append) as nc,
        await nc.auth_callout(decide, signer=keys.signer) as callout,
    ):
        for number in range(len(answers)):
            with pytest.raises(AuthError):
                await login(server, str(number))
        assert callout.stats.failed == len(answers)
    assert len(reports) == len(answers)
    assert "secret text" not in server.log


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"signer": KeyPair.new(KeyKind.ACCOUNT)}, "for another service"),
        ({"xkey": CurveKeyPair.new()}, "not encrypted"),
        ({"servers": [KeyPair.new(KeyKind.SERVER).public]}, "unknown server"),
    ],
)
async def test_callout_refuses_requests_that_are_not_for_it(
    make_server: Callable[..., NatsServer], change: dict[str, Any], why: str
) -> None:
    keys = CalloutKeys()
    server = make_server(keys.config())
    reports: list[JetsparkError] = []
    async with connect(
        server.url, user="auth", password="auth", error_callback=reports.append
    ) as nc:
        async with await nc.auth_callout(authorize, **{"signer": keys.signer, **change}) as callout:
            with pytest.raises(AuthError):
                await login(server, "ann")
            assert callout.stats.invalid == 1
        assert why in str(reports[0])
        assert nc.server_info is not None
        ours = [nc.server_info.server_id]
        async with await nc.auth_callout(authorize, signer=keys.signer, servers=ours):
            await (await login(server, "ann")).close()


async def test_instances_of_a_callout_share_and_stop_in_good_order(
    make_server: Callable[..., NatsServer],
) -> None:
    keys = CalloutKeys()
    server = make_server(keys.config())
    held, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(request: AuthRequest) -> Grant:
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
        ({"issuer_account": KeyPair.new(KeyKind.ACCOUNT).public}, "issuer_account"),
    ],
)
def test_a_grant_with_claims_that_servers_do_not_enforce_is_refused(
    claims: dict[str, Any], name: str
) -> None:
    with pytest.raises(ConfigError, match=f"do not enforce {name} for users of a callout"):
        Grant(account="APP", may=UserClaims(**claims))


async def test_servers_enforce_of_a_callouts_claims_what_a_grant_takes_and_no_more(
    make_server: Callable[..., NatsServer],
) -> None:
    keys = CalloutKeys()
    server = make_server(keys.config())
    now = datetime.now(UTC)
    later = HoursOfDay(
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
        "answers": {"pub": Allowed(deny=[">"]), "resp": AllowedResponses(max=1)},
    }

    def grant(request: AuthRequest) -> Grant:
        user = request.connect_opts.user
        grant = Grant(account="APP", name=user)
        object.__setattr__(grant, "may", UserClaims(**claims[user]))  # unchecked
        return grant

    async with (
        connect(server.url, user="auth", password="auth", error_callback=lambda _: None) as nc,
        await nc.auth_callout(grant, signer=keys.signer),
    ):
        for user in ("limits", "src", "types", "none left"):
            async with await login(server, user) as ignoring:
                subs = [ignoring.subscribe(f"many.{number}") for number in range(5)]
                await ignoring.publish("many.4", bytes(100))
                assert (await subs[4].next(30)).data == bytes(100)
        for user in ("times", "proxy"):  # servers before 2.12 ignore proxy_required: we refuse
            with pytest.raises(AuthError):
                await login(server, user)
        errors: list[JetsparkError] = []
        async with (
            await login(server, "all") as asking,
            await login(server, "answers", error_callback=errors.append) as answering,
        ):
            served, inbox = answering.subscribe("service"), asking.subscribe("answers")
            await asyncio.gather(asking.flush(), answering.flush())
            await asking.publish("service", reply="answers")
            request = await served.next(30)
            await request.respond(b"1")
            await request.respond(b"2")
            await answering.flush()
            assert (await inbox.next(30)).data == b"1"
            await eventually(lambda: len(errors) == 1)
            assert [type(error) for error in errors] == [PermissionsError]


async def test_callout_refuses_keys_of_another_kind(make_server: Callable[..., NatsServer]) -> None:
    keys = CalloutKeys()
    server = make_server(keys.config())
    user = KeyPair.new()
    async with await service(server) as nc:
        with pytest.raises(NKeyError, match="SA…"):
            await nc.auth_callout(authorize, signer=user)
        with pytest.raises(NKeyError, match="A…"):
            await nc.auth_callout(authorize, signer=keys.signer, account=user.public)
        with pytest.raises(NKeyError, match="N…"):
            await nc.auth_callout(authorize, signer=keys.signer, servers=[user.public])
        with pytest.raises(ConfigError, match="concurrency"):
            await nc.auth_callout(authorize, signer=keys.signer, concurrency=0)


async def test_role_auth_callout_has_all_permissions_it_needs_and_no_more(
    make_server: Callable[..., NatsServer],
) -> None:
    keys = CalloutKeys(xkey=CurveKeyPair.new())
    block = Roles().auth_callout().to_config()
    users = "users: [ { user: auth, password: auth"
    server = make_server(keys.config().replace(users, f"{users}, {block}"))
    errors: list[JetsparkError] = []
    async with (
        connect(server.url, user="auth", password="auth", error_callback=errors.append) as nc,
        await nc.auth_callout(authorize, signer=keys.signer, xkey=keys.xkey) as callout,
    ):
        await (await login(server, "ann")).close()
        assert (callout.stats.granted, errors) == (1, [])
        nc.subscribe("$SYS.REQ.USER.AUTH")
        await nc.publish("other")
        await nc.flush()
        assert [type(error) for error in errors] == [PermissionsError] * 2
