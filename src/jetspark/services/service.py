"""A service (ADR-32): endpoints under one name, which any client can find and watch."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias, TypedDict, TypeVar, Unpack

import jetspark.errors as errors
from jetspark.client.client import CoreClient, seconds_of
from jetspark.client.subscription import Listener, closed_on_purpose
from jetspark.client.tasks import background, start_task
from jetspark.services.discovery import Services
from jetspark.services.endpoint import (
    FAILED,
    MAX_PENDING,
    Endpoint,
    EndpointOptions,
    EndpointSettings,
    Handler,
    Handling,
    handling_here,
    shown_error,
)
from jetspark.services.protocol import (
    DEFAULT_QUEUE_GROUP,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    check_endpoint_subject,
    check_group,
    check_service_name,
    check_version,
    checked_metadata,
    encode_answer,
    error_headers,
)
from jetspark.subjects import check_queue, new_nuid
from jetspark.timestamps import Seconds
from jetspark.validation import check_text, check_whole
from jetspark.wire.documents import encode_document
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.service_api import DEFAULT_PREFIX, ServiceVerb, verb_subjects

STOP_TIMEOUT: Final = 30.0
_CLEANING_UP: Final = 1.0
"""Seconds for cancelled handlers to end."""

HandlerT = TypeVar("HandlerT", bound=Handler)
AnyT = TypeVar("AnyT")
StatsHandler: TypeAlias = Callable[[EndpointStats], Any]
"""Returns the `data` for the statistics of an endpoint."""


class EndpointCalls:
    """The calls of services and groups: adding endpoints and groups."""

    _prefix: str
    _queue_group: str
    running: Running

    @property
    def prefix(self) -> str:
        """The start of its endpoints' subjects."""
        return self._prefix

    @property
    def queue_group(self) -> str:
        """The default of its endpoints; "": none."""
        return self._queue_group

    async def add_endpoint(
        self, name: str, handler: Handler, **options: Unpack[EndpointSettings]
    ) -> None:
        """Answer requests with a handler (plain or async); returns when the server knows it.

        `subject`: its subject below the group's prefix, perhaps with wildcards; default: the name.
        `queue_group`: one instance of each group gets a request; default: the one of the group or
        service; "": every instance gets each request. `concurrency`: requests handled at once; by
        default one. `max_pending`: requests that may wait, by default 65,536; others get error 503.

        Raises ConfigError for a second endpoint of the service with this subject and queue group,
        ClosedError when the service has stopped, PermissionsError when the server refuses the
        subject, RequestTimeoutError, ConnectionClosedError.
        """
        checked = self.endpoint_options(name, **options)
        await self.running.add(checked, handling_here(handler))

    def endpoint(
        self, name: str | None = None, **options: Unpack[EndpointSettings]
    ) -> Callable[[HandlerT], HandlerT]:
        """`add_endpoint` as a decorator, without waiting: `@service.endpoint()`.

        `name`: default: the function's. When the server refuses the subject, the service stops:
        see `Service.wait_stopped`.
        """

        def add(checked: EndpointOptions, handler: Handler) -> None:
            self.running.add_nowait(checked, handling_here(handler))

        return self.decorator(add, name, **options)

    def add_group(self, name: str, *, queue_group: str | None = None) -> Group:
        """A group of endpoints whose subjects begin with the tokens of `name` ("": no prefix).

        `queue_group`: the default of its endpoints; None: as in the group or service above; "":
        none.
        """
        prefix = check_group(self._prefix, name)
        return Group(self.running, prefix, self._queue_group_of(queue_group))

    # -- for both clients --------------------------------------------------------------------------

    def endpoint_options(
        self,
        name: str,
        *,
        subject: str | None = None,
        queue_group: str | None = None,
        metadata: Mapping[str, str] | None = None,
        concurrency: int = 1,
        max_pending: int = MAX_PENDING,
    ) -> EndpointOptions:
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
        **options: Unpack[EndpointSettings],
    ) -> Callable[[AnyT], AnyT]:
        def decorate(handler: AnyT) -> AnyT:
            called = name if name is not None else getattr(handler, "__name__", "")
            add(self.endpoint_options(called, **options), handler)
            return handler

        return decorate

    def _queue_group_of(self, queue_group: str | None) -> str:
        if queue_group is None:
            return self._queue_group
        check_queue(queue_group)
        return queue_group


class Group(EndpointCalls):
    """A prefix that endpoints of a service share; created by `add_group`.

    Example:
        ```python
        service = await nc.add_service("shop", "1.0.0")
        shelf = service.add_group("shelf")

        @shelf.endpoint()  # answers shelf.take
        async def take(request):
            await request.respond(b"taken")

        print((await nc.services().request("shelf.take", b"apples")).data)  # b'taken'
        ```
    """

    def __init__(self, running: Running, prefix: str, queue_group: str) -> None:
        self.running = running
        self._prefix = prefix
        self._queue_group = queue_group

    def __repr__(self) -> str:
        return f"Group({self._prefix!r})"


