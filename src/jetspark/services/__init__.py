"""Services over core NATS (ADR-32), built on the public client.

`Client.add_service` starts one, `Client.services` finds and calls those of others.
"""

from jetspark.errors import ServiceError
from jetspark.jetstream.listing import Listing
from jetspark.services.calls import ServiceCalls
from jetspark.services.discovery import Services
from jetspark.services.documents import (
    EndpointInfo,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
)
from jetspark.services.endpoint_calls import Group
from jetspark.services.latency import ServiceLatency
from jetspark.services.protocol import error_headers, service_error
from jetspark.services.request import Request
from jetspark.services.service import Service

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
