# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: system."""

from __future__ import annotations

from collections.abc import Iterable

from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.system.documents import (
    AccountInfo,
    AccountJsz,
    AccountStatz,
    Accountz,
    Answer,
    Connz,
    Gatewayz,
    Healthz,
    Jsz,
    Leafz,
    Routez,
    Statsz,
    Subsz,
    Varz,
)
from jetspark.system.system import ServerFilter
from jetspark.system.system import System as AsyncSystem


class GeneratedSystem:
    """The calls of `System` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncSystem

    def ping(
        self, *, server: str | None = None, only: ServerFilter | None = None
    ) -> Listing[Answer[Statsz]]:
        """Which servers there are, with their numbers."""
        return Listing(self._thread, self._inner.ping(server=server, only=only))

    def varz(
        self, *, server: str | None = None, only: ServerFilter | None = None
    ) -> Listing[Answer[Varz]]:
        """Configuration and state."""
        return Listing(self._thread, self._inner.varz(server=server, only=only))

    def healthz(
        self,
        *,
        server: str | None = None,
        only: ServerFilter | None = None,
        js_enabled_only: bool = False,
        js_server_only: bool = False,
        js_meta_only: bool = False,
        account: str | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        details: bool = False,
    ) -> Listing[Answer[Healthz]]:
        """Whether servers are well.

        `js_enabled_only`: only that JetStream is enabled; `js_server_only`: without streams and
        consumers; `js_meta_only`: only the cluster's metadata. `account`, `stream`, `consumer`:
        only these, each with those before it. `details`: each problem on its own.
        """
        return Listing(
            self._thread,
            self._inner.healthz(
                server=server,
                only=only,
                js_enabled_only=js_enabled_only,
                js_server_only=js_server_only,
                js_meta_only=js_meta_only,
                account=account,
                stream=stream,
                consumer=consumer,
                details=details,
            ),
        )

    def connz(
        self,
        *,
        server: str | None = None,
        only: ServerFilter | None = None,
        state: str = "open",
        auth: bool = False,
        subscriptions: bool = False,
        sort: str | None = None,
        cid: int | None = None,
        user: str | None = None,
        account: str | None = None,
        filter_subject: str | None = None,
        mqtt_client: str | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> Listing[Answer[Connz]]:
        """Connections of clients; without `limit` 1,024 of each server at most.

        `state`: "open", "closed" or "all". `auth`: with users and accounts. `subscriptions`: with
        their subjects. `sort`: by "cid", "start", "subs", "pending", "msgs_to", "msgs_from",
        "bytes_to", "bytes_from", "last", "idle", "uptime", "stop", "reason" or "rtt". `cid`,
        `user`, `account`, `filter_subject` (with `account`), `mqtt_client`: only these. `offset`,
        `limit`: a page.
        """
        return Listing(
            self._thread,
            self._inner.connz(
                server=server,
                only=only,
                state=state,
                auth=auth,
                subscriptions=subscriptions,
                sort=sort,
                cid=cid,
                user=user,
                account=account,
                filter_subject=filter_subject,
                mqtt_client=mqtt_client,
                offset=offset,
                limit=limit,
            ),
        )

    def subsz(
        self,
        *,
        server: str | None = None,
        only: ServerFilter | None = None,
        subscriptions: bool = False,
        account: str | None = None,
        test: str | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> Listing[Answer[Subsz]]:
        """Numbers about subscriptions; with `subscriptions`, a page of them.

        `account`: only of this one. `test`: only those that a message on this subject would reach.
        """
        return Listing(
            self._thread,
            self._inner.subsz(
                server=server,
                only=only,
                subscriptions=subscriptions,
                account=account,
                test=test,
                offset=offset,
                limit=limit,
            ),
        )

    def jsz(
        self,
        *,
        server: str | None = None,
        only: ServerFilter | None = None,
        account: str | None = None,
        accounts: bool = False,
        streams: bool = False,
        consumers: bool = False,
        config: bool = False,
        leader_only: bool = False,
        raft: bool = False,
        offset: int = 0,
        limit: int | None = None,
    ) -> Listing[Answer[Jsz]]:
        """JetStream: numbers, and as much of its accounts, streams and consumers as asked for.

        `account`: only of this one. `accounts`, `streams`, `consumers`, `config`, `raft`: in
        `account_details`. `leader_only`: only the leader of the cluster's metadata answers.
        """
        return Listing(
            self._thread,
            self._inner.jsz(
                server=server,
                only=only,
                account=account,
                accounts=accounts,
                streams=streams,
                consumers=consumers,
                config=config,
                leader_only=leader_only,
                raft=raft,
                offset=offset,
                limit=limit,
            ),
        )

    def accountz(
        self,
        *,
        server: str | None = None,
        only: ServerFilter | None = None,
        account: str | None = None,
    ) -> Listing[Answer[Accountz]]:
        """Which accounts servers know. `account`: this one in detail."""
        return Listing(
            self._thread, self._inner.accountz(server=server, only=only, account=account)
        )

    def routez(
        self,
        *,
        server: str | None = None,
        only: ServerFilter | None = None,
        subscriptions: bool = False,
    ) -> Listing[Answer[Routez]]:
        """Routes within clusters. `subscriptions`: with their subjects."""
        return Listing(
            self._thread, self._inner.routez(server=server, only=only, subscriptions=subscriptions)
        )

    def gatewayz(
        self,
        *,
        server: str | None = None,
        only: ServerFilter | None = None,
        name: str | None = None,
        accounts: bool = False,
    ) -> Listing[Answer[Gatewayz]]:
        """Gateways between clusters. `name`: only to this cluster. `accounts`: with accounts."""
        return Listing(
            self._thread,
            self._inner.gatewayz(server=server, only=only, name=name, accounts=accounts),
        )

    def leafz(
        self,
        *,
        server: str | None = None,
        only: ServerFilter | None = None,
        account: str | None = None,
        subscriptions: bool = False,
    ) -> Listing[Answer[Leafz]]:
        """Leaf nodes. `account`: only of this one. `subscriptions`: with their subjects."""
        return Listing(
            self._thread,
            self._inner.leafz(
                server=server, only=only, account=account, subscriptions=subscriptions
            ),
        )

    def account_info(self, account: str) -> Listing[Answer[AccountInfo]]:
        """An account, as each server that knows it sees it."""
        return Listing(self._thread, self._inner.account_info(account))

    def account_connz(
        self,
        account: str,
        *,
        subscriptions: bool = False,
        offset: int = 0,
        limit: int | None = None,
    ) -> Listing[Answer[Connz]]:
        """The connections of an account. The options are those of `connz`."""
        return Listing(
            self._thread,
            self._inner.account_connz(
                account, subscriptions=subscriptions, offset=offset, limit=limit
            ),
        )

    def account_jsz(
        self, account: str, *, streams: bool = False, consumers: bool = False, config: bool = False
    ) -> Listing[Answer[AccountJsz]]:
        """The JetStream of an account. The options are those of `jsz`."""
        return Listing(
            self._thread,
            self._inner.account_jsz(account, streams=streams, consumers=consumers, config=config),
        )

    def account_subsz(
        self, account: str, *, test: str | None = None, offset: int = 0, limit: int | None = None
    ) -> Listing[Answer[Subsz]]:
        """The subscriptions of an account, a page of them. The options are those of `subsz`."""
        return Listing(
            self._thread, self._inner.account_subsz(account, test=test, offset=offset, limit=limit)
        )

    def account_statz(
        self, accounts: str | Iterable[str] = (), *, include_unused: bool = False
    ) -> Listing[Answer[AccountStatz]]:
        """Accounts in numbers, all or these, from each server where they have connections.

        `include_unused`: also from the others.
        """
        return Listing(
            self._thread, self._inner.account_statz(accounts, include_unused=include_unused)
        )

    def __repr__(self) -> str:
        return repr(self._inner)
