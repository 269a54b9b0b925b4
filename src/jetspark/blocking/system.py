"""The system account without async."""

from __future__ import annotations

from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import lists
from jetspark.blocking.twin import Twin
from jetspark.system.system import System as AsyncSystem

__all__ = ["System"]


@twin_of(AsyncSystem)
class System(Twin):
    """The servers, seen from the system account; returned by `Client.system`."""

    ping = lists(AsyncSystem.ping)
    varz = lists(AsyncSystem.varz)
    healthz = lists(AsyncSystem.healthz)
    connz = lists(AsyncSystem.connz)
    subsz = lists(AsyncSystem.subsz)
    jsz = lists(AsyncSystem.jsz)
    accountz = lists(AsyncSystem.accountz)
    routez = lists(AsyncSystem.routez)
    gatewayz = lists(AsyncSystem.gatewayz)
    leafz = lists(AsyncSystem.leafz)
    account_info = lists(AsyncSystem.account_info)
    account_connz = lists(AsyncSystem.account_connz)
    account_jsz = lists(AsyncSystem.account_jsz)
    account_subsz = lists(AsyncSystem.account_subsz)
    account_statz = lists(AsyncSystem.account_statz)
