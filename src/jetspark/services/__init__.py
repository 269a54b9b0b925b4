"""Services over core NATS (ADR-32), built on the public client.

`Client.add_service` starts one, `Client.services` finds and calls those of others.
"""

from jetspark.client.listing import Listing as Listing
from jetspark.errors import ServiceError as ServiceError
from jetspark.services.discovery import ServiceLatency as ServiceLatency
from jetspark.services.discovery import Services as Services
from jetspark.services.endpoint import Request as Request
from jetspark.services.protocol import EndpointInfo as EndpointInfo
from jetspark.services.protocol import EndpointStats as EndpointStats
from jetspark.services.protocol import ServiceInfo as ServiceInfo
from jetspark.services.protocol import ServicePing as ServicePing
from jetspark.services.protocol import ServiceStats as ServiceStats
from jetspark.services.protocol import error_headers as error_headers
from jetspark.services.service import Group as Group
from jetspark.services.service import Service as Service
from jetspark.services.service import ServiceCalls as ServiceCalls
from jetspark.wire.service_api import service_error as service_error
