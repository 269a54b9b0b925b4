# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""The client that users get without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from typing import Unpack

from jetspark.blocking.by_hand.identity import CalloutHandler
from jetspark.blocking.client import Client as CoreClient
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.identity import AuthCallout
from jetspark.blocking.jetstream import JetStream
from jetspark.blocking.registry import SchemaRegistry
from jetspark.blocking.services import Service, Services
from jetspark.blocking.system import System
from jetspark.connection.nkeys import KeyPair
from jetspark.full_client import Client as AsyncClient
from jetspark.identity.callout import CalloutOptions
from jetspark.payloads import Payload
from jetspark.services.service import ServiceOptions
from jetspark.system.system import STALL, TIMEOUT
from jetspark.timestamps import Seconds
from jetspark.tracing.tree import MessageTrace
from jetspark.wire.headers import HeadersLike
from jetspark.wire.service_api import DEFAULT_PREFIX

__all__ = ["Client"]


@twin_of(AsyncClient)
class Client(CoreClient):
    """A connection to NATS; see `jetspark.client.client`."""

    _inner: AsyncClient

    def schema_registry(self, *, timeout: Seconds | None = None) -> SchemaRegistry:
        """The schema registry of this account. Sends nothing."""
        return SchemaRegistry(self._caller, self._inner.schema_registry(timeout=timeout))

    def system(self, *, timeout: Seconds = TIMEOUT, stall: Seconds = STALL) -> System:
        """Inspect servers and accounts, as a user of the system account. Sends nothing."""
        return System(self._caller, self._inner.system(timeout=timeout, stall=stall))

    def auth_callout(
        self, handler: CalloutHandler, *, signer: KeyPair, **options: Unpack[CalloutOptions]
    ) -> AuthCallout:
        """Decide who may log in: servers ask, `handler` answers (ADR-26; server 2.10)."""
        return AuthCallout(
            self._caller,
            lambda forward: self._inner.auth_callout(forward, signer=signer, **options),
            handler,
        )

    def trace(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        deliver: bool = False,
        timeout: Seconds | None = None,
    ) -> MessageTrace:
        """Send a message whose path all servers report (ADR-41); `print` the result for a tree."""
        return self._thread.run(
            self._inner.trace, subject, payload, headers=headers, deliver=deliver, timeout=timeout
        )

    def add_service(self, name: str, version: str, **options: Unpack[ServiceOptions]) -> Service:
        """Start an instance of a service, which others find; then add endpoints to it."""
        return Service(
            self._caller, self._thread.run(self._inner.add_service, name, version, **options)
        )

    def services(self, *, prefix: str = DEFAULT_PREFIX) -> Services:
        """Find services, inspect them, and call them. Sends nothing."""
        return Services(self._caller, self._inner.services(prefix=prefix))

    def jetstream(
        self,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> JetStream:
        """JetStream over this connection; there may be several, with different options."""
        return JetStream(self, timeout=timeout, domain=domain, api_prefix=api_prefix, trace=trace)
