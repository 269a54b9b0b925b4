"""Finding, inspecting and calling services (ADR-32)."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypedDict, TypeVar, Unpack, overload

from jetspark.client.client import (
    PENDING_BYTES_LIMIT,
    PENDING_MSGS_LIMIT,
    CoreClient,
    request_and_read,
)
from jetspark.client.listing import Listing
from jetspark.client.messages import Message, MessageView
from jetspark.documents.document import Moment, Span, from_wire
from jetspark.documents.events import Caller, Event
from jetspark.errors import JetsparkError, JetStreamError, NoRespondersError, RequestTimeoutError
from jetspark.jetstream.events import EventCallback, Events
from jetspark.payload_bytes import Payload
from jetspark.services.protocol import (
    VERB_OF,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    decode_answer,
    verb_subject,
)
from jetspark.subjects import check_publish_subject
from jetspark.timestamps import Seconds
from jetspark.validation import check_whole
from jetspark.wire.documents import decode_document, decode_json, encode_document
from jetspark.wire.headers import HeadersLike
from jetspark.wire.service_api import service_error

TIMEOUT: Final = 2.0
STALL: Final = 0.3

T = TypeVar("T")
AnswerT = TypeVar("AnswerT", ServicePing, ServiceInfo, ServiceStats)


class ListingLimits(TypedDict, total=False):
    """When a list of services ends, for type checkers."""

    timeout: Seconds
    stall: Seconds
    max_msgs: int


class Services:
    """The services within reach of a connection, returned by `Client.services`.

    `ping`, `info` and `stats` list the instances of all services, of those called `name`, or only
    the one with `name` and `id`: iterate the result, or call its `all()`. Each iteration asks anew.
    It ends `stall` seconds (0.3) after the last answer, after `max_msgs` answers (0: no limit), or
    after `timeout` seconds (2) in all. Without services the list is empty. An
    unreadable answer is reported and left out. Iterating raises ConnectionClosedError and
    PermissionsError.

    Example:
        ```python
        async with await nc.add_service("till", "1.0.0", description="Adds up"):
            async for info in nc.services().info("till"):
                print(info.name, info.description)  # till Adds up
        ```
    """

    def __init__(self, client: CoreClient, prefix: str) -> None:
        check_publish_subject(prefix, label="prefix")
        self._client = client
        self._prefix = prefix

    def ping(
        self, name: str | None = None, id: str | None = None, **limits: Unpack[ListingLimits]
    ) -> Listing[ServicePing]:
        """The instances, each with its `rtt` (see `Services`)."""
        return self._ask(ServicePing, name, id, **limits)

    def info(
        self, name: str | None = None, id: str | None = None, **limits: Unpack[ListingLimits]
    ) -> Listing[ServiceInfo]:
        """The instances with their endpoints (see `Services`)."""
        return self._ask(ServiceInfo, name, id, **limits)

    def stats(
        self, name: str | None = None, id: str | None = None, **limits: Unpack[ListingLimits]
    ) -> Listing[ServiceStats]:
        """The instances with their endpoints' statistics (see `Services`)."""
        return self._ask(ServiceStats, name, id, **limits)

    def latencies(self, subject: str, *, callback: EventCallback | None = None) -> Events:
        """The measurements of an export with `latency` (ADR-3), each a ServiceLatency.

        `subject`: where the export sends them. Iterate the result, or give a `callback`. Other
        messages are reported and left out.
        """
        return Events(
            self._client,
            [subject],
            lambda event: True,
            callback=callback,
            pending_msgs_limit=PENDING_MSGS_LIMIT,
            pending_bytes_limit=PENDING_BYTES_LIMIT,
            parse=parse_latency,
        )

    async def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """`Client.request` that raises ServiceError when the answer is an error."""
        return await request_and_read(
            self._client, subject, payload, answered, timeout=timeout, headers=headers
        )

    @overload
    async def request_json(
        self,
        subject: str,
        value: Any = None,
        *,
        type: builtins.type[T],
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> T: ...
    @overload
    async def request_json(
        self,
        subject: str,
        value: Any = None,
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Any: ...
    async def request_json(
        self,
        subject: str,
        value: Any = None,
        *,
        type: Any = Any,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Any:
        """`request` with a value as JSON, and the JSON of the answer as a `type`.

        A `value` of None sends no payload. `type`: a msgspec.Struct, a dataclass, list[int] and so
        on. Raises ConfigError for a value without a form in JSON, DocumentError for an answer of
        another type, and the errors of `request`.
        """
        payload = json_payload(value)
        reply = await self.request(subject, payload, timeout=timeout, headers=headers)
        return json_answer(subject, reply, type)

    def _ask(
        self,
        cls: type[AnswerT],
        name: str | None,
        id: str | None,
        timeout: Seconds = TIMEOUT,
        stall: Seconds = STALL,
        max_msgs: int = 0,
    ) -> Listing[AnswerT]:
        check_whole("max_msgs", max_msgs, 0)
        subject = verb_subject(VERB_OF[cls], name, id, self._prefix)
        if id is not None:
            max_msgs = 1
        client = self._client
        ask = partial(client.request_many, subject, timeout=timeout, stall=stall, max_msgs=max_msgs)
        ask()  # checks the arguments, and sends nothing

        async def answers() -> AsyncIterator[AnswerT]:
            start = client.loop.time()
            try:
                async with ask() as replies:
                    async for reply in replies:
                        rtt = timedelta(seconds=client.loop.time() - start)
                        if (answer := self._read(cls, reply, rtt)) is not None:
                            yield answer
            except NoRespondersError:
                return
            except RequestTimeoutError as error:
                if type(error) is not RequestTimeoutError:
                    raise

        return Listing(answers)

    def _read(self, cls: type[AnswerT], reply: Message, rtt: timedelta) -> AnswerT | None:
        try:
            answer = decode_answer(cls, answered(reply).data)
        except JetsparkError as error:
            self._client.report(
                JetsparkError(f"An answer to {VERB_OF[cls]} of services cannot be read. {error}")
            )
            return None
        return answer.replace(rtt=rtt) if isinstance(answer, ServicePing) else answer


MessageT = TypeVar("MessageT", bound=MessageView)


def answered(reply: MessageT) -> MessageT:
    """The answer. Raises ServiceError when it is an error."""
    if (error := service_error(reply.headers, reply.data)) is not None:
        raise error
    return reply


def json_payload(value: Any) -> bytes:
    """The JSON of a value; nothing for None. Raises ConfigError."""
    return b"" if value is None else encode_document(value)


def json_answer(subject: str, reply: MessageView, type: Any) -> Any:
    """The JSON of an answer as a type. Raises DocumentError."""
    return decode_json(reply.data, type, f"answer from {subject!r}")


LATENCY_TYPE: Final = "io.nats.server.metric.v1.service_latency"


class ServiceLatency(Event, frozen=True, kw_only=True):
    """The duration of one request, measured by the server of an export with `latency` (ADR-3)."""

    status: int
    """200; 400: not a valid request; 408: not answered in time; 503: no service."""
    description: str | None = None
    """The reason for a status other than 200."""
    requestor: Caller | None = None
    """The requester, with only its `rtt` unless its account shares more (`share` of the import)."""
    responder: Caller | None = None
    """The client that answered."""
    header: dict[str, list[str]] | None = None
    """Headers that caused the sample, when an export samples by headers."""
    start: Moment | None = None
    """When the requester sent it, from the server's clock and the round-trip time."""
    service: Span | None = None
    """Time in the service."""
    system: Span | None = None
    """Time in and between servers."""
    total: Span | None = None
    """Time from the requester and back."""


def parse_latency(data: bytes) -> ServiceLatency:
    raw = decode_document(data, "event")
    if (actual_type := raw.get("type")) != LATENCY_TYPE:
        raise JetStreamError(f"The event is not a service latency, but of type {actual_type!r}.")
    return from_wire(ServiceLatency, raw)
