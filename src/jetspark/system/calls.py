"""The call of a client for its system account."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from jetspark.arguments import checked
from jetspark.system.system import STALL, TIMEOUT, System
from jetspark.timestamps import Seconds

if TYPE_CHECKING:
    from jetspark.client.client import Client


@checked
class SystemCalls:
    """Mixed into the client."""

    def system(self, *, timeout: Seconds = TIMEOUT, stall: Seconds = STALL) -> System:
        """Look at servers and accounts, as a user of the system account.

        `timeout`: seconds that a list waits for answers at most; `stall`: seconds after the last
        answer until it ends. Nothing is sent. Raises BadTimeError.
        """
        return System(cast("Client", self), timeout, stall)
