"""Keys and JWTs: what we make a real server takes, and what is not right nobody takes."""

from __future__ import annotations

import base64
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import nkeys
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.accounts import Key, make_jwt

import jetspark.errors as errors
from jetspark.acl import Responses, Roles
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
    check_times,
    creds_text,
    issue_user,
    permitted,
    read_jwt,
    user_claims,
    verify,
)
from jetspark.identity.jwt import encode_jwt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import MakeServer


NO_LIMITS: dict[str, Any] = {
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
    "wildcards": True,
}


class Operation:
    """An operator, a system account, and an account whose JWT says more."""

    def __init__(self) -> None:
        self.operator = KeyPair.new(KeyKind.OPERATOR)
        self.system = KeyPair.new(KeyKind.ACCOUNT)
        self.accounts: dict[KeyPair, dict[str, Any]] = {self.system: {}}

    def account(self, **said: Any) -> KeyPair:
        made = KeyPair.new(KeyKind.ACCOUNT)
        self.accounts[made] = said
        return made

    def config(self) -> str:
        operator = encode_jwt(
            self.operator, self.operator.public, "operator", {"system_account": self.system.public}
        )
        jwts = {
            key.public: encode_jwt(
                self.operator, key.public, "account", {"limits": NO_LIMITS, **said}
            )
            for key, said in self.accounts.items()
        }
        preload = "\n".join(f"{public}: {jwt}" for public, jwt in jwts.items())
        return (
            f"operator: {operator}\nsystem_account: {self.system.public}\n"
            f"resolver: MEMORY\nresolver_preload: {{ {preload} }}\n"
            "authorization: { timeout: 10 }\n"
        )


# -- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KeyKind if kind is not KeyKind.CURVE])
def test_keys_are_those_of_the_library_nkeys(kind: KeyKind) -> None:
    ours = KeyPair.new(kind)
    assert ours.public.startswith(kind.letter)
    assert ours.seed.startswith(f"S{kind.letter}")
    theirs = nkeys.from_seed(bytearray(ours.seed.encode()))
    assert theirs.public_key.decode() == ours.public
    assert theirs.sign(b"data") == ours.sign(b"data")
    assert verify(ours.public, b"data", ours.sign(b"data"))
    assert not verify(ours.public, b"other", ours.sign(b"data"))
    assert not verify(ours.public, b"data", b"short")
    again = KeyPair.from_seed(ours.seed)
    assert (again.public, again.kind) == (ours.public, kind)
    assert ours.seed not in repr(ours)


@pytest.mark.parametrize("kind", [KeyKind.USER, KeyKind.ACCOUNT])
def test_cryptography_signs_without_pynacl(kind: KeyKind, monkeypatch: pytest.MonkeyPatch) -> None:
    key, other = KeyPair.new(kind), KeyPair.new(kind)
    for module in ("nacl.signing", "nacl.public"):
        monkeypatch.setitem(sys.modules, module, None)
    again = KeyPair.from_seed(key.seed)
    assert again.public == key.public
    assert again.sign(b"data") == key.sign(b"data")
    assert verify(key.public, b"data", again.sign(b"data"))
    assert not verify(key.public, b"other", again.sign(b"data"))
    assert not verify(other.public, b"data", again.sign(b"data"))
    assert not verify(key.public, b"data", b"short")
    with pytest.raises(errors.ConfigError, match=r"PyNaCl .* pip install"):
        CurveKeyPair.new()


@given(
    st.text(max_size=70) | st.binary(max_size=70).map(lambda raw: base64.b32encode(raw).decode())
)
def test_a_text_that_is_no_key_is_refused_in_a_sentence(text: str) -> None:
    for call in (KeyPair.from_seed, CurveKeyPair.from_seed, lambda key: verify(key, b"", b"")):
        with pytest.raises(errors.NKeyError) as caught:
            call(text)
        assert len(text) < 20 or text not in str(caught.value)


def test_a_key_with_one_changed_letter_is_refused() -> None:
    seed = KeyPair.new().seed
    for place in range(len(seed)):
        changed = seed[:place] + ("A" if seed[place] != "A" else "B") + seed[place + 1 :]
        with pytest.raises(errors.NKeyError):
            KeyPair.from_seed(changed)


