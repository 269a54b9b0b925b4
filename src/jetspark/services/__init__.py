"""Services over core NATS (ADR-32), built on the public client.

`Client.add_service` starts one, `Client.services` finds and calls those of others.
"""

from jetspark.client.listing import Listing
from jetspark.errors import ServiceError
from jetspark.services.discovery import ServiceLatency, Services
from jetspark.services.endpoint import Request
from jetspark.services.protocol import (
    EndpointInfo,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    error_headers,
)
from jetspark.services.service import Group, Service, ServiceCalls
from jetspark.wire.service_api import service_error

__all__ = [
    "EndpointInfo",
    "EndpointStats",
    "Group",
    "Listing",
    "Request",
    "Service",
    "ServiceCalls",
    "ServiceError",
    "ServiceInfo",
    "ServiceLatency",
    "ServicePing",
    "ServiceStats",
    "Services",
    "error_headers",
    "service_error",
]
