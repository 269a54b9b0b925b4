# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""The system account without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import Listing
from jetspark.blocking.twin import Twin
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
from jetspark.system.system import System as AsyncSystem
from jetspark.system.system import Which

__all__ = ["System"]


@twin_of(AsyncSystem)
class System(Twin):
    """The servers, seen from the system account; returned by `Client.system`."""

    _inner: AsyncSystem

    def ping(self, **which: Unpack[Which]) -> Listing[Answer[Statsz]]:
        """The servers, with their numbers."""
        return Listing(self._caller, self._inner.ping(**which))

    def varz(self, **which: Unpack[Which]) -> Listing[Answer[Varz]]:
        """Configuration and state."""
        return Listing(self._caller, self._inner.varz(**which))

    def healthz(
        self,
        *,
        js_enabled_only: bool = False,
        js_server_only: bool = False,
        js_meta_only: bool = False,
        account: str | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        details: bool = False,
        **which: Unpack[Which],
    ) -> Listing[Answer[Healthz]]:
        """Whether servers are healthy."""
        return Listing(
            self._caller,
            self._inner.healthz(
                js_enabled_only=js_enabled_only,
                js_server_only=js_server_only,
                js_meta_only=js_meta_only,
                account=account,
                stream=stream,
                consumer=consumer,
                details=details,
                **which,
            ),
        )

    def connz(
        self,
        *,
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
        **which: Unpack[Which],
    ) -> Listing[Answer[Connz]]:
        """Connections of clients; without `limit`, at most 1,024 of each server."""
        return Listing(
            self._caller,
            self._inner.connz(
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
                **which,
            ),
        )

    def subsz(
        self,
        *,
        subscriptions: bool = False,
        account: str | None = None,
        test: str | None = None,
        offset: int = 0,
        limit: int | None = None,
        **which: Unpack[Which],
    ) -> Listing[Answer[Subsz]]:
        """Numbers about subscriptions; with `subscriptions`, a page of them."""
        return Listing(
            self._caller,
            self._inner.subsz(
                subscriptions=subscriptions,
                account=account,
                test=test,
                offset=offset,
                limit=limit,
                **which,
            ),
        )

    def jsz(
        self,
        *,
        account: str | None = None,
        accounts: bool = False,
        streams: bool = False,
        consumers: bool = False,
        config: bool = False,
        leader_only: bool = False,
        raft: bool = False,
        offset: int = 0,
        limit: int | None = None,
        **which: Unpack[Which],
    ) -> Listing[Answer[Jsz]]:
        """JetStream in numbers and, on request, its accounts, streams and consumers."""
        return Listing(
            self._caller,
            self._inner.jsz(
                account=account,
                accounts=accounts,
                streams=streams,
                consumers=consumers,
                config=config,
                leader_only=leader_only,
                raft=raft,
                offset=offset,
                limit=limit,
                **which,
            ),
        )

    def accountz(
        self, *, account: str | None = None, **which: Unpack[Which]
    ) -> Listing[Answer[Accountz]]:
        """The accounts that servers know. `account`: this one in detail."""
        return Listing(self._caller, self._inner.accountz(account=account, **which))

    def routez(
        self, *, subscriptions: bool = False, **which: Unpack[Which]
    ) -> Listing[Answer[Routez]]:
        """Routes within clusters. `subscriptions`: with their subjects."""
        return Listing(self._caller, self._inner.routez(subscriptions=subscriptions, **which))

    def gatewayz(
        self, *, name: str | None = None, accounts: bool = False, **which: Unpack[Which]
    ) -> Listing[Answer[Gatewayz]]:
        """Gateways between clusters. `name`: only to this cluster. `accounts`: with accounts."""
        return Listing(self._caller, self._inner.gatewayz(name=name, accounts=accounts, **which))

    def leafz(
        self, *, account: str | None = None, subscriptions: bool = False, **which: Unpack[Which]
    ) -> Listing[Answer[Leafz]]:
        """Leaf nodes. `account`: only of this one. `subscriptions`: with their subjects."""
        return Listing(
            self._caller, self._inner.leafz(account=account, subscriptions=subscriptions, **which)
        )

    def account_info(self, account: str) -> Listing[Answer[AccountInfo]]:
        """An account, as each server that knows it sees it."""
        return Listing(self._caller, self._inner.account_info(account))

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
            self._caller,
            self._inner.account_connz(
                account, subscriptions=subscriptions, offset=offset, limit=limit
            ),
        )

    def account_jsz(
        self, account: str, *, streams: bool = False, consumers: bool = False, config: bool = False
    ) -> Listing[Answer[AccountJsz]]:
        """The JetStream of an account. The options are those of `jsz`."""
        return Listing(
            self._caller,
            self._inner.account_jsz(account, streams=streams, consumers=consumers, config=config),
        )

    def account_subsz(
        self, account: str, *, test: str | None = None, offset: int = 0, limit: int | None = None
    ) -> Listing[Answer[Subsz]]:
        """A page of an account's subscriptions. The options are those of `subsz`."""
        return Listing(
            self._caller, self._inner.account_subsz(account, test=test, offset=offset, limit=limit)
        )

    def account_statz(
        self, accounts: str | Iterable[str] = (), *, include_unused: bool = False
    ) -> Listing[Answer[AccountStatz]]:
        """Accounts in numbers, all or these, from each server where they have connections."""
        return Listing(
            self._caller, self._inner.account_statz(accounts, include_unused=include_unused)
        )
