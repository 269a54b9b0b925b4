"""JWTs of NATS: written, read, verified (ADR-14). Pure.

Contract: reading first verifies the signature with the key that the JWT names as its issuer. For
any text, the only error is JWTError.
"""

from __future__ import annotations

import base64
import hashlib
import math
import time
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from jetspark.connection.nkeys import (
    KeyKind,
    KeyPair,
    bytes_of_part,
    is_key,
    object_of_part,
    part_of_bytes,
    verify,
)
from jetspark.documents.document import from_wire
from jetspark.errors import ConfigError, DocumentError, JWTError, NKeyError
from jetspark.identity.claims import (
    KIND,
    LIMITS,
    NO_LIMIT,
    VERSION,
    Claims,
    UserClaims,
    checked_claims,
)
from jetspark.timestamps import in_seconds

MOST_BYTES: Final = 1024 * 1024
"""Most bytes of a JWT, as for servers."""
_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}


def issue_user(
    signer: KeyPair,
    user: str,
    *,
    name: str = "",
    claims: UserClaims | None = None,
    account: str | None = None,
    expires: float | timedelta | datetime | None = None,
    scoped: bool = False,
    audience: str = "",
) -> str:
    """The JWT of a user, signed by an account's key or by one of its signing keys.

    `user`: the user's public key (U…). `account`: the account's public key (A…), needed when
    `signer` is a signing key. `claims`: what the user may do; None: everything. `expires`: seconds
    or a timedelta from now, or a moment; None: never. `scoped`: the signing key has a scope, whose
    template decides, so only tags may be claimed. `audience`: the account's name, for servers
    without an operator that ask a callout. Raises NKeyError for a key of another kind, ConfigError.

    Example:
        ```python
        from datetime import timedelta
        from jetspark.identity import KeyKind, KeyPair, creds_text, issue_user

        account, user = KeyPair.new(KeyKind.ACCOUNT), KeyPair.new()
        jwt = issue_user(account, user.public, name="ann", expires=timedelta(days=30))
        creds = creds_text(jwt, user.seed)  # jetspark.connect(creds=creds)
        ```
    """
    if signer.kind is not KeyKind.ACCOUNT:
        raise NKeyError("A user's JWT is signed by an account's key (SA…).")
    if not is_key(user, KeyKind.USER):
        raise NKeyError("user is not a user's public key (U…).")
    if account is not None and not is_key(account, KeyKind.ACCOUNT):
        raise NKeyError("account is not an account's public key (A…).")
    body = checked_claims(claims or UserClaims())
    if scoped:
        if body.keys() - {"tags"}:
            raise ConfigError("A scoped signing key sets the claims: give only tags.")
    else:
        body = dict.fromkeys(LIMITS, NO_LIMIT) | {"pub": {}, "sub": {}} | body
    if account is not None and account != signer.public:
        body["issuer_account"] = account
    return encode_jwt(
        signer, user, KIND, body, name=name, audience=audience, expires=_moment(expires)
    )


def _moment(expires: float | timedelta | datetime | None) -> int:
    if expires is None:
        return 0
    if isinstance(expires, datetime):
        if expires.tzinfo is None:
            raise ConfigError("expires needs a time zone.")
        if (moment := expires.timestamp()) <= time.time():
            raise ConfigError(f"expires is in the past: {expires}.")
        return math.ceil(moment)
    if (seconds := in_seconds(expires)) <= 0:
        raise ConfigError("expires is more than 0 seconds from now.")
    return int(time.time() + seconds)


