"""An authorization callout service under many logins, and under requests that are not right.

A run is a login of a user with a right or a wrong password at a real server, and then a spoiled
request. Each login must end as its password deserves, and each request must be answered by a grant
only if it is right.
"""

from __future__ import annotations

import asyncio
import random
import time
from base64 import b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support import campaign
from tests.support.callout import CalloutKeys

from jetspark.errors import AuthError, CalloutRefusal, NKeyError
from jetspark.full_client import Client, connect
from jetspark.identity import (
    AuthRequest,
    CurveKeyPair,
    Grant,
    KeyKind,
    KeyPair,
    read_jwt,
    user_claims,
)
from jetspark.identity.callout import CALLOUT_SUBJECT, XKEY_HEADER
from jetspark.identity.jwt import encode_jwt
from jetspark.server import NatsServer

AT_ONCE = 16


def authorize(request: AuthRequest) -> Grant:
    """Whoever knows a password that fits the name."""
    opts = request.connect_opts
    if not opts.user or opts.password != f"of {opts.user}":
        raise CalloutRefusal("wrong password")
    return Grant(account="APP", name=opts.user)


@dataclass
class Figures(campaign.Figures):
    logins: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)


# -- logins ------------------------------------------------------------------------------------


async def login(url: str, number: int, right: bool) -> str:
    user = f"user{number}"
    password = f"of {user}" if right else f"of user{number + 1}"
    try:
        async with connect(url, user=user, password=password, connect_timeout=60) as nc:
            await nc.flush()
    except AuthError:
        return "refused"
    return "granted"


async def logins(count: int, chance: random.Random, figures: Figures) -> None:
    keys = CalloutKeys(xkey=CurveKeyPair.new())
    numbers = iter([(number, chance.random() < 0.7) for number in range(count)])
    with TemporaryDirectory() as folder:
        file = Path(folder) / "server.conf"
        file.write_text(keys.config(), "utf-8")
        with NatsServer(0, host="127.0.0.1", config=file) as server:
            async with (
                connect(server.url, user="auth", password="auth") as nc,
                await nc.auth_callout(authorize, signer=keys.signer, xkey=keys.xkey) as callout,
            ):

                async def some() -> None:
                    for number, right in numbers:
                        ended = await login(server.url, number, right)
                        figures.logins[ended] += 1
                        if ended != ("granted" if right else "refused"):
                            figures.wrong.append(f"login {number}, right={right}: {ended}")

                await asyncio.gather(*(some() for _ in range(AT_ONCE)))
                stats = callout.stats
                counted = stats.granted, stats.refused, stats.failed + stats.invalid
                if counted != (figures.logins["granted"], figures.logins["refused"], 0):
                    figures.wrong.append(f"the service counted {stats}")


# -- spoiled requests --------------------------------------------------------------------------


