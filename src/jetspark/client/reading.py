"""What gives out messages, and the client that it belongs to, as they see each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from jetspark.client.messages import Sender
from jetspark.timestamps import Seconds


class Reading(Protocol):
    """What gives out messages, and ends with the client."""

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Let the server send no more, and take all that is on its way."""

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        """This task drains the client, so it takes no messages; whether it runs the callback."""

    def abandon(self) -> asyncio.Task[None] | None:
        """The connection is closed: a callback gets no more, and one that runs is cancelled.

        Returns the task that then ends, when that is not the caller's.
        """


class ReadingClient(Sender, Protocol):
    """What a reading needs of its client."""

    loop: asyncio.AbstractEventLoop

    def adopt(self, reading: Reading) -> Callable[[], None]:
        """Drain it in `drain` and abandon it in `close`, until the returned function is called."""

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Return when the server has taken all that was sent before."""