def test_xkeys_encrypt_for_one_reader() -> None:
    ann, bob, eve = (CurveKeyPair.new() for _ in range(3))
    sealed = ann.seal(b"hello", bob.public)
    assert sealed.startswith(b"xkv1")
    assert bob.open(sealed, ann.public) == b"hello"
    for reader, data, sender in (
        (eve, sealed, ann.public),
        (bob, sealed, eve.public),
        (bob, sealed[:-1] + bytes([sealed[-1] ^ 1]), ann.public),
        (bob, b"xkv1", ann.public),
        (bob, b"", ann.public),
        (bob, sealed, KeyPair.new().public),
    ):
        with pytest.raises(errors.NKeyError):
            reader.open(data, sender)
    assert CurveKeyPair.from_seed(ann.seed).public == ann.public
    with pytest.raises(errors.NKeyError, match="cannot sign"):
        KeyPair.from_seed(ann.seed)
    with pytest.raises(errors.NKeyError, match="not of a curve key"):
        CurveKeyPair.from_seed(KeyPair.new().seed)
    with pytest.raises(errors.ConfigError, match=r"CurveKeyPair\.new"):
        KeyPair.new(KeyKind.CURVE)


# -- JWTs --------------------------------------------------------------------------------------


async def test_issued_users_log_in_with_their_permissions_and_limits(
    make_server: MakeServer, tmp_path: Path
) -> None:
    operation = Operation()
    account = operation.account()
    server = make_server(operation.config(), jetstream=False)
    user = KeyPair.new()
    may = UserClaims(pub=Allowed(deny=["secret.>"]), payload=100, tags=["team:a"])
    jwt = issue_user(account, user.public, name="ann", claims=may, expires=timedelta(hours=1))
    file = tmp_path / "ann.creds"
    file.write_text(creds_text(jwt, user.seed), "utf-8")
    reported: list[errors.JetsparkError] = []
    async with connect(server.url, creds_file=str(file), error_callback=reported.append) as nc:
        assert nc.server_info is not None
        sub = nc.subscribe("free")
        await nc.publish("free", b"x")
        assert (await sub.next(30)).data == b"x"
        await nc.publish("secret.plan")
        await nc.flush()
    assert [type(error) for error in reported] == [errors.PermissionsError]
    claims = read_jwt(jwt)
    assert (claims.iss, claims.sub, claims.name) == (account.public, user.public, "ann")
    assert claims.kind == "user"
    said = user_claims(claims)
    assert said.pub == Allowed(deny=["secret.>"])
    assert (said.payload, said.subs, said.tags) == (100, -1, ["team:a"])
    expired = encode_jwt(account, user.public, "user", {}, expires=int(time.time()) - 5)
    with pytest.raises(errors.AuthExpiredError):
        await connect(server.url, jwt=expired, nkey_seed=user.seed)
    with pytest.raises(errors.AuthError):  # of an account that the server does not know
        other = issue_user(KeyPair.new(KeyKind.ACCOUNT), user.public)
        await connect(server.url, jwt=other, nkey_seed=user.seed)


async def test_signing_keys_issue_users_and_scoped_ones_decide_themselves(
    make_server: MakeServer,
) -> None:
    operation = Operation()
    signing, scoped = KeyPair.new(KeyKind.ACCOUNT), KeyPair.new(KeyKind.ACCOUNT)
    template = {
        "pub": {"allow": ["{{name()}}.>"]},
        "sub": {},
        **dict.fromkeys(("subs", "data", "payload"), -1),
    }
    scope = {"kind": "user_scope", "key": scoped.public, "role": "own", "template": template}
    account = operation.account(signing_keys=[signing.public, scope])
    server = make_server(operation.config(), jetstream=False)
    user = KeyPair.new()
    plain = issue_user(signing, user.public, account=account.public)
    async with connect(server.url, jwt=plain, nkey_seed=user.seed) as nc:
        await nc.flush()
    assert user_claims(read_jwt(plain)).issuer_account == account.public
    reported: list[errors.JetsparkError] = []
    jwt = issue_user(scoped, user.public, name="ann", account=account.public, scoped=True)
    async with connect(
        server.url, jwt=jwt, nkey_seed=user.seed, error_callback=reported.append
    ) as nc:
        await nc.publish("ann.x")
        await nc.flush()
        assert reported == []
        await nc.publish("bob.x")
        await nc.flush()
        assert [type(error) for error in reported] == [errors.PermissionsError]
    with pytest.raises(errors.ConfigError, match="give only tags"):
        issue_user(scoped, user.public, claims=UserClaims(subs=1), scoped=True)


