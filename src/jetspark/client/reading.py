"""Protocols of a source of messages and of its client, as each uses the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from jetspark.client.hooking import Hooking
from jetspark.client.messages import Sender
from jetspark.timestamps import Seconds


class Reading(Protocol):
    """A source of messages, which ends with the client."""

    async def drain(self, timeout: Seconds | None = None) -> None:
        """Stop the deliveries, and receive all messages in flight."""

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        """This task drains the client, so it takes no messages; whether it runs the callback."""

    def abandon(self) -> asyncio.Task[None] | None:
        """The connection is closed: a callback gets no more items, and is cancelled if it runs.

        Returns the cancelled task, unless it is the caller's.
        """


class ReadingClient(Sender, Protocol):
    """What a source of messages needs of its client."""

    loop: asyncio.AbstractEventLoop
    hooking: Hooking

    def adopt(
        self, reading: Reading, end: Callable[[], None] | None = None
    ) -> Callable[[], object]:
        """Drain it in `drain` and abandon it in `close`, until the returned function is called.

        With `end` it is not kept alive: when nothing else refers to it, `end` is called in the
        event loop. That must not refer to it either.
        """

    def check_loop(self) -> None:
        """Raises ConfigError in another event loop or thread than the client's."""

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Return when the server has processed everything sent before."""
