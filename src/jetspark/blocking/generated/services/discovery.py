# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: discovery."""

from __future__ import annotations

from typing import Any

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.jetstream.events import EventCallback, Events
from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.messages import Message
from jetspark.payloads import Payload
from jetspark.services.discovery import STALL, TIMEOUT, answered, json_answer, json_payload
from jetspark.services.discovery import Services as AsyncServices
from jetspark.services.protocol import ServiceInfo, ServicePing, ServiceStats
from jetspark.timestamps import Seconds
from jetspark.wire.headers import HeadersLike


class GeneratedServices:
    """The calls of `Services` that hand on to its asyncio twin."""

    _thread: LoopThread
    _caller: CallerSide
    _inner: AsyncServices

    def ping(
        self,
        name: str | None = None,
        id: str | None = None,
        *,
        timeout: Seconds = TIMEOUT,
        stall: Seconds = STALL,
        max_msgs: int = 0,
    ) -> Listing[ServicePing]:
        """Who is there, each with its `rtt` (see `Services`)."""
        return Listing(
            self._thread,
            self._inner.ping(name, id, timeout=timeout, stall=stall, max_msgs=max_msgs),
        )

    def info(
        self,
        name: str | None = None,
        id: str | None = None,
        *,
        timeout: Seconds = TIMEOUT,
        stall: Seconds = STALL,
        max_msgs: int = 0,
    ) -> Listing[ServiceInfo]:
        """Which endpoints they have (see `Services`)."""
        return Listing(
            self._thread,
            self._inner.info(name, id, timeout=timeout, stall=stall, max_msgs=max_msgs),
        )

    def stats(
        self,
        name: str | None = None,
        id: str | None = None,
        *,
        timeout: Seconds = TIMEOUT,
        stall: Seconds = STALL,
        max_msgs: int = 0,
    ) -> Listing[ServiceStats]:
        """What their endpoints have done (see `Services`)."""
        return Listing(
            self._thread,
            self._inner.stats(name, id, timeout=timeout, stall=stall, max_msgs=max_msgs),
        )

    def latencies(self, subject: str, *, callback: EventCallback | None = None) -> Events:
        """The measurements of an export with `latency` (ADR-3), each a ServiceLatency.

        `subject`: the one that the export names. Iterate the result, or give a callback, called in
        its own thread. Other messages there are reported and left out.
        """
        return Events(
            self._caller, lambda forward: self._inner.latencies(subject, callback=forward), callback
        )

    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """`Client.request` that raises ServiceError when the answer is an error."""
        return answered(Message(self._caller, self._caller.ask(subject, payload, timeout, headers)))

    def request_json(
        self,
        subject: str,
        value: Any = None,
        *,
        type: Any = Any,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Any:
        """`request` with a value as JSON, and the JSON of the answer as a `type`.

        `value`: None: no payload. `type`: a msgspec.Struct, a dataclass, list[int] and so on.
        Raises ConfigError for a value that has no form in JSON, DocumentError for an answer that is
        not of this type, and as `request`.
        """
        return json_answer(
            subject,
            self.request(subject, json_payload(value), timeout=timeout, headers=headers),
            type,
        )
