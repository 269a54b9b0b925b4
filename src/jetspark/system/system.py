"""Questions to servers and orders for operators, for users of the system account.

Contract: a question goes to all servers, or to one by its id. The number of servers in reach is
unknown, so a list of answers ends when none arrives for a while. An order that changes something
is sent once, when it is awaited, and never again.
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
from jetspark.documents.requirements import check_feature
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
    MetaRescue,
    Raftz,
    Routez,
    ServerSummary,
    Statsz,
    Subsz,
    Varz,
)
from jetspark.timestamps import Seconds
from jetspark.validation import check_whole, check_word, texts_of
from jetspark.wire import js_api
from jetspark.wire.documents import convert_document, decode_document, encode_document

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

    Each call of the first two parts lists answers, one of each server: iterate the result, or call
    its `all()`; each iteration asks anew. All servers answer, or those that match `only`, or the
    one with the id `server`. The other options are those of the server's monitoring, with its
    defaults. A list ends `stall` seconds after the last answer, or after `timeout` seconds in all
    (see `Client.system`).

    Iterating raises NoRespondersError for a user of another account, RequestTimeoutError when no
    server answers, SystemRequestError for an error in the answer, PermissionsError,
    ConnectionClosedError.

    The other calls change something; their docstrings say what. None of them asks for a
    confirmation. They raise UnsupportedByServerError for a server that is too old.

    Example:
        ```python
        system = nc.system()
        async for answer in system.varz():
            print(answer.server.name, answer.data.connections)

        print(await system.account_statz("APP").all())
        ```
    """

    def __init__(
        self, client: CoreClient, timeout: Seconds, stall: Seconds, domain: str | None
    ) -> None:
        self._client = client
        self._timeout = timeout
        self._limits: dict[str, Any] = {"timeout": timeout, "stall": stall}
        self._prefix = js_api.api_prefix_of(domain, None)

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

        Example:
            ```python
            for answer in await nc.system().connz(account="APP", sort="pending").all():
                print(answer.server.name, [link.pending_bytes for link in answer.data.connections])
            ```
        """
        check_word("state", state, STATES)
        if cid is not None:
            check_whole("cid", cid)
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

    def raftz(
        self,
        *,
        account: str | None = None,
        group: str | None = None,
        **choice: Unpack[ServerChoice],
    ) -> Listing[Answer[Raftz]]:
        """The Raft groups of an account, by default of the system account, on each server.

        A group is that of a clustered stream or consumer; the system account has the one of
        JetStream's metadata. `group`: only this one. Needs server 2.10.
        """
        self._check("raftz", (2, 10))
        return self._servers(Raftz, "RAFTZ", choice, account=account, group=group)

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

    # -- what changes a server -------------------------------------------------------------------

    async def reload(self, server: str) -> None:
        """Make the server with the id `server` read its configuration file again.

        The file may change users and permissions, and the server then closes connections that are
        no longer allowed. Raises SystemRequestError when the server refuses the file, and goes on
        with the old configuration. Needs server 2.10.
        """
        await self._order("RELOAD", server)

    async def kick_client(self, server: str, cid: int) -> None:
        """Close the connection `cid` of a client or leaf node to the server with the id `server`.

        The client may connect again at once: most do. `cid` is that of `connz`. Raises
        SystemRequestError for a connection that the server does not have. Needs server 2.10.
        """
        await self._order("KICK", server, cid=check_whole("cid", cid, 1))

    async def send_lame_duck(self, server: str, cid: int) -> None:
        """Tell the client `cid` that the server with the id `server` will shut down.

        The server goes on, but a client then moves to another server of the cluster, if it heeds
        the event. `cid` is that of `connz`. Raises SystemRequestError for a client that the server
        does not have. Needs server 2.10.
        """
        await self._order("LDM", server, cid=check_whole("cid", cid, 1))

    async def _order(self, request: str, server: str, **options: int) -> None:
        self._check(f"{request} of a server", (2, 10))
        subject = f"$SYS.REQ.SERVER.{check_name('server', server)}.{request}"
        payload = encode_document(options) if options else b""
        reply = await self._client.request(subject, payload, timeout=self._timeout)
        read_server(reply.data)

    # -- what changes JetStream's cluster ----------------------------------------------------------

    async def step_down_meta_leader(self, *, preferred: str | None = None) -> None:
        """Make the leader of JetStream's metadata give up, so that another server is elected.

        Until then, about a second, no stream or consumer can be created or changed. `preferred`:
        the name of the server that shall lead; needs server 2.11. Raises ClusterNoPeersError when
        it cannot.
        """
        body = None
        if preferred is not None:
            self._check("a preferred leader", (2, 11))
            body = {"placement": _set_options(preferred=preferred)}
        await self._call(js_api.META_LEADER_STEPDOWN, body)

    async def evacuate_server(self, server: str) -> None:
        """Move all replicas of streams and consumers from the server of the name `server`.

        For a server that will be shut down for long or removed. Returns when the moves are
        ordered; `jsz` and `raftz` show when they are done. A replica that no other server can take
        stays. Raises ClusterServerNotMemberError for an unknown name. Needs server 2.15.
        """
        self._check("evacuate_server", (2, 15))
        await self._call(js_api.SERVER_EVACUATE, {"peer": server})

    async def remove_server(self, server: str) -> None:
        """Remove the server of the name `server` from JetStream's cluster, for good.

        Its replicas are lost, and made again on other servers. A removed server that still runs
        has no JetStream until it is restarted. Raises ClusterServerNotMemberError for an unknown
        name, ClusterServerMemberChangeInflightError while another server is added or removed.
        """
        await self._call(js_api.SERVER_REMOVE, {"peer": server})

    async def rescue_meta(self, quorum: int) -> list[MetaRescue]:
        """Let `quorum` servers elect a leader of JetStream's metadata, after most are lost for
        good.

        Unsafe: if a lost server comes back, or the cluster is only divided, streams and consumers
        may be lost. Each server in reach applies this for five minutes, in which the lost servers
        must be removed with `remove_server`, and answers with its quorum before and after or, for
        example while it knows of a leader, with an `error`. Needs server 2.15.
        """
        self._check("rescue_meta", (2, 15))
        subject = js_api.subject_of(self._prefix, js_api.META_RESCUE, {})
        payload = encode_document({"quorum_needed": check_whole("quorum", quorum, 1)})
        try:
            async with self._client.request_many(subject, payload, **self._limits) as replies:
                return [
                    from_wire(MetaRescue, decode_document(reply.data, "answer of a server"))
                    async for reply in replies
                ]
        except RequestTimeoutError as error:
            raise _nobody_answers(error) from None

    async def purge_account(self, account: str) -> None:
        """Delete all streams, consumers and messages of an account. Nothing brings them back.

        An account that the server does not know is no error.
        """
        check_name("account", account)
        await self._call(js_api.ACCOUNT_PURGE, account=account)

    async def _call(
        self, call: js_api.Call, body: dict[str, Any] | None = None, **names: str
    ) -> None:
        subject = js_api.subject_of(self._prefix, call, names)
        payload = b"" if body is None else encode_document(body)
        try:
            reply = await self._client.request(subject, payload, timeout=self._timeout)
        except RequestTimeoutError as error:
            raise _nobody_answers(error) from None
        js_api.parse_answer(call, reply.data, names)

    def _check(self, feature: str, version: tuple[int, int]) -> None:
        check_feature(feature, version, self._client.server_info)

    def __repr__(self) -> str:
        return f"System({self._client!r})"


def _nobody_answers(error: RequestTimeoutError) -> RequestTimeoutError:
    """The error of a call that only the leader of a cluster answers, and only to the system
    account."""
    if type(error) is not RequestTimeoutError or not error.sent:
        return error
    return RequestTimeoutError(
        f"{error} It is answered in the system account only, by a JetStream cluster with a leader."
    )


def _set_options(**options: Any) -> dict[str, Any]:
    if "" in options.values():  # the server would take it for "not given": everything
        raise ConfigError("An option cannot be an empty text: leave it out to ask for all.")
    return {name: value for name, value in options.items() if value not in (None, False, 0, [])}


def read_answer(cls: type[DocumentT], data: bytes) -> Answer[DocumentT]:
    """Raises SystemRequestError, and DocumentError for anything that is not such an answer."""
    server, raw = read_server(data)
    # Every answer but the statistics is in `data`.
    found = raw.get("data", raw.get("statsz"))
    if cls is Raftz:  # by the one account, and in it by group
        accounts = convert_document(found, dict[str, dict[str, Any]], "answer of a server")
        found = {
            "groups": {
                name: group for groups in accounts.values() for name, group in groups.items()
            }
        }
    return Answer(server, from_wire(cls, found))


def read_server(data: bytes) -> tuple[ServerSummary, dict[str, Any]]:
    """The server that answers, and the whole answer. Raises as `read_answer`."""
    raw = decode_document(data, "answer of a server")
    server = from_wire(ServerSummary, raw.get("server"))
    if (failure := raw.get("error")) is not None:
        error = from_wire(ErrorDocument, failure)
        raise SystemRequestError(server.name, error.code, error.description)
    return server, raw


def _page(offset: int, limit: int | None) -> dict[str, int | None]:
    check_whole("offset", offset, 0)
    if limit is not None:
        check_whole("limit", limit)
    return {"offset": offset, "limit": limit}


class SystemCalls(CoreClient):
    """A client with its system account."""

    def system(
        self, *, timeout: Seconds = TIMEOUT, stall: Seconds = STALL, domain: str | None = None
    ) -> System:
        """Inspect and operate servers and accounts, as a user of the system account. Sends nothing.

        A call waits at most `timeout` seconds for answers, a list `stall` seconds after the last
        one. `domain`: the JetStream domain whose cluster the calls change.

        Example:
            ```python
            system = nc.system()  # nc: a user of the system account
            for answer in await system.healthz().all():
                print(answer.data.ok)  # True
            ```
        """
        return System(self, timeout, stall, domain)
