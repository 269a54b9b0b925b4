"""A service (ADR-32): endpoints under one name, which any client can find and watch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeAlias

from jetspark.arguments import checked_but
from jetspark.client.client import Client
from jetspark.errors import ConfigError, user_error
from jetspark.services.documents import EndpointStats, ServiceInfo, ServicePing, ServiceStats
from jetspark.services.endpoint import Endpoint, EndpointOptions, Handling
from jetspark.services.endpoint_calls import EndpointCalls
from jetspark.services.protocol import encode_answer, new_id
from jetspark.services.rules import (
    check_queue_group,
    check_service_name,
    check_version,
    checked_metadata,
)
from jetspark.services.running import Running
from jetspark.timestamps import Seconds
from jetspark.wire.documents import encode_document
from jetspark.wire.service_api import Verb, verb_subjects

STOP_TIMEOUT: Final = 30.0

StatsHandler: TypeAlias = Callable[[EndpointStats], Any]
"""Adds `data` to the statistics of an endpoint."""


@checked_but("add", "add_nowait")
class Service(EndpointCalls):
    """One instance of a service; made by `Client.add_service`.

    `async with` stops it when the block is left.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        version: str,
        description: str,
        metadata: Mapping[str, str] | None,
        queue_group: str,
        stats_handler: StatsHandler | None,
    ) -> None:
        self._client = client
        self._name = check_service_name("service", name)
        self._version = check_version(version)
        self._description = description
        self._metadata = checked_metadata(metadata)
        self._prefix = ""
        self._queue_group = check_queue_group(queue_group)
        if inspect.iscoroutinefunction(stats_handler):
            raise ConfigError("stats_handler is a plain function, not an async one.")
        self._stats_handler = stats_handler
        self._id = new_id()
        self._started = datetime.now(UTC)
        self.running = Running(client, f"service {name!r}")

    @property
    def owner(self) -> Service:
        return self

    # -- what it is ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Shared by all instances of the service."""
        return self._name

    @property
    def id(self) -> str:
        """Of this instance."""
        return self._id

    @property
    def version(self) -> str:
        """Its semantic version."""
        return self._version

    @property
    def description(self) -> str:
        """What it is for."""
        return self._description

    @property
    def metadata(self) -> Mapping[str, str]:
        """What else it says of itself; read-only."""
        return MappingProxyType(self._metadata)

    @property
    def active(self) -> bool:
        """Whether it has not ended yet."""
        return not self.running.ended

    def info(self) -> ServiceInfo:
        """What it answers to INFO."""
        return ServiceInfo(
            **self._identity(Verb.INFO),
            description=self._description,
            endpoints=[endpoint.info() for endpoint in self.running.endpoints],
        )

    def stats(self) -> ServiceStats:
        """What it answers to STATS. An exception of the `stats_handler` is reported."""
        return ServiceStats(
            **self._identity(Verb.STATS),
            started=self._started,
            endpoints=[self._with_data(endpoint.stats()) for endpoint in self.running.endpoints],
        )

    def reset(self) -> None:
        """Begin all statistics again, as if it had just been started."""
        self._started = datetime.now(UTC)
        for endpoint in self.running.endpoints:
            endpoint.answering.tally.reset()

    def _identity(self, verb: Verb) -> dict[str, Any]:
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
            what = f"The stats_handler of service {self._name!r}"
            self._client.report(user_error(what, error))
            return stats
        return stats.replace(data=data)

    # -- life ----------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Listen for what is asked of services. Raises as `Client.add_service`."""
        answers: dict[Verb, Callable[[], bytes]] = {
            Verb.PING: lambda: encode_answer(ServicePing(**self._identity(Verb.PING))),
            Verb.INFO: lambda: encode_answer(self.info()),
            Verb.STATS: lambda: encode_answer(self.stats()),
        }
        await self.running.begin(
            {
                subject: answer
                for verb, answer in answers.items()
                for subject in verb_subjects(verb, self._name, self._id)
            }
        )

    async def add(self, options: EndpointOptions, handling: Callable[[Endpoint], Handling]) -> None:
        """Add an endpoint and await that the server knows of it. Raises as `add_endpoint`."""
        endpoint = self._made(options, handling)
        listener = self.running.add(endpoint, confirming=True)
        await self.running.confirm_endpoint(endpoint, listener)

    def add_nowait(
        self, options: EndpointOptions, handling: Callable[[Endpoint], Handling]
    ) -> None:
        """The same without waiting."""
        self.running.add(self._made(options, handling))

    def _made(self, options: EndpointOptions, handling: Callable[[Endpoint], Handling]) -> Endpoint:
        if self.running.ended:
            self._client.require_open()
            raise ConfigError(f"Service {self._name!r} has stopped: it takes no more endpoints.")
        for other in self.running.endpoints:
            known = other.options
            if (known.subject, known.queue_group) == (options.subject, options.queue_group):
                group = f"in queue group {known.queue_group!r}" if known.queue_group else "already"
                raise ConfigError(
                    f"Endpoint {known.name!r} of service {self._name!r} listens on "
                    f"{known.subject!r} {group}: give this one another subject or queue group."
                )
        what = f"endpoint {options.name!r} of service {self._name!r}"
        return Endpoint(self._client, options, what, handling)

    async def stop(self, timeout: Seconds = STOP_TIMEOUT) -> None:
        """Take no more requests, finish those that have come, and end. May be called again.

        `timeout` in seconds: requests that are not finished by then are cancelled and answered with
        error 503, and RequestTimeoutError is raised. A second call waits for the first and raises
        the same. Awaited in a handler, for which it would have to wait, it returns at once and
        continues in the background. Raises BadTimeoutError, BadTimeError.
        """
        await self.running.stop(timeout)

    async def wait_stopped(self) -> None:
        """Return when it has been stopped, or when the connection was closed.

        Raises what ended it otherwise: ConnectionLostError, or PermissionsError when the server
        refused one of its subjects later.
        """
        await self.running.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"Service({self._name!r}, {self._version!r}, id={self._id!r})"
