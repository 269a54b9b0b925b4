# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: full client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jetspark.blocking.client import Client
from jetspark.blocking.identity.callout import AuthCallout, CalloutHandler
from jetspark.blocking.jetstream.context import JetStream
from jetspark.blocking.services.discovery import Services
from jetspark.blocking.services.service import Service
from jetspark.blocking.system.system import System
from jetspark.connection.nkeys import CurveKeyPair, KeyPair
from jetspark.identity.callout import CONCURRENCY, QUEUE_GROUP
from jetspark.payloads import Payload
from jetspark.services.discovery import Services as AsyncServices
from jetspark.services.protocol import DEFAULT_QUEUE_GROUP
from jetspark.services.service import StatsHandler, start_service
from jetspark.system.system import STALL, TIMEOUT
from jetspark.system.system import System as AsyncSystem
from jetspark.timestamps import Seconds
from jetspark.tracing.calls import trace_message
from jetspark.tracing.tree import MessageTrace
from jetspark.wire.headers import HeadersLike
from jetspark.wire.service_api import DEFAULT_PREFIX


class GeneratedClient(Client):
    """The calls of `Client` that hand on to its asyncio twin."""

    def jetstream(
        self,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> JetStream:
        """JetStream over this connection; there may be several, with different options.

        `timeout`: seconds for each API call and ack. `domain`: a JetStream domain, such as that
        behind a leaf node. `api_prefix`: the whole prefix instead of "$JS.API", for an API
        imported from another account. With neither, the connection's options `jetstream_domain`
        and `jetstream_api_prefix` apply. `trace`: log each API request and answer to
        "jetspark.trace" at level DEBUG, without messages and secrets. Nothing is sent. Raises
        ConfigError when both domain and api_prefix are given, BadNameError, BadSubjectError.
        """
        return JetStream(self, timeout=timeout, domain=domain, api_prefix=api_prefix, trace=trace)

    def add_service(
        self,
        name: str,
        version: str,
        *,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue_group: str = DEFAULT_QUEUE_GROUP,
        stats_handler: StatsHandler | None = None,
    ) -> Service:
        """Start an instance of a service, which others find; then add endpoints to it.

        `name`: of letters, digits, - and _, shared by all instances. `version`: a semantic one.
        `queue_group`: the default of its endpoints; "": none. `stats_handler`: a function, called
        in the event loop's thread with the EndpointStats of each endpoint; what it returns is their
        `data` (JSON).

        Raises BadNameError, ConfigError, BadQueueError; PermissionsError when the server refuses
        the subjects below $SRV, RequestTimeoutError, ConnectionClosedError.
        """
        return Service(
            self._caller,
            self._thread.run(
                start_service,
                self._inner,
                name,
                version,
                description,
                metadata,
                queue_group,
                stats_handler,
            ),
        )

    def services(self, *, prefix: str = DEFAULT_PREFIX) -> Services:
        """Find services, look at them, and call them. Nothing is sent.

        `prefix`: where the services of another account are imported to.
        """
        return Services(self._caller, AsyncServices(self._inner, prefix))

    def trace(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        deliver: bool = False,
        timeout: Seconds | None = None,
    ) -> MessageTrace:
        """Send a message whose path all servers report (ADR-41); `print` the result for a tree.

        Without `deliver` nobody receives the message and no stream stores it: the servers report
        what they would have done. It ends when all have reported, or after `timeout` seconds
        (default: request_timeout) with what came; `complete` and `missing` say which. Behind the
        border of an account it goes on only if its import or export has `allow_trace`.

        Raises UnsupportedByServerError before nats-server 2.11, and sends nothing;
        PermissionsError when the server refuses the subject, or the inbox on which the reports
        come; RequestTimeoutError when no server reported; ConfigError for headers that tracing
        itself sets, ConnectionClosedError, BadTimeoutError, and what publish_nowait
        raises.
        """
        return self._thread.run(
            trace_message, self._inner, subject, payload, headers, deliver, timeout
        )

    def auth_callout(
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

        The client is a user of the callout's account (`auth_users`). `handler`, in a thread, gets
        an AuthRequest and returns a Grant, or raises CalloutRefusal with a reason for the server's
        log. `signer`: the account's keys, those of `issuer` in the server's configuration.
        `account`: the callout account's public key (A…), when `signer` is one of its signing keys.
        `xkey`: the curve keys whose public key is `xkey` in the configuration; requests that are
        not encrypted are then refused. `servers`: public keys (N…) of the servers that may ask;
        default: any, that is any user of the callout account who may publish. `concurrency`:
        handlers that run at once.

        Raises NKeyError, ConfigError, PermissionsError, RequestTimeoutError, ConnectionClosedError.
        """
        return AuthCallout(
            self._caller, handler, signer, account, xkey, servers, queue_group, concurrency
        )

    def system(self, *, timeout: Seconds = TIMEOUT, stall: Seconds = STALL) -> System:
        """Look at servers and accounts, as a user of the system account. Nothing is sent.

        `timeout`: seconds that a list waits for answers at most; `stall`: seconds after the last
        answer until it ends.
        """
        return System(self._thread, AsyncSystem(self._inner, timeout, stall))
