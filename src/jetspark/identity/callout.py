"""An authorization callout service: servers ask it whether a user may log in (ADR-26).

Contract
- A handler gets only requests that a server signed for us, that have not expired and, if we have a
  curve key, are encrypted. Others are refused at once, counted as invalid, and reported.
- Only a Grant of the handler lets a user in; a refusal, exception, other result or cancellation
  does not.
- Instances share the requests by a queue group. Up to `concurrency` handlers run at once; other
  requests wait, until their server refuses them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self, TypeAlias, TypedDict, Unpack

import jetspark.errors as errors
from jetspark.acl import Permissions
from jetspark.client.client import CoreClient
from jetspark.client.messages import Message
from jetspark.client.tasks import background, start_task
from jetspark.connection.nkeys import CurveKeyPair, KeyKind, KeyPair, is_key
from jetspark.documents.requirements import check_feature
from jetspark.identity.claims import AuthRequest, UserClaims, check_enforced, permitted
from jetspark.identity.jwt import body_of, check_times, encode_jwt, issue_user, read_jwt
from jetspark.timestamps import Seconds, in_seconds
from jetspark.validation import check_whole
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import Headers

CALLOUT_SUBJECT: Final = "$SYS.REQ.USER.AUTH"
XKEY_HEADER: Final = "Nats-Server-Xkey"
_AUDIENCE: Final = "nats-authorization-request"
_CLOCKS: Final = 60.0
"""Seconds by which the clocks of a server and this machine may differ."""
_LONGEST_REASON: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The permission to log in, which a callout's handler returns.

    `account`: the name of the user's account; with an operator, its public key (A…). `may`: what
    the user may do, as claims or as the permissions of roles; None: everything. Servers enforce the
    claims `pub`, `sub`, `resp`, `times`, and from 2.12 on `proxy_required`; others raise
    ConfigError. `name`: the user's name in the server's logs and lists. `expires`: when the server
    ends the connection: seconds or a timedelta from now, or a moment. `signer`: with an operator,
    the key of `account` or one of its signing keys; default: the service's key. `scoped`: that
    signing key has a scope.
    """

    account: str
    may: UserClaims | Permissions | None = None
    name: str = ""
    expires: float | timedelta | datetime | None = None
    signer: KeyPair | None = None
    scoped: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.may, UserClaims):
            check_enforced(self.may)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Exchange:
    """The keys of a callout service, for reading requests and writing answers. Pure."""

    signer: KeyPair
    account: str | None = None
    xkey: CurveKeyPair | None = None
    servers: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.signer.kind is not KeyKind.ACCOUNT:
            raise errors.NKeyError("A callout signs with an account's key (SA…).")
        if self.account is not None and not is_key(self.account, KeyKind.ACCOUNT):
            raise errors.NKeyError("account is not an account's public key (A…).")
        for server in self.servers or ():
            if not is_key(server, KeyKind.SERVER):
                raise errors.NKeyError("servers are the public keys of servers (N…).")

    @property
    def issuer(self) -> str:
        return self.account or self.signer.public

    def read(self, data: bytes, headers: Headers | None) -> AuthRequest:
        """The request in a message. Raises only JWTError."""
        xkey = None if headers is None else headers.get(XKEY_HEADER)
        text = self._opened(data, xkey)
        try:
            claims = read_jwt(text.decode("ascii"))
        except UnicodeDecodeError:
            raise errors.JWTError("The request is not a JWT.") from None
        if not is_key(claims.iss, KeyKind.SERVER):
            raise errors.JWTError("The request is not signed by a server.")
        if self.servers is not None and claims.iss not in self.servers:
            raise errors.JWTError("The request is from an unknown server.")
        if claims.aud != _AUDIENCE or claims.sub != self.issuer:
            raise errors.JWTError("The request is for another service.")
        check_times(claims, leeway=_CLOCKS)
        request: AuthRequest = body_of(claims, "authorization_request", AuthRequest)
        if request.server_id.id != claims.iss:
            raise errors.JWTError("The request names a server other than its signer.")
        if self.xkey is not None and request.server_id.xkey != xkey:
            raise errors.JWTError("The request names an xkey other than the one that encrypted it.")
        if not is_key(request.user_nkey, KeyKind.USER):
            raise errors.JWTError("The request is not about a user.")
        if not isinstance(request.connect_opts.extra.get("pass", ""), str):
            raise errors.JWTError("The request has a password that is not text.")
        return request

    def _opened(self, data: bytes, xkey: str | None) -> bytes:
        if self.xkey is None:
            return data
        if xkey is None:
            raise errors.JWTError("The request is not encrypted.")
        try:
            return self.xkey.open(data, xkey)
        except errors.NKeyError as error:
            raise errors.JWTError(f"The request cannot be decrypted: {error}") from None

    def granted(self, request: AuthRequest, grant: Grant) -> bytes:
        """The answer that lets a user in. Raises ConfigError for an unusable grant."""
        may = permitted(grant.may) if isinstance(grant.may, Permissions) else grant.may
        with_operator = is_key(grant.account, KeyKind.ACCOUNT)
        if not grant.account:
            raise errors.ConfigError("A grant names the user's account.")
        if may is not None and may.proxy_required:
            server = ServerInfo(version=request.server_id.version)
            check_feature("proxy_required", (2, 12), server)
        if grant.signer is not None and not with_operator:
            raise errors.ConfigError("A grant with a signer needs the account's public key (A…).")
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

    def refusal_of(self, request: AuthRequest, reason: str) -> bytes:
        """The answer that refuses a user; the server logs the reason."""
        return self._answer(request, error=reason[:_LONGEST_REASON] or "refused")

    def _answer(self, request: AuthRequest, **body: str) -> bytes:
        if self.account is not None and self.account != self.signer.public:
            body["issuer_account"] = self.account
        server = request.server_id
        answer = encode_jwt(
            self.signer, request.user_nkey, "authorization_response", body, audience=server.id
        ).encode()
        return answer if self.xkey is None else self.xkey.seal(answer, server.xkey)


