"""Servers and accounts, seen from the system account."""

from jetspark.errors import SystemRequestError
from jetspark.system.asking import ServerFilter
from jetspark.system.calls import SystemCalls
from jetspark.system.documents import (
    AccountInfo,
    AccountJsz,
    AccountStat,
    AccountStatz,
    Accountz,
    Answer,
    Connection,
    Connz,
    Gatewayz,
    HealthProblem,
    Healthz,
    Jsz,
    Leafz,
    Routez,
    ServerSummary,
    Statsz,
    Subsz,
    Subz,
    Traffic,
    Varz,
)
from jetspark.system.system import System

__all__ = [
    "AccountInfo",
    "AccountJsz",
    "AccountStat",
    "AccountStatz",
    "Accountz",
    "Answer",
    "Connection",
    "Connz",
    "Gatewayz",
    "HealthProblem",
    "Healthz",
    "Jsz",
    "Leafz",
    "Routez",
    "ServerFilter",
    "ServerSummary",
    "Statsz",
    "Subsz",
    "Subz",
    "System",
    "SystemCalls",
    "SystemRequestError",
    "Traffic",
    "Varz",
]
