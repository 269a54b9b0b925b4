"""Questions to servers, for users of the system account.

Contract: a question goes to all servers, or to one by its id. The number of servers in reach is
unknown, so a list of answers ends when none arrives for a while.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, TypedDict, TypeVar, Unpack

import msgspec

from jetspark.client.client import CoreClient
from jetspark.client.listing import Listing
from jetspark.documents.document import Document, from_wire
from jetspark.documents.streams import ErrorDocument
from jetspark.errors import ConfigError, DocumentError, RequestTimeoutError, SystemRequestError
from jetspark.subjects import check_name, check_publish_subject
from jetspark.system.documents import (
    AccountDetail,
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
    ServerSummary,
    Statsz,
    Subsz,
    Varz,
)
from jetspark.timestamps import Seconds
from jetspark.validation import check_whole, check_word, texts_of
from jetspark.wire.documents import decode_document

TIMEOUT: Final = 2.0
STALL: Final = 0.3
STATES: Final = ("open", "closed", "all")
"""The reasons in the order of their numbers on the wire."""
DocumentT = TypeVar("DocumentT", bound=Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFilter:
    """The servers that answer: all that match.

    `name`, `cluster` and `host` match a part of theirs or, with `exact_match`, the whole; servers
    have all of `tags`; `domain` is their JetStream domain.
    """

    name: str | None = None
    cluster: str | None = None
    host: str | None = None
    exact_match: bool = False
    tags: tuple[str, ...] = ()
    domain: str | None = None

    def to_wire(self) -> dict[str, Any]:
        fields = asdict(self)
        tags = texts_of("tags", fields.pop("tags"))
        return _set_options(server_name=fields.pop("name"), tags=tags, **fields)


class ServerChoice(TypedDict, total=False):
    """The servers to ask; see `System`."""

    server: str | None
    only: ServerFilter | None


class System:
    """The servers, seen from the system account; returned by `Client.system`.

    Each call lists answers, one of each server: iterate the result, or call its `all()`;
    each iteration asks anew. All servers answer, or those that match `only`, or the one
    with the id `server`. The other options are those of the server's monitoring, with its defaults.
    A list ends `stall` seconds after the last answer, or after `timeout` seconds in all (see
    `Client.system`).

    Iterating raises NoRespondersError for a user of another account, RequestTimeoutError when no
    server answers, SystemRequestError for an error in the answer, PermissionsError,
    ConnectionClosedError.
    """

    def __init__(self, client: CoreClient, timeout: Seconds, stall: Seconds) -> None:
        self._client = client
        self._limits: dict[str, Any] = {"timeout": timeout, "stall": stall}

    def _list(
        self,
        cls: type[DocumentT],
        subject: str,
        options: dict[str, Any],
        only: ServerFilter | None = None,
        *,
        max_msgs: int = 0,
    ) -> Listing[Answer[DocumentT]]:
        """The answers; an unreadable one is reported and left out."""
        check_publish_subject(subject)
        body = {**options, **(only.to_wire() if only else {})}
        payload = msgspec.json.encode(body) if body else b""
        ask = partial(
            self._client.request_many, subject, payload, max_msgs=max_msgs, **self._limits
        )
        ask()  # checks the arguments, and sends nothing

        async def answers() -> AsyncIterator[Answer[DocumentT]]:
            try:
                async with ask() as replies:
                    async for reply in replies:
                        try:
                            answer = read_answer(cls, reply.data)
                        except DocumentError as error:
                            self._client.report(error)
                            continue
                        yield answer
            except RequestTimeoutError as error:
                if only is None or type(error) is not RequestTimeoutError:
                    raise
                return  # none of them matches

        return Listing(answers)

    def _servers(
        self, cls: type[DocumentT], request: str, choice: ServerChoice, **options: Any
    ) -> Listing[Answer[DocumentT]]:
        server, only = choice.get("server"), choice.get("only")
        if server is not None:
            check_name("server", server)
            if only is not None:
                raise ConfigError("Give either server or only, not both.")
        subject = f"$SYS.REQ.SERVER.{server or 'PING'}.{request}"
        max_answers = 0 if server is None else 1
        return self._list(cls, subject, _set_options(**options), only, max_msgs=max_answers)

    def _account(
        self, cls: type[DocumentT], request: str, account: str, **options: Any
    ) -> Listing[Answer[DocumentT]]:
        check_name("account", account)
        return self._list(cls, f"$SYS.REQ.ACCOUNT.{account}.{request}", _set_options(**options))

    # -- servers ---------------------------------------------------------------------------------

    def ping(self, **choice: Unpack[ServerChoice]) -> Listing[Answer[Statsz]]:
        """The servers, with their numbers."""
        return self._servers(Statsz, "STATSZ", choice)

    def varz(self, **choice: Unpack[ServerChoice]) -> Listing[Answer[Varz]]:
        """Configuration and state."""
        return self._servers(Varz, "VARZ", choice)

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
        **choice: Unpack[ServerChoice],
    ) -> Listing[Answer[Healthz]]:
        """Whether servers are healthy.

        `js_enabled_only`: check only that JetStream is enabled; `js_server_only`: not streams and
        consumers; `js_meta_only`: only the cluster's metadata. `account`, `stream`, `consumer`:
        only this one; each needs those before it. `details`: list each problem.
        """
        if (stream is not None and account is None) or (consumer is not None and stream is None):
            raise ConfigError("A stream needs its account, and a consumer its stream.")
        flags = {
            "js-enabled-only": js_enabled_only,
            "js-server-only": js_server_only,
            "js-meta-only": js_meta_only,
        }
        return self._servers(
            Healthz,
            "HEALTHZ",
            choice,
            **flags,
            account=account,
            stream=stream,
            consumer=consumer,
            details=details,
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
        **choice: Unpack[ServerChoice],
    ) -> Listing[Answer[Connz]]:
        """Connections of clients; without `limit`, at most 1,024 of each server.

        `state`: "open", "closed" or "all". `auth`: with users and accounts. `subscriptions`: with
        their subjects. `sort`: by "cid", "start", "subs", "pending", "msgs_to", "msgs_from",
        "bytes_to", "bytes_from", "last", "idle", "uptime", "stop", "reason" or "rtt". `cid`,
        `user`, `account`, `filter_subject` (with `account`), `mqtt_client`: only these. `offset`,
        `limit`: a page.
        """
        check_word("state", state, STATES)
        return self._servers(
            Connz,
            "CONNZ",
            choice,
            state=STATES.index(state),
            auth=auth or user is not None or account is not None,
            subscriptions=subscriptions,
            sort=sort,
            cid=cid,
            user=user,
            acc=account,
            filter_subject=filter_subject,
            mqtt_client=mqtt_client,
            **_page(offset, limit),
        )

    def subsz(
        self,
        *,
        subscriptions: bool = False,
        account: str | None = None,
        test: str | None = None,
        offset: int = 0,
        limit: int | None = None,
        **choice: Unpack[ServerChoice],
    ) -> Listing[Answer[Subsz]]:
        """Numbers about subscriptions; with `subscriptions`, a page of them.

        `account`: only of this one. `test`: only those that match this subject.
        """
        return self._servers(
            Subsz,
            "SUBSZ",
            choice,
            subscriptions=subscriptions,
            account=account,
            test=test,
            **_page(offset, limit),
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
        **choice: Unpack[ServerChoice],
    ) -> Listing[Answer[Jsz]]:
        """JetStream in numbers and, on request, its accounts, streams and consumers.

        `account`: only this one. `accounts`, `streams`, `consumers`, `config`, `raft`: include them
        in `account_details`. `leader_only`: only the leader of the cluster's metadata answers.
        """
        return self._servers(
            Jsz,
            "JSZ",
            choice,
            account=account,
            accounts=accounts,
            streams=streams,
            consumer=consumers,
            config=config,
            leader_only=leader_only,
            raft=raft,
            **_page(offset, limit),
        )

    def accountz(
        self, *, account: str | None = None, **choice: Unpack[ServerChoice]
    ) -> Listing[Answer[Accountz]]:
        """The accounts that servers know. `account`: this one in detail."""
        return self._servers(Accountz, "ACCOUNTZ", choice, account=account)

    def routez(
        self, *, subscriptions: bool = False, **choice: Unpack[ServerChoice]
    ) -> Listing[Answer[Routez]]:
        """Routes within clusters. `subscriptions`: with their subjects."""
        return self._servers(Routez, "ROUTEZ", choice, subscriptions=subscriptions)

    def gatewayz(
        self, *, name: str | None = None, accounts: bool = False, **choice: Unpack[ServerChoice]
    ) -> Listing[Answer[Gatewayz]]:
        """Gateways between clusters. `name`: only to this cluster. `accounts`: with accounts."""
        return self._servers(Gatewayz, "GATEWAYZ", choice, name=name, accounts=accounts)

    def leafz(
        self,
        *,
        account: str | None = None,
        subscriptions: bool = False,
        **choice: Unpack[ServerChoice],
    ) -> Listing[Answer[Leafz]]:
        """Leaf nodes. `account`: only of this one. `subscriptions`: with their subjects."""
        return self._servers(Leafz, "LEAFZ", choice, account=account, subscriptions=subscriptions)

    # -- accounts --------------------------------------------------------------------------------

    def account_info(self, account: str) -> Listing[Answer[AccountDetail]]:
        """An account, as each server that knows it sees it."""
        return self._account(AccountDetail, "INFO", account)

    def account_connz(
        self,
        account: str,
        *,
        subscriptions: bool = False,
        offset: int = 0,
        limit: int | None = None,
    ) -> Listing[Answer[Connz]]:
        """The connections of an account. The options are those of `connz`."""
        page = _page(offset, limit)
        return self._account(
            Connz, "CONNZ", account, auth=True, subscriptions=subscriptions, **page
        )

    def account_jsz(
        self, account: str, *, streams: bool = False, consumers: bool = False, config: bool = False
    ) -> Listing[Answer[AccountJsz]]:
        """The JetStream of an account. The options are those of `jsz`."""
        return self._account(
            AccountJsz, "JSZ", account, streams=streams, consumer=consumers, config=config
        )

    def account_subsz(
        self, account: str, *, test: str | None = None, offset: int = 0, limit: int | None = None
    ) -> Listing[Answer[Subsz]]:
        """A page of an account's subscriptions. The options are those of `subsz`."""
        return self._account(Subsz, "SUBSZ", account, test=test, **_page(offset, limit))

    def account_statz(
        self, accounts: str | Iterable[str] = (), *, include_unused: bool = False
    ) -> Listing[Answer[AccountStatz]]:
        """Accounts in numbers, all or these, from each server where they have connections.

        `include_unused`: also from the other servers.
        """
        names = texts_of("accounts", accounts)
        for name in names:
            check_name("account", name)
        options = _set_options(accounts=names, include_unused=include_unused)
        return self._list(AccountStatz, "$SYS.REQ.ACCOUNT.PING.STATZ", options)

    def __repr__(self) -> str:
        return f"System({self._client!r})"


def _set_options(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in (None, False, 0, [])}


def read_answer(cls: type[DocumentT], data: bytes) -> Answer[DocumentT]:
    """Raises SystemRequestError, and DocumentError for anything that is not such an answer."""
    raw = decode_document(data, "answer of a server")
    server = from_wire(ServerSummary, raw.get("server"))
    if (failure := raw.get("error")) is not None:
        error = from_wire(ErrorDocument, failure)
        raise SystemRequestError(server.name, error.code, error.description)
    # Every answer but the statistics is in `data`.
    return Answer(server, from_wire(cls, raw.get("data", raw.get("statsz"))))


def _page(offset: int, limit: int | None) -> dict[str, int | None]:
    check_whole("offset", offset, 0)
    if limit is not None:
        check_whole("limit", limit)
    return {"offset": offset, "limit": limit}


class SystemCalls(CoreClient):
    """A client with its system account."""

    def system(self, *, timeout: Seconds = TIMEOUT, stall: Seconds = STALL) -> System:
        """Inspect servers and accounts, as a user of the system account. Sends nothing.

        A list waits at most `timeout` seconds for answers, and `stall` seconds after the last one.
        """
        return System(self, timeout, stall)