class Spoiler:
    """Requests as a server makes them, right ones and spoiled ones."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.server = KeyPair.new(KeyKind.SERVER)
        self.rogue = KeyPair.new(KeyKind.SERVER)
        self.signer = KeyPair.new(KeyKind.ACCOUNT)
        self.other = KeyPair.new(KeyKind.ACCOUNT)
        self.xkey = CurveKeyPair.new()
        self.servers_xkey = CurveKeyPair.new()
        self.user = KeyPair.new()
        self.forger = KeyPair.new(KeyKind.SERVER)
        self.forger.public = self.server.public

    def said(self) -> dict[str, Any]:
        server = {"id": self.server.public, "name": "s", "host": "h"}
        return {
            "server_id": {**server, "xkey": self.servers_xkey.public},
            "user_nkey": self.user.public,
            "client_info": {"host": "127.0.0.1", "id": 5, "kind": "Client", "type": "nats"},
            "connect_opts": {"user": "ann", "pass": "of ann", "protocol": 1},
        }

    def make(self) -> tuple[str, bytes, dict[str, str], bool]:
        """What was done, payload, headers, and whether it is to be granted."""
        chance = self.chance
        how = chance.choice([*WAYS, "right", "sealed bytes", "jwt bytes"])
        said = self.said()
        parts: dict[str, Any] = {
            "signer": self.server,
            "subject": self.signer.public,
            "kind": "authorization_request",
            "audience": "nats-authorization-request",
            "expires": int(time.time()) + 60,
            "xkey": self.servers_xkey,
        }
        if how in WAYS:
            WAYS[how](self, said, parts)
        xkey = parts.pop("xkey")
        jwt = encode_jwt(nats=said, **parts).encode()
        if how == "changed after it was signed":
            head, body, signature = jwt.split(b".")
            changed = b64decode(body + b"=" * (-len(body) % 4), b"-_").replace(
                b"127.0.0.1", b"127.0.0.2"
            )
            jwt = b".".join([head, urlsafe_b64encode(changed).rstrip(b"="), signature])
        if how == "jwt bytes":
            jwt = self.spoilt(jwt)
        payload, headers = xkey.seal(jwt, self.xkey.public), {XKEY_HEADER: xkey.public}
        if how == "sealed bytes":
            payload = self.spoilt(payload)
        if how == "in plain text":
            payload, headers = jwt, chance.choice([{}, headers])
        if how == "without header":
            headers = {}
        return how, payload, headers, how == "right"

    def spoilt(self, data: bytes) -> bytes:
        chance = self.chance
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(changed) + 1)
            match chance.randrange(4):
                case 0:
                    changed[place : place + 1] = bytes([chance.randrange(256)])
                case 1:
                    del changed[place : place + chance.randrange(1, 50)]
                case 2:
                    changed[place:place] = chance.randbytes(chance.randrange(1, 20))
                case _:
                    changed = changed[:place]
        if bytes(changed) == data:
            changed.append(0)
        return bytes(changed)

    def junk(self) -> Any:
        chance = self.chance
        return chance.choice(
            [None, 0, -1, 2**63, 1.5, True, "", "x" * 5000, [], [[]], {}, {"a": 1}, "\0\x1b", "é"]
        )


Way = Callable[[Spoiler, dict[str, Any], dict[str, Any]], None]


def _junk(spoiler: Spoiler, said: dict[str, Any], *path: str) -> None:
    for name in path[:-1]:
        said = said[name]
    said[path[-1]] = spoiler.junk()


WAYS: dict[str, Way] = {
    "forged": lambda s, said, parts: parts.update(signer=s.forger),
    "changed after it was signed": lambda s, said, parts: None,
    "rogue server": lambda s, said, parts: parts.update(signer=s.rogue),
    "rogue server with its own id": lambda s, said, parts: (
        parts.update(signer=s.rogue),
        said["server_id"].update(id=s.rogue.public),
    )[0],
    "signed by an account": lambda s, said, parts: parts.update(signer=s.signer),
    "signed by a user": lambda s, said, parts: parts.update(signer=s.user),
    "another server's id": lambda s, said, parts: said["server_id"].update(id=s.rogue.public),
    "another service": lambda s, said, parts: parts.update(subject=s.other.public),
    "another audience": lambda s, said, parts: parts.update(audience="x"),
    "another kind": lambda s, said, parts: parts.update(kind="user"),
    "expired": lambda s, said, parts: parts.update(expires=int(time.time()) - 3600),
    "another xkey": lambda s, said, parts: parts.update(xkey=CurveKeyPair.new()),
    "no user's key": lambda s, said, parts: said.update(user_nkey=s.signer.public),
    "wrong password": lambda s, said, parts: said["connect_opts"].update({"pass": "x"}),
    "no password": lambda s, said, parts: said["connect_opts"].pop("pass"),
    "nobody": lambda s, said, parts: said["connect_opts"].update(user=""),
    "password of another type": lambda s, said, parts: _junk(s, said, "connect_opts", "pass"),
    "user of another type": lambda s, said, parts: _junk(s, said, "connect_opts", "user"),
    "options of another type": lambda s, said, parts: _junk(s, said, "connect_opts"),
    "user's key of another type": lambda s, said, parts: _junk(s, said, "user_nkey"),
    "server of another type": lambda s, said, parts: _junk(s, said, "server_id"),
    "id of another type": lambda s, said, parts: _junk(s, said, "server_id", "id"),
    "in plain text": lambda s, said, parts: None,
    "without header": lambda s, said, parts: None,
}


def judge(spoiler: Spoiler, answer: bytes, right: bool) -> tuple[str, str]:
    """How the request ended, and what is wrong with that."""
    if not answer:
        return "refused unread", "a right request" if right else ""
    try:
        text = spoiler.servers_xkey.open(answer, spoiler.xkey.public)
    except NKeyError:
        return "unreadable", "the answer is not for the server"
    claims = read_jwt(text.decode())
    if (claims.iss, claims.sub, claims.aud) != (
        spoiler.signer.public,
        spoiler.user.public,
        spoiler.server.public,
    ):
        return "unreadable", "the answer is for somebody else"
    if "error" in claims.nats:
        return "refused", "a right request" if right else ""
    granted = read_jwt(claims.nats["jwt"])
    user_claims(granted)
    wrong = "" if granted.sub == spoiler.user.public else "another user"
    return "granted", wrong or ("" if right else "a wrong request")


async def requests(count: int, chance: random.Random, figures: Figures) -> None:
    spoiler = Spoiler(chance)
    reports: Counter[str] = Counter()
    with NatsServer(jetstream=False) as server:
        async with (
            connect(server.url, error_callback=lambda error: reports.update([str(error)])) as nc,
            connect(server.url) as asking,
            await nc.auth_callout(
                authorize, signer=spoiler.signer, xkey=spoiler.xkey, servers=[spoiler.server.public]
            ) as callout,
        ):
            made = iter([spoiler.make() for _ in range(count)])
            await asyncio.gather(*(_ask(asking, spoiler, made, figures) for _ in range(AT_ONCE)))
            stats, found = callout.stats, figures.requests
    counted = stats.granted, stats.refused, stats.invalid, stats.failed
    if counted != (found["granted"], found["refused"], found["refused unread"], 0):
        figures.wrong.append(f"the service counted {stats}, and {found} ended")
    if any("Answering a login" in text for text in reports):
        figures.wrong.append(f"it raised: {reports}")


async def _ask(nc: Client, spoiler: Spoiler, made: Any, figures: Figures) -> None:
    for how, payload, headers, right in made:
        reply = await nc.request(CALLOUT_SUBJECT, payload, headers=headers, timeout=60)
        ended, wrong = judge(spoiler, reply.data, right)
        figures.requests[ended] += 1
        figures.count_run()
        if wrong:
            figures.wrong.append(f"{how}: {ended}, {wrong}")


async def run(runs: int = 10_000, seed: int = 1) -> Figures:
    chance = random.Random(seed)
    figures = Figures()
    await logins(runs, chance, figures)
    await requests(runs, chance, figures)
    return figures
