# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""Services without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from jetspark.blocking.by_hand.jetstream import EventCallback
from jetspark.blocking.by_hand.services import BaseEndpointCalls, BaseService, BaseServices, Request
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import Listing
from jetspark.blocking.jetstream import Events
from jetspark.services.discovery import ListingLimits
from jetspark.services.discovery import Services as AsyncServices
from jetspark.services.protocol import ServiceInfo, ServicePing, ServiceStats
from jetspark.services.service import EndpointCalls as AsyncEndpointCalls
from jetspark.services.service import Group as AsyncGroup
from jetspark.services.service import Service as AsyncService

__all__ = ["Group", "Listing", "Request", "Service", "Services"]


@twin_of(AsyncEndpointCalls)
class EndpointCalls(BaseEndpointCalls):
    """What services and groups share: adding endpoints and groups."""

    _inner: AsyncEndpointCalls

    @property
    def prefix(self) -> str:
        """The start of its endpoints' subjects."""
        return self._inner.prefix

    @property
    def queue_group(self) -> str:
        """The default of its endpoints; "": none."""
        return self._inner.queue_group

    def add_group(self, name: str, *, queue_group: str | None = None) -> Group:
        """A group of endpoints whose subjects begin with the tokens of `name` ("": no prefix)."""
        return Group(self._caller, self._inner.add_group(name, queue_group=queue_group))


@twin_of(AsyncGroup)
class Group(EndpointCalls):
    """A prefix that endpoints of a service share; created by `add_group`."""

    _inner: AsyncGroup


@twin_of(AsyncService)
class Service(BaseService, EndpointCalls):
    """One instance of a service, created by `Client.add_service`."""

    _inner: AsyncService

    @property
    def name(self) -> str:
        """The name, shared by all instances of the service."""
        return self._inner.name

    @property
    def id(self) -> str:
        """This instance's id."""
        return self._inner.id

    @property
    def version(self) -> str:
        """Its semantic version."""
        return self._inner.version

    @property
    def description(self) -> str:
        """Its description, for people."""
        return self._inner.description

    @property
    def metadata(self) -> Mapping[str, str]:
        """Its metadata; read-only."""
        return self._inner.metadata

    @property
    def active(self) -> bool:
        """Whether it has not ended."""
        return self._inner.active

    def info(self) -> ServiceInfo:
        """Its answer to INFO."""
        return self._thread.call(self._inner.info)

    def stats(self) -> ServiceStats:
        """Its answer to STATS. An exception of the `stats_handler` is reported."""
        return self._thread.call(self._inner.stats)

    def reset(self) -> None:
        """Restart all statistics."""
        self._thread.call(self._inner.reset)

    def wait_stopped(self) -> None:
        """Wait until it is stopped, or the connection is closed."""
        self._thread.run(self._inner.wait_stopped)


@twin_of(AsyncServices)
class Services(BaseServices):
    """The services within reach of a connection, returned by `Client.services`."""

    _inner: AsyncServices

    def ping(
        self, name: str | None = None, id: str | None = None, **limits: Unpack[ListingLimits]
    ) -> Listing[ServicePing]:
        """The instances, each with its `rtt` (see `Services`)."""
        return Listing(self._caller, self._inner.ping(name, id, **limits))

    def info(
        self, name: str | None = None, id: str | None = None, **limits: Unpack[ListingLimits]
    ) -> Listing[ServiceInfo]:
        """The instances with their endpoints (see `Services`)."""
        return Listing(self._caller, self._inner.info(name, id, **limits))

    def stats(
        self, name: str | None = None, id: str | None = None, **limits: Unpack[ListingLimits]
    ) -> Listing[ServiceStats]:
        """The instances with their endpoints' statistics (see `Services`)."""
        return Listing(self._caller, self._inner.stats(name, id, **limits))

    def latencies(self, subject: str, *, callback: EventCallback | None = None) -> Events:
        """The measurements of an export with `latency` (ADR-3), each a ServiceLatency."""
        return Events(
            self._caller, lambda forward: self._inner.latencies(subject, callback=forward), callback
        )