def creds_text(jwt: str, seed: str) -> str:
    """The text of a user's `.creds` file, which `creds_file` and other clients read.

    `seed`: the seed of the JWT's user (`KeyPair.seed`). Raises ConfigError, without the seed, for
    another kind of JWT, no seed, or another user's.
    """
    try:
        claims = read_jwt(jwt)
        user_claims(claims)
    except JWTError as error:
        raise ConfigError(f"jwt is not the JWT of a user: {error}") from None
    try:
        public = KeyPair.from_seed(seed).public
    except NKeyError as error:
        raise ConfigError(f"seed is not the seed of a user: {error}") from None
    if public != claims.sub:
        raise ConfigError(f"seed is not that of the JWT's user: it is of {public}.")
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        "Keep this file secret: whoever has the seed below is this user.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def encode_jwt(
    signer: KeyPair,
    subject: str,
    kind: str,
    nats: dict[str, Any],
    *,
    name: str = "",
    audience: str = "",
    expires: int = 0,
) -> str:
    """A JWT of any kind. `nats`: its claims. `expires`: seconds since 1970; 0: never."""
    body: dict[str, Any] = {
        "iat": int(time.time()),
        "iss": signer.public,
        "sub": subject,
        "nats": {**nats, "type": kind, "version": VERSION},
    }
    for field, value in (("name", name), ("aud", audience), ("exp", expires)):
        if value:
            body[field] = value
    digest = hashlib.sha256(msgspec.json.encode(body)).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    signed = ".".join(part_of_bytes(msgspec.json.encode(document)) for document in (_HEADER, body))
    return f"{signed}.{part_of_bytes(signer.sign(signed.encode()))}"


def read_jwt(text: str) -> Claims:
    """The claims of a JWT with a verified signature; its times and issuer are not checked.

    Raises JWTError.

    Example:
        ```python
        from jetspark.identity import KeyKind, KeyPair, issue_user, read_jwt

        jwt = issue_user(KeyPair.new(KeyKind.ACCOUNT), KeyPair.new().public, name="ann")
        print(read_jwt(jwt).name)  # ann
        ```
    """
    if len(text) > MOST_BYTES:
        raise JWTError(f"The JWT has more than {MOST_BYTES:,} bytes.")
    parts = text.split(".")
    if len(parts) != 3:
        raise JWTError("A JWT has three parts with points between them.")
    header = _object(parts[0], "header")
    if (header.get("typ"), header.get("alg")) != (_HEADER["typ"], _HEADER["alg"]):
        raise JWTError("The JWT is not signed with ed25519-nkey.")
    body = _object(parts[1], "body")
    nats = body.get("nats")
    if not isinstance(nats, dict) or nats.get("version") != VERSION:
        raise JWTError("The JWT is not of version 2.")
    try:
        signature = bytes_of_part(parts[2])
    except ValueError:
        raise JWTError("The signature of the JWT is not Base64.") from None
    try:
        claims = from_wire(Claims, body)
        valid = verify(claims.iss, f"{parts[0]}.{parts[1]}".encode(), signature)
    except DocumentError as error:
        raise JWTError(f"The JWT cannot be read: {error}") from None
    except NKeyError:
        valid = False
    if not valid:
        raise JWTError("The JWT was not signed by its issuer.")
    return claims


def user_claims(claims: Claims) -> UserClaims:
    """The claims of a user's JWT. Raises JWTError for a JWT of another kind."""
    user: UserClaims = body_of(claims, KIND, UserClaims)
    return user


def body_of(claims: Claims, kind: str, cls: type[Any]) -> Any:
    if claims.kind != kind:
        raise JWTError(f"The JWT is of another kind: {claims.kind!r}, not {kind!r}.")
    try:
        return from_wire(cls, claims.nats)
    except DocumentError as error:
        raise JWTError(f"The JWT cannot be read: {error}") from None


def check_times(claims: Claims, *, leeway: float = 0.0) -> None:
    """Raise JWTError for a JWT that has expired or is not valid yet. `leeway`: seconds."""
    now = time.time()
    if claims.exp and claims.exp + leeway < now:
        raise JWTError("The JWT has expired.")
    if claims.nbf > now + leeway:
        raise JWTError("The JWT is not valid yet.")


def _object(part: str, part_name: str) -> dict[str, Any]:
    try:
        return object_of_part(part)
    except ValueError:
        raise JWTError(f"The {part_name} of the JWT is not a JSON object.") from None