class Running:
    """The life of a service on its connection: its subscriptions, and its end.

    It ends with `stop`, with the client's drain or close, when the connection is lost for good, and
    when the server refuses a subject later than the call that added it. `stop` takes the requests
    on their way, lets the handlers finish, and answers the rest with an error. `label`: the
    service, for messages.
    """

    def __init__(self, client: CoreClient, label: str) -> None:
        self.client = client
        self.label = label
        self.endpoints: list[Endpoint] = []
        self.ended = False
        self._error: errors.JetsparkError | None = None
        self._listeners: list[Listener] = []
        self._confirmed = False
        self._stopped = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._failing: asyncio.Task[None] | None = None
        self._release = client.adopt(self)

    def __repr__(self) -> str:
        return self.label

    async def begin(self, answers: Mapping[str, Callable[[], bytes]]) -> None:
        """Answer on these subjects; returns when the server knows them, or without a link.

        Raises PermissionsError, RequestTimeoutError, ConnectionClosedError, which end it.
        """
        try:
            for subject, answer in answers.items():
                on_frame = partial(self._answer, subject, answer)
                listener = self.client.listen(subject, on_frame, on_end=self._lost)
                self._listeners.append(listener)
            await self._check_open()
            if self._error is not None:
                raise self._error
        except BaseException:
            self._end(None)
            raise
        self._confirmed = True

    def _answer(self, subject: str, answer: Callable[[], bytes], frame: MessageFrame) -> None:
        if (reply := frame.reply) is None:
            return
        publishing = self.client.publishing
        try:
            publishing.answer(reply, answer(), None)
        except errors.JetsparkError as error:
            self.client.report(errors.user_error(f"Answering on {subject!r}", error))
            with suppress(errors.JetsparkError):  # reported above
                publishing.answer(reply, b"", error_headers(FAILED, shown_error(error)))

    def add_nowait(
        self, options: EndpointOptions, handling: Callable[[Endpoint], Handling]
    ) -> None:
        """Listen for an endpoint's requests; a refusal of the subject stops the service."""
        self._listen(self._new(options, handling), self._lost)

    def _new(self, options: EndpointOptions, handling: Callable[[Endpoint], Handling]) -> Endpoint:
        label = self.label
        if self.ended:
            self.client.require_open()
            raise errors.ClosedError(
                f"Service{label.removeprefix('service')} has stopped: it takes no more endpoints."
            )
        for endpoint in self.endpoints:
            existing = endpoint.options
            if (existing.subject, existing.queue_group) == (options.subject, options.queue_group):
                queue = existing.queue_group
                group = f"in queue group {queue!r}" if queue else "already"
                raise errors.ConfigError(
                    f"Endpoint {existing.name!r} of {label} listens on "
                    f"{existing.subject!r} {group}: give this one another subject or queue group."
                )
        return Endpoint(self.client, options, f"endpoint {options.name!r} of {label}", handling)

    def _listen(
        self, endpoint: Endpoint, on_end: Callable[[errors.JetsparkError | None], None]
    ) -> Listener:
        options = endpoint.options
        listener = self.client.listen(
            options.subject,
            endpoint.on_frame,
            queue=options.queue_group or None,
            on_run=endpoint.on_run,
            on_end=on_end,
        )
        self._listeners.append(listener)
        self.endpoints.append(endpoint)
        return listener

    async def add(self, options: EndpointOptions, handling: Callable[[Endpoint], Handling]) -> None:
        """Listen for an endpoint's requests; returns when the server knows the subject.

        Raises the errors of `begin`; the service continues without the endpoint.
        """
        endpoint = self._new(options, handling)
        listener = self._listen(endpoint, partial(self._on_refused, endpoint))
        try:
            await self._check_open()
            if endpoint.error is not None:
                raise endpoint.error
        except BaseException:
            listener.close()
            self._listeners.remove(listener)
            self.endpoints.remove(endpoint)
            endpoint.give_up()
            endpoint.close()
            raise

    async def _check_open(self) -> None:
        if self.client.is_connected:
            with suppress(errors.ConnectionClosedError):  # perhaps only the link was lost
                await self.client.rtt()
        self.client.require_open()

    def _on_refused(self, endpoint: Endpoint, error: errors.JetsparkError | None) -> None:
        if isinstance(error, errors.ConnectionClosedError):
            self._lost(error)
        elif endpoint.error is None:
            endpoint.error = error

    def _lost(self, error: errors.JetsparkError | None) -> None:
        if self.ended or self._error is not None:
            return
        if isinstance(error, errors.ConnectionClosedError):
            self._error = None if closed_on_purpose(error) else error
            for endpoint in self.endpoints:
                endpoint.frames.clear()
            self._end(self._error)
        else:
            self._error = error
            if self._confirmed:
                self._failing = background(
                    self.stop(None), f"Stopping {self.label}", self.client.report
                )

    # -- ending ----------------------------------------------------------------------------------

    async def wait(self) -> None:
        await self._stopped.wait()
        if self._error is not None:
            raise copy(self._error)

    async def stop(self, timeout: Seconds | None) -> None:
        seconds = seconds_of(timeout, self.client.options)
        if self.ended:
            return
        if self._stopping is None:
            self._stopping = start_task(self._stop(seconds))
            self._stopping.add_done_callback(_seen)
        if self.left_by(asyncio.current_task()):
            return
        await asyncio.shield(self._stopping)  # others may also wait for it

    async def _stop(self, timeout: float) -> None:
        loop = self.client.loop
        deadline = loop.time() + timeout
        try:
            for listener in self._listeners:
                listener.stop()
            with suppress(
                errors.ConnectionClosedError, errors.RequestTimeoutError
            ):  # nothing more comes
                if self.client.is_connected:
                    await self.client.rtt(timeout)
            for listener in self._listeners:
                listener.close()
            for endpoint in self.endpoints:
                endpoint.end()
            while (tasks := self._tasks()) and (left := deadline - loop.time()) > 0:
                await asyncio.wait(tasks, timeout=left)
            if unfinished := sum(endpoint.give_up() for endpoint in self.endpoints):
                if tasks:
                    await asyncio.wait(tasks, timeout=_CLEANING_UP)
                raise errors.RequestTimeoutError(
                    f"{unfinished} requests of {self.label} were not finished within "
                    f"{timeout:g} s: they were answered with errors 503 (not begun) and 500 "
                    "(begun)."
                )
        finally:
            self._end(self._error)

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {task for endpoint in self.endpoints for task in endpoint.workers.tasks}

    def _end(self, error: errors.JetsparkError | None) -> None:
        if self.ended:
            return
        self.ended = True
        self._error = error
        for listener in self._listeners:
            listener.close()
        for endpoint in self.endpoints:
            endpoint.end()
            endpoint.close()
        self._stopped.set()
        # Handlers that still run are cancelled when the client is closed.
        for task in self._tasks():
            task.add_done_callback(lambda _: self._leave())
        self._leave()

    def _leave(self) -> None:
        if not self._tasks():
            self._release()

    # -- called by the client: see `Reading` -----------------------------------------------------

    async def drain(self, timeout: Seconds | None = None) -> None:
        await self.stop(timeout)

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        return any(task in endpoint.workers.tasks for endpoint in self.endpoints)

    def abandon(self) -> asyncio.Task[None] | None:
        tasks = {task for endpoint in self.endpoints for task in endpoint.abandon()}
        self._end(self._error)

        async def all_of() -> None:
            await asyncio.wait(tasks)

        return start_task(all_of()) if tasks else None


