"""Tasks that wait for something to change."""

from __future__ import annotations

import asyncio


class Waiters(list["asyncio.Future[None]"]):
    """False while no task waits: for each message the read loop checks this, without a call."""

    __slots__ = ()

    async def wait(self) -> None:
        """Return at the next `wake`."""
        waiter = asyncio.get_running_loop().create_future()
        self.append(waiter)
        await waiter

    def wake(self) -> None:
        """Let all who wait look again."""
        waiters = self[:]
        self.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