async def test_callout_of_an_operator_places_users_into_allowed_accounts(
    make_server: MakeServer,
) -> None:
    operation = Operation()
    signing, xkey, auth_user = KeyPair.new(KeyKind.ACCOUNT), CurveKeyPair.new(), KeyPair.new()
    app, other = operation.account(), operation.account()
    auth = operation.account(
        signing_keys=[signing.public],
        authorization={
            "auth_users": [auth_user.public],
            "allowed_accounts": [app.public],
            "xkey": xkey.public,
        },
    )
    server = make_server(operation.config(), jetstream=False)
    key_of = {"ann": app, "bob": other}

    def authorize(request: AuthRequest) -> Grant:
        key = key_of.get(request.connect_opts.auth_token)
        if key is None:
            raise errors.CalloutRefusal("unknown token")
        return Grant(account=key.public, signer=key, name=request.connect_opts.auth_token)

    service_jwt = issue_user(auth, auth_user.public)
    # Whoever has no user of an own logs in with this one, and is decided on by the service.
    guest = KeyPair.new()
    denied = UserClaims(pub=Allowed(deny=[">"]), sub=Allowed(deny=[">"]), bearer_token=True)
    sentinel = issue_user(auth, guest.public, claims=denied)
    async with (
        connect(server.url, jwt=service_jwt, nkey_seed=auth_user.seed) as nc,
        await nc.auth_callout(authorize, signer=signing, account=auth.public, xkey=xkey) as callout,
    ):
        async with connect(server.url, token="ann", jwt=sentinel, connect_timeout=30) as ann:
            sub = ann.subscribe("x")
            await ann.publish("x", b"y")
            assert (await sub.next(30)).data == b"y"
        with pytest.raises(errors.AuthError):  # of an account that is not allowed
            await connect(server.url, token="bob", jwt=sentinel, connect_timeout=30)
        with pytest.raises(errors.AuthError):
            await connect(server.url, token="eve", jwt=sentinel, connect_timeout=30)
        assert (callout.stats.granted, callout.stats.refused) == (2, 1)


def test_permissions_of_roles_become_claims() -> None:
    roles = Roles().pull_reader("S", "c", responses=Responses(max=3, expires=7))
    claims = permitted(roles, subs=10)
    assert claims.pub == Allowed(allow=list(roles.publish))
    assert claims.resp == AllowedResponses(max=3, ttl=timedelta(seconds=7))
    assert claims.subs == 10
    # An empty list would allow everything.
    assert permitted(Roles().events()).pub == Allowed(deny=[">"])


def test_wrong_keys_and_times_are_refused() -> None:
    account, user = KeyPair.new(KeyKind.ACCOUNT), KeyPair.new()
    with pytest.raises(errors.NKeyError, match="SA…"):
        issue_user(user, user.public)
    with pytest.raises(errors.NKeyError, match="U…"):
        issue_user(account, account.public)
    with pytest.raises(errors.NKeyError, match="A…"):
        issue_user(account, user.public, account=user.public)
    with pytest.raises(errors.ConfigError, match="more than 0"):
        issue_user(account, user.public, expires=0)
    with pytest.raises(errors.ConfigError, match="time zone"):
        issue_user(account, user.public, expires=datetime(2030, 1, 1))
    with pytest.raises(errors.ConfigError, match="in the past"):
        issue_user(account, user.public, expires=datetime.now(UTC) - timedelta(seconds=5))
    for wrong in (account.seed, account.seed.encode(), None):
        with pytest.raises(AttributeError) as refused:
            issue_user(wrong, user.public)  # type: ignore[arg-type]
        assert account.seed not in str(refused.value)


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"payload": "x"}, "payload: expected int, got str"),
        ({"payload": -5}, "payload must be at least 0, or -1 for no limit, not -5."),
        ({"subs": True}, "subs: expected int, got bool"),
        ({"data": -2}, "data must be at least 0"),
        ({"src": ["nonsense"]}, "src needs networks such as"),
        ({"src": ["192.0.2.1"]}, "src needs networks such as"),
        ({"pub": {"allow": ["a..b"]}}, "Bad subject in pub.allow 'a..b'"),
        ({"sub": {"deny": ["a group b"]}}, "Bad subject in sub.deny"),
        ({"pub": {"allow": ["a group"]}}, "Bad subject in pub.allow"),
        ({"pub": {"allow": 5}}, "pub.allow: expected array, got int"),
        ({"resp": {"max": -2}}, "resp.max must be at least 0"),
        ({"resp": AllowedResponses(ttl=timedelta(seconds=-1))}, "resp.ttl"),
        ({"times": [HoursOfDay(start="8", end="09:00:00")]}, 'times must be such as "08:00:00"'),
        ({"type": "account"}, "leave it out"),
        ({"version": 1}, "leave it out"),
    ],
)
def test_claims_that_no_server_could_read_are_refused(claims: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.ConfigError) as refused:
        issue_user(_ACCOUNT, _USER, claims=UserClaims(**claims))
    assert told in str(refused.value)


