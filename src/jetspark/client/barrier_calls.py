"""The call of a client that waits for callbacks."""

from __future__ import annotations

import asyncio
from typing import Final

from jetspark.arguments import checked
from jetspark.client.frame_reader import FrameReader
from jetspark.client.reading import Reading
from jetspark.client.request_calls import seconds_of
from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, ConnectionClosedError, RequestTimeoutError
from jetspark.timestamps import Seconds

DRAIN_TIMEOUT: Final = 30.0


@checked
class BarrierCalls:
    """Mixed into the client."""

    options: ConnectOptions
    _subscriptions: set[Reading]

    def check_loop(self) -> None:
        """Raises ConfigError in another event loop or thread than the client's."""
        raise NotImplementedError

    def require_open(self) -> None:
        """Raises ConnectionClosedError when the client is closed."""
        raise NotImplementedError

    async def barrier(self, timeout: Seconds = DRAIN_TIMEOUT) -> None:
        """Return when callbacks have handled all messages that this client has received before.

        Those of subscriptions and consumers; iterators are not waited for. After `flush` these are
        all messages that the server had sent by then. `timeout`: seconds. Raises
        RequestTimeoutError, ConfigError in a callback, which it would wait for,
        ConnectionClosedError, also when the client is closed meanwhile, BadTimeoutError,
        BadTimeError.
        """
        self.check_loop()
        self.require_open()
        seconds = seconds_of(timeout, self.options)
        readers = [each for each in self._subscriptions if isinstance(each, FrameReader)]
        task = asyncio.current_task()
        if task is not None and any(reader.callback_task is task for reader in readers):
            raise in_its_own_callback()
        waiting = [handled for each in readers if (handled := each.handled()) is not None]
        if not waiting:
            return
        done, late = await asyncio.wait(waiting, timeout=seconds)
        if late:
            raise RequestTimeoutError(
                f"{len(late)} callbacks had not handled their messages after {seconds:g} s."
            )
        if not all(each.result() for each in done):
            raise ConnectionClosedError("The connection was closed before all was handled.")


def in_its_own_callback() -> ConfigError:
    """For a callback that calls `barrier`."""
    return ConfigError(
        "A callback cannot wait for a barrier, which waits for it: call barrier in another task "
        "or thread."
    )
