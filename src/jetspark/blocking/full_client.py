"""The client that users get without async."""

from __future__ import annotations

from typing import Unpack

from jetspark.blocking.client import CoreClient
from jetspark.blocking.identity import AuthCallout, CalloutHandler
from jetspark.blocking.jetstream import JetStream
from jetspark.blocking.registry import SchemaRegistry
from jetspark.blocking.services import Service, Services
from jetspark.blocking.system import System
from jetspark.blocking.twin import awaits, makes, twin_of
from jetspark.connection.nkeys import KeyPair
from jetspark.full_client import Client as AsyncClient
from jetspark.identity.callout import CalloutOptions
from jetspark.services.service import Service as AsyncService
from jetspark.timestamps import Seconds

__all__ = ["Client"]


@twin_of(AsyncClient)
class Client(CoreClient):
    _inner: AsyncClient
    schema_registry = makes(AsyncClient.schema_registry, SchemaRegistry)
    system = makes(AsyncClient.system, System)
    trace = awaits(AsyncClient.trace)
    add_service = awaits(AsyncClient.add_service, Service, AsyncService.stop)
    services = makes(AsyncClient.services, Services)

    def auth_callout(
        self, handler: CalloutHandler, *, signer: KeyPair, **options: Unpack[CalloutOptions]
    ) -> AuthCallout:
        return AuthCallout(
            self._caller,
            lambda forward: self._inner.auth_callout(forward, signer=signer, **options),
            handler,
        )

    def jetstream(
        self,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> JetStream:
        return JetStream(self, timeout=timeout, domain=domain, api_prefix=api_prefix, trace=trace)