def test_claims_that_servers_read_are_issued() -> None:
    may = UserClaims(
        pub=Allowed(allow="orders.>"),  # type: ignore[arg-type]  # one is a list of one
        sub=Allowed(allow=["orders.> workers"]),
        resp=AllowedResponses(max=-1, ttl=timedelta(seconds=5)),
        payload=0,
        subs=-1,
        src=["192.0.2.7/24", "2001:db8::/32"],
        times=[HoursOfDay(start="08:00:00", end="17:30:00")],
    )
    said = user_claims(read_jwt(issue_user(_ACCOUNT, _USER, claims=may)))
    assert said.pub == Allowed(allow=["orders.>"])
    assert (said.sub, said.resp, said.src, said.times) == (may.sub, may.resp, may.src, may.times)
    again = issue_user(_ACCOUNT, _USER, claims=said)  # what was read is issued again
    assert user_claims(read_jwt(again)) == said


def test_creds_are_of_one_user() -> None:
    user, other = KeyPair.new(), KeyPair.new()
    jwt = issue_user(_ACCOUNT, user.public)
    operator = KeyPair.new(KeyKind.OPERATOR)
    no_user = encode_jwt(operator, operator.public, "operator", {})
    for wrong in (
        ("x", user.seed),
        (user.seed, jwt),
        (jwt, other.seed),
        (jwt, CurveKeyPair.new().seed),
        (jwt, user),
        (jwt, user.public),
        (jwt, user.seed.encode()),
        (jwt.encode(), user.seed),
        (no_user, operator.seed),
    ):
        with pytest.raises((errors.ConfigError, TypeError, AttributeError)) as refused:
            creds_text(*wrong)
        for seed in (user.seed, other.seed, operator.seed):
            assert seed not in str(refused.value)
    assert user.seed in creds_text(jwt, user.seed)


def test_keys_of_a_wrong_kind_are_refused_in_a_sentence() -> None:
    key, curve = KeyPair.new(), CurveKeyPair.new()
    wrong: list[Callable[..., object]] = [
        lambda: KeyPair.from_seed(key.seed[:-1]),
        lambda: CurveKeyPair.from_seed(key.seed),
        lambda: KeyPair(KeyKind.USER, b"x"),
        lambda: KeyPair(KeyKind.CURVE, bytes(32)),
        lambda: CurveKeyPair(b"x"),
        lambda: curve.seal(b"x", key.public),
        lambda: verify(curve.public, b"x", b"y"),
    ]
    for call in wrong:
        with pytest.raises(errors.ConfigError) as refused:
            call()
        assert str(refused.value).endswith(".")
        assert key.seed not in str(refused.value)


def test_times_of_a_jwt_are_checked_with_leeway() -> None:
    account, user = KeyPair.new(KeyKind.ACCOUNT), KeyPair.new()
    theirs = Key(account.seed, account.public)
    now = int(time.time())
    check_times(read_jwt(make_jwt(theirs, user.public, "user", now + 100)))
    old = read_jwt(make_jwt(theirs, user.public, "user", now - 10))
    with pytest.raises(errors.JWTError, match="expired"):
        check_times(old)
    check_times(old, leeway=60)


def _part(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def test_a_jwt_that_is_not_right_is_refused() -> None:
    account, user = KeyPair.new(KeyKind.ACCOUNT), KeyPair.new()
    jwt = issue_user(account, user.public)
    head, body, signature = jwt.split(".")
    eve = issue_user(KeyPair.new(KeyKind.ACCOUNT), user.public)
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    deep = base64.urlsafe_b64encode(b'{"nats":' + b"[" * 100_000).decode().rstrip("=")
    for wrong in (
        "",
        "..",
        f"{head}.{body}",
        f"{jwt}.x",
        f"{head}.{body}.",
        f"{head}.{body}.{signature}=",
        f"{head}.{body}.{eve.split('.')[2]}",
        f"{head}.{_part(claims | {'name': 'eve'})}.{signature}",
        f"{head}.{_part(claims | {'iss': 5})}.{signature}",
        f"{head}.{_part([])}.{signature}",
        f"{head}.{deep}.{signature}",
        f"{_part({'typ': 'JWT', 'alg': 'none'})}.{body}.{signature}",
        "é" * 100,
        "a" * 2_000_000,
    ):
        with pytest.raises(errors.JWTError):
            read_jwt(wrong)


@given(st.data())
def test_a_changed_jwt_is_never_read(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(_JWT) - 1))
    letter = data.draw(st.characters(codec="ascii"))
    if letter != _JWT[place]:
        with pytest.raises(errors.JWTError):
            read_jwt(_JWT[:place] + letter + _JWT[place + 1 :])


_ACCOUNT, _USER = KeyPair.new(KeyKind.ACCOUNT), KeyPair.new().public
_JWT = issue_user(KeyPair.new(KeyKind.ACCOUNT), KeyPair.new().public)


def test_a_jwt_of_another_kind_is_no_users() -> None:
    operator = KeyPair.new(KeyKind.OPERATOR)
    claims = read_jwt(encode_jwt(operator, operator.public, "operator", {}))
    with pytest.raises(errors.JWTError, match="another kind"):
        user_claims(claims)
