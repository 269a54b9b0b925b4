"""A server's request to an authorization callout, and the answer to it (ADR-26). Pure.

Contract: a request is used only when it is a server's, signed by it, meant for us, not expired, and
encrypted if we have a curve key. An answer is for the user and the server of its request only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from jetspark.arguments import check_fields
from jetspark.connection.nkeys import CurveKeyPair, KeyKind, KeyPair, is_key
from jetspark.errors import ConfigError, JWTError, NKeyError
from jetspark.identity.claim_checks import check_enforced
from jetspark.identity.claims import AuthRequest, UserClaims, permitted
from jetspark.identity.jwt import body_of, check_times, encode_jwt, issue_user, read_jwt
from jetspark.jetstream.acl.permissions import Permissions
from jetspark.jetstream.requirements import check_feature
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import Headers

CALLOUT_SUBJECT: Final = "$SYS.REQ.USER.AUTH"
XKEY_HEADER: Final = "Nats-Server-Xkey"
_AUDIENCE: Final = "nats-authorization-request"
_CLOCKS: Final = 60.0
"""Seconds by which the clocks of a server and of this machine may differ."""
_LONGEST_REASON: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a callout's handler returns: this user may log in.

    `account`: the user's account; its name, or with an operator its public key (A…). `may`: what
    the user may do, as claims or as the permissions of roles; None: everything. Of the claims
    servers enforce `pub`, `sub`, `resp` and `times` for such a user, from 2.12 on also
    `proxy_required`; limits, networks and the like raise ConfigError. `name`: of the user, for the
    server's logs and lists. `expires`: when the server ends the connection: seconds or a timedelta
    from now, or a moment. `signer`: with an operator, the key of `account`, or one of its signing
    keys; otherwise the service's key signs. `scoped`: that signing key has a scope.
    """

    account: str
    may: UserClaims | Permissions | None = None
    name: str = ""
    expires: float | timedelta | datetime | None = None
    signer: KeyPair | None = None
    scoped: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.may, UserClaims):
            check_enforced(self.may)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Exchange:
    """The keys of a callout service; see `CalloutCalls.auth_callout`."""

    signer: KeyPair
    account: str | None = None
    xkey: CurveKeyPair | None = None
    servers: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.signer.kind is not KeyKind.ACCOUNT:
            raise NKeyError("A callout signs with an account's key (SA…).")
        if self.account is not None and not is_key(self.account, KeyKind.ACCOUNT):
            raise NKeyError("account is not an account's public key (A…).")
        for server in self.servers or ():
            if not is_key(server, KeyKind.SERVER):
                raise NKeyError("servers are the public keys of servers (N…).")

    @property
    def issuer(self) -> str:
        """Whom servers ask."""
        return self.account or self.signer.public

    def read(self, data: bytes, headers: Headers | None) -> AuthRequest:
        """The request in a message. Raises JWTError, whatever the message is."""
        xkey = None if headers is None else headers.get(XKEY_HEADER)
        text = self._opened(data, xkey)
        try:
            claims = read_jwt(text.decode("ascii"))
        except UnicodeDecodeError:
            raise JWTError("The request is no JWT.") from None
        if not is_key(claims.iss, KeyKind.SERVER):
            raise JWTError("The request is not signed by a server.")
        if self.servers is not None and claims.iss not in self.servers:
            raise JWTError("The request is from an unknown server.")
        if claims.aud != _AUDIENCE or claims.sub != self.issuer:
            raise JWTError("The request is for another service.")
        check_times(claims, leeway=_CLOCKS)
        request: AuthRequest = body_of(claims, "authorization_request", AuthRequest)
        if request.server_id.id != claims.iss:
            raise JWTError("The request names another server than the one that has signed it.")
        if self.xkey is not None and request.server_id.xkey != xkey:
            raise JWTError("The request names another xkey than the one that has encrypted it.")
        if not is_key(request.user_nkey, KeyKind.USER):
            raise JWTError("The request is not about a user.")
        if not isinstance(request.connect_opts.extra.get("pass", ""), str):
            raise JWTError("The request has a password that is no text.")
        return request

    def _opened(self, data: bytes, xkey: str | None) -> bytes:
        if self.xkey is None:
            return data
        if xkey is None:
            raise JWTError("The request is not encrypted.")
        try:
            return self.xkey.open(data, xkey)
        except NKeyError as error:
            raise JWTError(f"The request cannot be decrypted: {error}") from None

    def granted(self, request: AuthRequest, grant: Grant) -> bytes:
        """The answer that lets a user in. Raises ConfigError for a grant that cannot work."""
        may = permitted(grant.may) if isinstance(grant.may, Permissions) else grant.may
        with_operator = is_key(grant.account, KeyKind.ACCOUNT)
        if not grant.account:
            raise ConfigError("A grant names the user's account.")
        if may is not None and may.proxy_required:
            server = ServerInfo(version=request.server_id.version)
            check_feature("proxy_required", (2, 12), server)
        if grant.signer is not None and not with_operator:
            raise ConfigError("A grant with a signer needs the account's public key (A…).")
        jwt = issue_user(
            grant.signer or self.signer,
            request.user_nkey,
            name=grant.name,
            claims=may,
            account=grant.account if with_operator else None,
            expires=grant.expires,
            scoped=grant.scoped,
            audience="" if with_operator else grant.account,
        )
        return self._answer(request, jwt=jwt)

    def refused(self, request: AuthRequest, reason: str) -> bytes:
        """The answer that does not; the server logs the reason."""
        return self._answer(request, error=reason[:_LONGEST_REASON] or "refused")

    def _answer(self, request: AuthRequest, **said: str) -> bytes:
        if self.account is not None and self.account != self.signer.public:
            said["issuer_account"] = self.account
        server = request.server_id
        answer = encode_jwt(
            self.signer, request.user_nkey, "authorization_response", said, audience=server.id
        ).encode()
        return answer if self.xkey is None else self.xkey.seal(answer, server.xkey)
