# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: service."""

from __future__ import annotations

from collections.abc import Mapping

from jetspark.blocking.loop_thread import LoopThread
from jetspark.services.protocol import ServiceInfo, ServiceStats
from jetspark.services.service import STOP_TIMEOUT
from jetspark.services.service import Service as AsyncService
from jetspark.timestamps import Seconds


class GeneratedService:
    """The calls of `Service` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncService

    @property
    def name(self) -> str:
        """Shared by all instances of the service."""
        return self._inner.name

    @property
    def id(self) -> str:
        """Of this instance."""
        return self._inner.id

    @property
    def version(self) -> str:
        """Its semantic version."""
        return self._inner.version

    @property
    def description(self) -> str:
        """Its description, for people."""
        return self._inner.description

    @property
    def metadata(self) -> Mapping[str, str]:
        """Its metadata; read-only."""
        return self._inner.metadata

    @property
    def active(self) -> bool:
        """Whether it has not ended yet."""
        return self._inner.active

    def info(self) -> ServiceInfo:
        """What it answers to INFO."""
        return self._thread.call(self._inner.info)

    def stats(self) -> ServiceStats:
        """What it answers to STATS. An exception of the `stats_handler` is reported."""
        return self._thread.call(self._inner.stats)

    def reset(self) -> None:
        """Restart all statistics."""
        self._thread.call(self._inner.reset)

    def stop(self, timeout: Seconds = STOP_TIMEOUT) -> None:
        """Take no more requests, finish those that have come, and end. May be called again.

        `timeout` in seconds: requests that are not finished by then are answered with an error, and
        RequestTimeoutError is raised. A second call waits for the first and raises the same. Called
        in a handler, for which it would have to wait, it returns at once and continues in the
        background.
        """
        raise NotImplementedError

    def wait_stopped(self) -> None:
        """Return when it is stopped, or the connection is closed.

        Raises what else ends it: ConnectionLostError, or PermissionsError when the server refuses
        a subject later.
        """
        self._thread.run(self._inner.wait_stopped)

    def __repr__(self) -> str:
        return repr(self._inner)
