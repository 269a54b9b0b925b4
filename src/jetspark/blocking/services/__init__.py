"""Services without async: the twins of `jetspark.services`."""

from jetspark.blocking.services.discovery import Services
from jetspark.blocking.services.endpoint_calls import Group
from jetspark.blocking.services.request import Request
from jetspark.blocking.services.service import Service

__all__ = ["Group", "Request", "Service", "Services"]
