"""For what a server does after it has answered: acknowledgements are such a thing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def eventually(holds: Callable[[], object], *, within: float = 20.0) -> None:
    """Returns when it holds; asks every 10 ms."""
    async with asyncio.timeout(within):
        while not (await now if isinstance(now := holds(), Awaitable) else now):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the server tells nobody when it is so far
