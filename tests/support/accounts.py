"""NKeys, JWTs and the configuration of a server in operator mode, made by the library `nkeys`."""

from __future__ import annotations

import base64
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

import nkeys

NO_LIMITS: dict[str, Any] = {
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
    "wildcards": True,
}
NO_STORAGE_LIMITS = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


@dataclass(frozen=True, slots=True)
class Key:
    """A pair of keys as text."""

    seed: str
    public: str

    def sign(self, data: bytes) -> bytes:
        signature: bytes = nkeys.from_seed(bytearray(self.seed.encode())).sign(data)
        return signature


def new_key(prefix: int = nkeys.PREFIX_BYTE_USER) -> Key:
    seed = nkeys.encode_seed(secrets.token_bytes(32), prefix)
    return Key(seed.decode(), nkeys.from_seed(bytearray(seed)).public_key.decode())


def make_jwt(issuer: Key, subject: str, kind: str, expires: int = 0, **claims: Any) -> str:
    body: dict[str, Any] = {
        "jti": secrets.token_hex(8),
        "iat": int(time.time()) - 2,
        "iss": issuer.public,
        "name": kind,
        "sub": subject,
        "nats": {"type": kind, "version": 2, **claims},
    }
    if expires:
        body["exp"] = expires
    signed = f"{_encode({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_encode(body)}"
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def creds_text(jwt: str, seed: str) -> str:
    """As `nsc generate creds` writes it."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        "NKEY Seed printed below can be used to sign and prove identity.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n\n"
        "*************************************************************\n"
    )


class Operator:
    """An operator with a system account and one account, whose users it makes."""

    def __init__(self) -> None:
        operator = new_key(nkeys.PREFIX_BYTE_OPERATOR)
        system = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
        self._operator = operator
        self.account = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
        # Made once: a server refuses to load a configuration anew when these have changed.
        self._operator_jwt = make_jwt(
            operator, operator.public, "operator", system_account=system.public
        )
        self._system = system.public
        self._system_jwt = make_jwt(operator, system.public, "account", limits=NO_LIMITS)

    def config(self, *, revoked: str = "", expires: int = 0) -> str:
        """Of the server.

        `revoked`: the public key of a user who may not come in any more. `expires`: when the
        account does, seconds since 1970.
        """
        account = make_jwt(
            self._operator,
            self.account.public,
            "account",
            expires,
            limits=NO_LIMITS | NO_STORAGE_LIMITS,
            revocations={revoked: int(time.time()) + 1} if revoked else {},
        )
        return (
            f"operator: {self._operator_jwt}\n"
            f"system_account: {self._system}\n"
            "resolver: MEMORY\n"
            f"resolver_preload: {{ {self._system}: {self._system_jwt}\n"
            f"  {self.account.public}: {account} }}\n"
        )

    def user(self, key: Key, *, expires: int = 0, **claims: Any) -> str:
        """The JWT of a user. `expires`: seconds since 1970."""
        no_limit = dict.fromkeys(("subs", "data", "payload"), -1)
        return make_jwt(self.account, key.public, "user", expires, **(no_limit | claims))


def _encode(document: dict[str, Any]) -> str:
    return _base64(json.dumps(document, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
