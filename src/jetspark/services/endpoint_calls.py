"""The calls of a service and of its groups that add endpoints and groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from jetspark.arguments import check_whole, checked
from jetspark.services.endpoint import (
    MAX_PENDING,
    Endpoint,
    EndpointOptions,
    Handler,
    Handling,
    handling_here,
)
from jetspark.services.rules import (
    check_endpoint_subject,
    check_group,
    check_queue_group,
    check_service_name,
    checked_metadata,
)

HandlerT = TypeVar("HandlerT", bound=Handler)
AnyT = TypeVar("AnyT")


class EndpointOwner(Protocol):
    """The service that the endpoints are for."""

    async def add(self, options: EndpointOptions, handling: Callable[[Endpoint], Handling]) -> None:
        """Add an endpoint and await that the server knows of it."""

    def add_nowait(
        self, options: EndpointOptions, handling: Callable[[Endpoint], Handling]
    ) -> None:
        """The same without waiting."""


@checked
class EndpointCalls:
    """Mixed into services and groups, whose prefix and queue group endpoints get."""

    _prefix: str
    _queue_group: str

    @property
    def prefix(self) -> str:
        """What stands before the subjects of endpoints that are added here."""
        return self._prefix

    @property
    def queue_group(self) -> str:
        """Theirs, unless they say otherwise; "" for none."""
        return self._queue_group

    @property
    def owner(self) -> EndpointOwner:
        """The service."""
        raise NotImplementedError

    async def add_endpoint(
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
        """Answer requests with a handler (plain or async); returns when the server knows of it.

        `subject`: what it listens on, below the group's; default: the name. It may have wildcards.
        `queue_group`: one instance of each group gets a request; default: that of the group or
        service, "" for none, so that every instance gets each request. `concurrency`: requests
        that are handled at once; by default one after the other. `max_pending`: requests that may
        wait; further ones are answered with error 503.

        Raises ConfigError, also for a second endpoint of the service with this subject and queue
        group, BadNameError, BadSubjectError, BadQueueError; PermissionsError when the server
        refuses the subject, RequestTimeoutError, ConnectionClosedError.
        """
        options = self.endpoint_options(
            name, subject, queue_group, metadata, concurrency, max_pending
        )
        await self.owner.add(options, handling_here(handler))

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

        `name`: default is the function's. When the server refuses the subject, the service stops:
        see `Service.wait_stopped`. Raises as `add_endpoint`.
        """
        owner = self.owner

        def add(options: EndpointOptions, handler: Handler) -> None:
            owner.add_nowait(options, handling_here(handler))

        return self.decorator(add, name, subject, queue_group, metadata, concurrency, max_pending)

    def add_group(self, name: str, *, queue_group: str | None = None) -> Group:
        """A group: what is added to it has `name` before its subject.

        `name`: one or more tokens, or "" for no prefix. `queue_group`: the default of its
        endpoints; None for that of the group or service above, "" for none. Raises BadSubjectError,
        ConfigError, BadQueueError.
        """
        prefix = check_group(self._prefix, name)
        return Group(self.owner, prefix, self._queue_group_of(queue_group))

    # -- for both clients --------------------------------------------------------------------------

    def endpoint_options(
        self,
        name: str,
        subject: str | None,
        queue_group: str | None,
        metadata: Mapping[str, str] | None,
        concurrency: int,
        max_pending: int,
    ) -> EndpointOptions:
        """The checked options of an endpoint in this group."""
        check_service_name("endpoint", name)
        check_whole("concurrency", concurrency)
        check_whole("max_pending", max_pending)
        return EndpointOptions(
            name=name,
            subject=check_endpoint_subject(self._prefix, name if subject is None else subject),
            queue_group=self._queue_group_of(queue_group),
            concurrency=concurrency,
            max_pending=max_pending,
            metadata=checked_metadata(metadata),
        )

    def decorator(
        self,
        add: Callable[[EndpointOptions, Any], None],
        name: str | None,
        subject: str | None,
        queue_group: str | None,
        metadata: Mapping[str, str] | None,
        concurrency: int,
        max_pending: int,
    ) -> Callable[[AnyT], AnyT]:
        """Gives `add` what it decorates, and returns it."""

        def decorate(handler: AnyT) -> AnyT:
            called = name if name is not None else getattr(handler, "__name__", "")
            options = self.endpoint_options(
                called, subject, queue_group, metadata, concurrency, max_pending
            )
            add(options, handler)
            return handler

        return decorate

    def _queue_group_of(self, queue_group: str | None) -> str:
        return self._queue_group if queue_group is None else check_queue_group(queue_group)


class Group(EndpointCalls):
    """A prefix that endpoints of a service share; made by `add_group`."""

    def __init__(self, service: EndpointOwner, prefix: str, queue_group: str) -> None:
        self._owner = service
        self._prefix = prefix
        self._queue_group = queue_group

    @property
    def owner(self) -> EndpointOwner:
        return self._owner

    def __repr__(self) -> str:
        return f"Group({self._prefix!r})"