CalloutHandler: TypeAlias = Callable[[AuthRequest], Awaitable[Grant] | Grant]
"""A function, plain or async, that grants or refuses a login."""
STOP_TIMEOUT: Final = 30.0
QUEUE_GROUP: Final = "auth-callout"
CONCURRENCY: Final = 20


@dataclass(slots=True)
class CalloutStats:
    """Counts of the logins that a callout service has decided."""

    granted: int = 0
    refused: int = 0
    """Refused by the handler."""
    failed: int = 0
    """Refused because the handler raised another error, or returned no usable Grant."""
    invalid: int = 0
    """Refused before the handler: not a valid request to this service."""


class CalloutOptions(TypedDict, total=False):
    """Options of `auth_callout`, for type checkers."""

    account: str | None
    xkey: CurveKeyPair | None
    servers: Iterable[str] | None
    queue_group: str
    concurrency: int


class AuthCallout:
    """The result of `Client.auth_callout`; leaving its block stops it.

    Example:
        ```python
        from jetspark.identity import Grant, KeyKind, KeyPair

        async def authorize(request):
            return Grant(account="APP", name=request.connect_opts.user)

        async with await nc.auth_callout(authorize, signer=KeyPair.new(KeyKind.ACCOUNT)) as callout:
            print(callout.stats.granted)
        ```
    """

    def __init__(
        self,
        client: CoreClient,
        handler: Callable[[AuthRequest], Any],
        signer: KeyPair,
        *,
        account: str | None = None,
        xkey: CurveKeyPair | None = None,
        servers: Iterable[str] | None = None,
        queue_group: str = QUEUE_GROUP,
        concurrency: int = CONCURRENCY,
    ) -> None:
        check_whole("concurrency", concurrency)
        server_ids = None if servers is None else frozenset(servers)
        self._client = client
        self._handler = handler
        self._exchange = Exchange(signer=signer, account=account, xkey=xkey, servers=server_ids)
        self._slots = asyncio.Semaphore(concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stats = CalloutStats()
        self._error: errors.JetsparkError | None = None
        self._sub = client.subscribe(CALLOUT_SUBJECT, queue=queue_group)
        self._serving = background(
            self._serve(), "An authorization callout", self._failed, name="jetspark-callout"
        )

    @property
    def stats(self) -> CalloutStats:
        """Counts of the logins decided so far."""
        return self._stats

    async def begin(self) -> None:
        try:
            await self._client.flush()
            if self._error is not None:
                raise self._error
        except BaseException:
            self._serving.cancel()
            self._sub.unsubscribe()
            raise

    async def _serve(self) -> None:
        async for msg in self._sub:
            await self._slots.acquire()
            task = start_task(self._handle(msg), name="jetspark-callout")
            self._tasks.add(task)
            task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._client.report(errors.user_error("Answering a login", error))

    def _failed(self, error: errors.JetsparkError) -> None:
        self._error = error
        self._client.report(error)

    async def _handle(self, msg: Message) -> None:
        if msg.reply is None:
            self._stats.invalid += 1
            return
        try:
            request = self._exchange.read(msg.data, msg.headers)
        except errors.JWTError as error:
            self._stats.invalid += 1
            self._client.report(error)
            await msg.respond(b"")  # to servers: not authorized
            return
        await msg.respond(await self._decided(request))

    async def _decided(self, request: AuthRequest) -> bytes:
        try:
            grant = self._handler(request)
            if isinstance(grant, Awaitable):
                grant = await grant
            if not isinstance(grant, Grant):
                raise errors.ConfigError(
                    "A handler must return a Grant, or raise; not return "
                    f"{errors.safe_repr(grant)}."
                )
            answer = self._exchange.granted(request, grant)
        except errors.CalloutRefusal as refusal:
            self._stats.refused += 1
            return self._exchange.refusal_of(request, refusal.reason)
        except Exception as error:
            # Without the error's text, which may hold secrets of the login.
            self._stats.failed += 1
            self._client.report(errors.user_error("The handler of an authorization callout", error))
            return self._exchange.refusal_of(request, "the login could not be decided")
        self._stats.granted += 1
        return answer

    # -- ending ----------------------------------------------------------------------------------

    async def wait_stopped(self) -> None:
        """Wait until `stop` has ended it. Raises any other error that ends it."""
        await asyncio.wait([self._serving])
        if self._error is not None:
            raise self._error

    async def stop(self, timeout: Seconds = STOP_TIMEOUT) -> None:
        """Take no more requests, and wait for the handlers.

        After `timeout` seconds it cancels them, and their users are refused.
        """
        if self._sub.active:
            with suppress(errors.ConnectionClosedError):  # nothing arrives over a lost link
                await self._sub.drain(timeout)
        await asyncio.wait([self._serving], timeout=in_seconds(timeout))
        if self._tasks:
            _, left = await asyncio.wait(set(self._tasks), timeout=in_seconds(timeout))
            for task in left:
                task.cancel()
        with suppress(errors.ConnectionClosedError):
            await self._client.rtt()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"AuthCallout({self._exchange.issuer!r}, {self._stats})"


class CalloutCalls(CoreClient):
    """A client with authorization callouts."""

    async def auth_callout(
        self, handler: CalloutHandler, *, signer: KeyPair, **options: Unpack[CalloutOptions]
    ) -> AuthCallout:
        """Decide who may log in: servers ask, `handler` answers (ADR-26; server 2.10).

        The client is a user of the callout's account (`auth_users`). `handler` gets an
        AuthRequest and returns a Grant, or raises CalloutRefusal with a reason for the
        server's log. `signer`: the account's keys, of the `issuer` in the server's configuration.
        `account`: the callout account's public key (A…), when `signer` is one of its signing keys.
        `xkey`: the curve keys of the configuration's `xkey`; then only encrypted requests are
        accepted. `servers`: public keys (N…) of the servers that may ask; default: any, which means
        any user of the callout account who may publish. `concurrency`: handlers that run at once,
        20 by default.

        Raises NKeyError, ConfigError, PermissionsError, RequestTimeoutError, ConnectionClosedError.

        Example:
            ```python
            from jetspark.identity import CalloutRefusal, Grant, KeyKind, KeyPair

            signer = KeyPair.new(KeyKind.ACCOUNT)  # in production: KeyPair.from_seed("SA…")

            async def authorize(request):
                if request.connect_opts.user != "ann":
                    raise CalloutRefusal("unknown user")
                return Grant(account="APP", name="ann", expires=3600)

            async with await nc.auth_callout(authorize, signer=signer) as callout:
                await callout.wait_stopped()
            ```
        """
        self.require_open()
        callout = AuthCallout(self, handler, signer, **options)
        await callout.begin()
        return callout
