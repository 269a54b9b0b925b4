# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: endpoint calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.services.handling import Handler, HandlerT
from jetspark.services.endpoint import MAX_PENDING, EndpointOptions
from jetspark.services.service import EndpointCalls as AsyncEndpointCalls


class GeneratedEndpointCalls:
    """The calls of `EndpointCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncEndpointCalls

    def _add(self, options: EndpointOptions, handler: Handler) -> None:
        raise NotImplementedError

    def _add_nowait(self, options: EndpointOptions, handler: Handler) -> None:
        raise NotImplementedError

    @property
    def prefix(self) -> str:
        """What stands before the subjects of its endpoints."""
        return self._inner.prefix

    @property
    def queue_group(self) -> str:
        """The default of its endpoints; "": none."""
        return self._inner.queue_group

    def add_endpoint(
        self,
        name: str,
        handler: Handler,
        *,
        subject: str | None = None,
        queue_group: str | None = None,
        metadata: Mapping[str, str] | None = None,
        concurrency: int = 1,
        max_pending: int = MAX_PENDING,
    ) -> None:
        """Answer requests with a handler in a thread; returns when the server knows of it.

        `subject`: what it listens on, below the group's prefix; default: the name. It may have
        wildcards. `queue_group`: one instance of each group gets a request; default: that of the
        group or service; "": every instance gets each request. `concurrency`: requests that are
        handled at once, each in a thread; by default one. `max_pending`: requests that may wait;
        others are answered with error 503.

        Raises ConfigError for a second endpoint of the service with this subject and queue group,
        PermissionsError when the server refuses the subject, RequestTimeoutError,
        ConnectionClosedError.
        """
        self._add(
            self._inner.endpoint_options(
                name, subject, queue_group, metadata, concurrency, max_pending
            ),
            handler,
        )

    def endpoint(
        self,
        name: str | None = None,
        *,
        subject: str | None = None,
        queue_group: str | None = None,
        metadata: Mapping[str, str] | None = None,
        concurrency: int = 1,
        max_pending: int = MAX_PENDING,
    ) -> Callable[[HandlerT], HandlerT]:
        """`add_endpoint` as a decorator, without waiting: `@service.endpoint()`.

        `name`: default: the function's. When the server refuses the subject, the service stops:
        see `Service.wait_stopped`.
        """
        return self._inner.decorator(
            self._add_nowait, name, subject, queue_group, metadata, concurrency, max_pending
        )