def _seen(task: asyncio.Task[None]) -> None:
    """Mark the error as retrieved, since nobody may wait for the service to stop."""
    if not task.cancelled():
        task.exception()


class ServiceOptions(TypedDict, total=False):
    """Options of `add_service`, for type checkers."""

    description: str
    metadata: Mapping[str, str] | None
    queue_group: str
    stats_handler: StatsHandler | None


class Service(EndpointCalls):
    """One instance of a service, created by `Client.add_service`.

    The end of its block stops it.

    Example:
        ```python
        service = await nc.add_service("till", "1.0.0", description="Adds up")

        @service.endpoint(subject="till.total")
        async def total(request):
            await request.respond_json(sum(request.json(list[float])))

        print(await nc.services().request_json("till.total", [1.2, 3]))  # 4.2
        ```
    """

    def __init__(
        self,
        client: CoreClient,
        name: str,
        version: str,
        *,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue_group: str = DEFAULT_QUEUE_GROUP,
        stats_handler: StatsHandler | None = None,
    ) -> None:
        self._client = client
        self._name = check_service_name("service", name)
        self._version = check_version(version)
        self._description = check_text("description", description)
        self._metadata = checked_metadata(metadata)
        self._prefix = ""
        check_queue(queue_group)
        self._queue_group = queue_group
        if inspect.iscoroutinefunction(stats_handler):
            raise errors.ConfigError("stats_handler is a plain function, not an async one.")
        self._stats_handler = stats_handler
        self._id = new_nuid()
        self._started = datetime.now(UTC)
        self.running = Running(client, f"service {name!r}")

    @property
    def name(self) -> str:
        """The name, shared by all instances of the service."""
        return self._name

    @property
    def id(self) -> str:
        """The id of this instance."""
        return self._id

    @property
    def version(self) -> str:
        """The service's semantic version."""
        return self._version

    @property
    def description(self) -> str:
        """The service's description, for people."""
        return self._description

    @property
    def metadata(self) -> Mapping[str, str]:
        """The service's metadata; read-only."""
        return MappingProxyType(self._metadata)

    @property
    def active(self) -> bool:
        """True until the service has ended."""
        return not self.running.ended

    def info(self) -> ServiceInfo:
        """The service's answer to INFO."""
        return ServiceInfo(
            **self._identity(ServiceVerb.INFO),
            description=self._description,
            endpoints=[endpoint.info() for endpoint in self.running.endpoints],
        )

    def stats(self) -> ServiceStats:
        """The service's answer to STATS. An exception of the `stats_handler` is reported."""
        return ServiceStats(
            **self._identity(ServiceVerb.STATS),
            started=self._started,
            endpoints=[self._with_data(endpoint.stats()) for endpoint in self.running.endpoints],
        )

    def reset(self) -> None:
        """Restart all statistics."""
        self._started = datetime.now(UTC)
        for endpoint in self.running.endpoints:
            endpoint.answering.tally.reset()

    def _identity(self, verb: ServiceVerb) -> dict[str, Any]:
        return {
            "type": verb.type,
            "name": self._name,
            "id": self._id,
            "version": self._version,
            "metadata": dict(self._metadata),
        }

    def _with_data(self, stats: EndpointStats) -> EndpointStats:
        if self._stats_handler is None:
            return stats
        try:
            data = self._stats_handler(stats)
            encode_document(data)
        except Exception as error:
            source = f"The stats_handler of service {self._name!r}"
            self._client.report(errors.user_error(source, error))
            return stats
        return stats.replace(data=data)

    async def begin(self) -> None:
        answers: dict[ServiceVerb, Callable[[], bytes]] = {
            ServiceVerb.PING: lambda: encode_answer(
                ServicePing(**self._identity(ServiceVerb.PING))
            ),
            ServiceVerb.INFO: lambda: encode_answer(self.info()),
            ServiceVerb.STATS: lambda: encode_answer(self.stats()),
        }
        await self.running.begin(
            {
                subject: answer
                for verb, answer in answers.items()
                for subject in verb_subjects(verb, self._name, self._id)
            }
        )

    async def stop(self, timeout: Seconds = STOP_TIMEOUT) -> None:
        """Take no more requests, finish those that have come, and end. May be called again.

        After `timeout` seconds it cancels unfinished requests, answers them with an error, and
        raises RequestTimeoutError. A second call waits for the first and raises the same error. In
        a handler, which would wait for itself, it returns at once and continues in the background.
        """
        await self.running.stop(timeout)

    async def wait_stopped(self) -> None:
        """Wait until it is stopped, or the connection is closed.

        Raises any other error that ends it: ConnectionLostError, or PermissionsError when the
        server refuses a subject later.
        """
        await self.running.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"Service({self._name!r}, {self._version!r}, id={self._id!r})"


