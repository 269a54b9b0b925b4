"""Calls of the JetStream API (`wire.js_api`) over a client.

Contract: one call, one request, one answer or its typed error. No responders means that there is
no JetStream. With `trace` each request and answer is logged (`api_trace`). Without a domain or a
prefix those of the connection's options apply, which a context of the `nats` command may set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from jetspark.err_codes import API_LEVEL_TOO_LOW, NOT_ENABLED
from jetspark.errors import (
    APIError,
    ConfigError,
    JetsparkError,
    JetStreamNotEnabledError,
    NoRespondersError,
)
from jetspark.jetstream import api_trace
from jetspark.jetstream.requirements import API_LEVELS, Requirement
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.documents import encode_document
from jetspark.wire.js_api import (
    DEFAULT_PREFIX,
    Call,
    api_prefix_of,
    parse_answer,
    subject_of,
)

if TYPE_CHECKING:
    from jetspark.client.client import Client
    from jetspark.wire.documents import ServerInfo

_REQUIRED_LEVEL: Final = "Nats-Required-Api-Level"


class Api:
    """Where API calls go, and how long they may take. Made by JetStream."""

    __slots__ = ("client", "direct", "domain", "prefix", "timeout", "trace")

    def __init__(
        self,
        client: Client,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> None:
        seconds = in_seconds(timeout)
        if seconds is None or not seconds > 0:
            raise ConfigError("timeout must be more than 0 seconds.")
        if domain is None and api_prefix is None:
            domain = client.options.jetstream_domain
            api_prefix = client.options.jetstream_api_prefix
        self.client = client
        self.timeout = seconds
        self.domain = domain
        self.prefix = api_prefix_of(domain, api_prefix)
        self.direct: dict[str, bool] = {}
        """Which streams allowed direct gets when last looked up."""
        self.trace = trace

    async def call(
        self,
        call: Call,
        body: Mapping[str, Any] | None = None,
        needs: Sequence[Requirement] = (),
        /,
        **names: str,
    ) -> dict[str, Any]:
        """One API call: its answer without the envelope. `needs`: what the server must have.

        Raises BadNameError before anything is sent, UnsupportedByServerError when the server
        answers that its API level is too low, the typed error of the answer, JetStreamError
        for an answer that cannot be read, JetStreamNotEnabledError without responders, and what
        `Client.request` raises.
        """
        payload = b"" if body is None else encode_document(body)
        subject = subject_of(self.prefix, call, names)
        newest = max(needs, default=None)
        level = 0 if newest is None else API_LEVELS[newest.version]
        answer = await self.request(subject, payload, question=call.question, level=level)
        try:
            return parse_answer(call, answer, names)
        except APIError as error:
            if newest is None or error.err_code != API_LEVEL_TOO_LOW:
                raise
            raise newest.lacking("older") from None

    async def request(
        self, subject: str, payload: bytes, *, question: bool = False, level: int = 0
    ) -> bytes:
        """One request to a full subject; returns the response unparsed.

        A `question` is sent again on the next link when the link is lost meanwhile. `level`: the
        API level that the server must have (ADR-44).

        Raises JetStreamNotEnabledError without responders, and what `Client.request` raises.
        """
        self.note_request(subject, payload)
        send = self.client.ask if question else self.client.request
        try:
            headers = {_REQUIRED_LEVEL: str(level)} if level else None
            reply = await send(subject, payload, timeout=self.timeout, headers=headers)
        except JetsparkError as error:
            if self.trace:
                api_trace.trace_failure(subject, error)
            if isinstance(error, NoRespondersError):
                raise self._no_jetstream() from None
            raise
        self.note_answer(subject, reply.data)
        return reply.data

    def note_request(self, subject: str, payload: bytes) -> None:
        """Log a request that is not made by `call`, if this context traces."""
        if self.trace:
            api_trace.trace_request(subject, payload)

    def note_answer(self, subject: str, payload: bytes) -> None:
        """Log an answer, if this context traces."""
        if self.trace:
            api_trace.trace_answer(subject, payload)

    def _no_jetstream(self) -> JetStreamNotEnabledError:
        where = "this server"
        if self.domain is not None:
            where = f"the domain {self.domain!r}"
        elif self.prefix != DEFAULT_PREFIX:
            where = f"the API prefix {self.prefix!r}"
        return JetStreamNotEnabledError(
            503,
            NOT_ENABLED,
            "JetStream not enabled",
            f"JetStream does not respond on {where}: it is not enabled there, or not reachable.",
        )

    @property
    def server(self) -> ServerInfo | None:
        """The connected server, if it is the one that answers; None when that is unknown."""
        return self.client.server_info if self.prefix == DEFAULT_PREFIX else None
