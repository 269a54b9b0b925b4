"""The system account without async."""

from __future__ import annotations

from jetspark.blocking.iterators import Listing
from jetspark.blocking.twin import Twin, makes, twin_of
from jetspark.system.system import System as AsyncSystem

__all__ = ["System"]


@twin_of(AsyncSystem)
class System(Twin):
    ping = makes(AsyncSystem.ping, Listing)
    varz = makes(AsyncSystem.varz, Listing)
    healthz = makes(AsyncSystem.healthz, Listing)
    connz = makes(AsyncSystem.connz, Listing)
    subsz = makes(AsyncSystem.subsz, Listing)
    jsz = makes(AsyncSystem.jsz, Listing)
    accountz = makes(AsyncSystem.accountz, Listing)
    routez = makes(AsyncSystem.routez, Listing)
    gatewayz = makes(AsyncSystem.gatewayz, Listing)
    leafz = makes(AsyncSystem.leafz, Listing)
    account_info = makes(AsyncSystem.account_info, Listing)
    account_connz = makes(AsyncSystem.account_connz, Listing)
    account_jsz = makes(AsyncSystem.account_jsz, Listing)
    account_subsz = makes(AsyncSystem.account_subsz, Listing)
    account_statz = makes(AsyncSystem.account_statz, Listing)
