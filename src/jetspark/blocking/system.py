"""The system account without async."""

from __future__ import annotations

from jetspark.blocking.iterators import Listing
from jetspark.blocking.twin import Twin, awaits, makes, twin_of
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
    raftz = makes(AsyncSystem.raftz, Listing)
    account_info = makes(AsyncSystem.account_info, Listing)
    account_connz = makes(AsyncSystem.account_connz, Listing)
    account_jsz = makes(AsyncSystem.account_jsz, Listing)
    account_subsz = makes(AsyncSystem.account_subsz, Listing)
    account_statz = makes(AsyncSystem.account_statz, Listing)
    reload = awaits(AsyncSystem.reload)
    kick_client = awaits(AsyncSystem.kick_client)
    send_lame_duck = awaits(AsyncSystem.send_lame_duck)
    step_down_meta_leader = awaits(AsyncSystem.step_down_meta_leader)
    evacuate_server = awaits(AsyncSystem.evacuate_server)
    remove_server = awaits(AsyncSystem.remove_server)
    rescue_meta = awaits(AsyncSystem.rescue_meta)
    purge_account = awaits(AsyncSystem.purge_account)
