"""The calls of a client for services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from jetspark.arguments import checked
from jetspark.services.discovery import Services
from jetspark.services.protocol import DEFAULT_QUEUE_GROUP
from jetspark.services.service import Service, StatsHandler
from jetspark.wire.service_api import DEFAULT_PREFIX

if TYPE_CHECKING:
    from jetspark.client.client import Client


@checked
class ServiceCalls:
    """Mixed into the client."""

    async def add_service(
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
        `queue_group`: of its endpoints, unless they say otherwise; "" for none. `stats_handler`: a
        plain function, called with the EndpointStats of each endpoint when its statistics are asked
        for; what it returns is their `data`, anything that JSON has a form for.

        Raises BadNameError, ConfigError, BadQueueError; PermissionsError when the server refuses
        the subjects below $SRV, RequestTimeoutError, ConnectionClosedError.
        """
        client = cast("Client", self)
        return await start_service(
            client, name, version, description, metadata, queue_group, stats_handler
        )

    def services(self, *, prefix: str = DEFAULT_PREFIX) -> Services:
        """Find services, look at them, and call them.

        `prefix`: where the services of another account are imported to. Nothing is sent. Raises
        BadSubjectError.
        """
        return Services(cast("Client", self), prefix)


@checked
async def start_service(
    client: Client,
    name: str,
    version: str,
    description: str,
    metadata: Mapping[str, str] | None,
    queue_group: str,
    stats_handler: StatsHandler | None,
) -> Service:
    """As `ServiceCalls.add_service`, for both clients."""
    service = Service(client, name, version, description, metadata, queue_group, stats_handler)
    await service.begin()
    return service