class ServiceCalls(CoreClient):
    """A client with services."""

    async def add_service(
        self, name: str, version: str, **options: Unpack[ServiceOptions]
    ) -> Service:
        """Start an instance of a service, which others find; then add endpoints to it.

        `name`: letters, digits, - and _, shared by all instances. `version`: a semantic version.
        `queue_group`: the default of its endpoints, "q"; "": none. `stats_handler`: a plain
        function that returns the `data` (JSON) for an endpoint's EndpointStats.

        Raises BadNameError, ConfigError, BadQueueError; PermissionsError when the server refuses
        the subjects below $SRV, RequestTimeoutError, ConnectionClosedError.

        Example:
            ```python
            async def total(request):
                await request.respond_json(sum(request.json(list[float])))

            async with await nc.add_service("till", "1.0.0") as service:
                await service.add_endpoint("total", total, subject="till.total")
                print((await nc.request("till.total", b"[1.2, 3]")).data)  # b'4.2'
            ```
        """
        service = Service(self, name, version, **options)
        await service.begin()
        return service

    def services(self, *, prefix: str = DEFAULT_PREFIX) -> Services:
        """Find services, inspect them, and call them. Sends nothing.

        `prefix`: where the services of another account are imported to.

        Example:
            ```python
            for instance in await nc.services().ping().all():
                print(instance.name, instance.version, instance.rtt)
            ```
        """
        return Services(self, prefix)
