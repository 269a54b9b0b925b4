"""Retrying the steps of a transfer while the server is away, until nothing gets on any more."""

from __future__ import annotations

import asyncio
from typing import Final

from jetspark.errors import JetsparkError
from jetspark.transient import FULL, is_transient_for_client

WAIT: Final = 0.25
"""Seconds between two attempts."""

LONGEST: Final = 30.0
"""Seconds without progress after which a transfer fails."""


class TransferRetry:
    """One for each transfer: `await retry.wait(error)` between two attempts."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: float | None = None

    def progress(self) -> None:
        """An attempt has succeeded: restart the time."""
        self._since = None

    async def wait(self, error: JetsparkError) -> None:
        """Raises the error when it is not transient, or LONGEST has passed without progress."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        # A server without storage refuses at once: the caller should hear of it.
        if not is_transient_for_client(error, but=FULL) or now - self._since > LONGEST:
            raise error
        await asyncio.sleep(WAIT)
