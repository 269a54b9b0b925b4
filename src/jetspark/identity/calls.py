"""The call of a client for authorization callouts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from jetspark.arguments import checked
from jetspark.connection.nkeys import CurveKeyPair, KeyPair
from jetspark.identity.callout import CONCURRENCY, QUEUE_GROUP, AuthCallout, CalloutHandler
from jetspark.identity.exchange import Exchange

if TYPE_CHECKING:
    from jetspark.client.client import Client


@checked
class CalloutCalls:
    """Mixed into the client."""

    async def auth_callout(
        self,
        handler: CalloutHandler,
        *,
        signer: KeyPair,
        account: str | None = None,
        xkey: CurveKeyPair | None = None,
        servers: Iterable[str] | None = None,
        queue_group: str = QUEUE_GROUP,
        concurrency: int = CONCURRENCY,
    ) -> AuthCallout:
        """Decide who may log in: servers ask, `handler` answers (ADR-26; server 2.10).

        The client is a user of the callout's account (`auth_users`). `handler` (plain or async)
        gets an AuthRequest and returns a Grant, or raises CalloutRefusal with a reason for the
        server's log. `signer`: the account's keys, those of `issuer` in the server's configuration.
        `account`: the callout account's public key (A…), when `signer` is one of its signing keys.
        `xkey`: the curve keys whose public key the configuration has as `xkey`; requests that are
        not encrypted are refused then. `servers`: public keys (N…) of the servers that may ask; any
        by default, that is any user of the callout account who may publish. `concurrency`: handlers
        that run at once.

        Raises NKeyError, ConfigError, PermissionsError, RequestTimeoutError, ConnectionClosedError.
        """
        client = cast("Client", self)
        return await start_callout(
            client, handler, signer, account, xkey, servers, queue_group, concurrency
        )


@checked
async def start_callout(
    client: Client,
    handler: CalloutHandler,
    signer: KeyPair,
    account: str | None,
    xkey: CurveKeyPair | None,
    servers: Iterable[str] | None,
    queue_group: str,
    concurrency: int,
) -> AuthCallout:
    """As `CalloutCalls.auth_callout`, for both clients."""
    client.require_open()
    known = None if servers is None else frozenset(servers)
    exchange = Exchange(signer=signer, account=account, xkey=xkey, servers=known)
    callout = AuthCallout(client, handler, exchange, queue_group, concurrency)
    await callout.begin()
    return callout
