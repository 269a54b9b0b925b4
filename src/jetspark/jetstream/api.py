"""Calls of the JetStream API (`wire.js_api`) over a client.

Contract: one call, one request, one answer or its typed error. No responders means that there is no
JetStream. With `trace` each request and answer is logged (`api_trace`). Without a domain or a
prefix, the connection's options apply, which a context of the `nats` command may set.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

import msgspec

import jetspark.errors as errors
from jetspark.client.client import CoreClient
from jetspark.client.listing import ItemT, Listing
from jetspark.documents.configuration import nested_names
from jetspark.documents.consumers import ConsumerConfig
from jetspark.documents.requirements import API_LEVELS, Requirement
from jetspark.documents.streams import StreamConfig
from jetspark.err_codes import NOT_ENABLED, REQUIRED_API_LEVEL
from jetspark.masking import MASK, is_secret_name, mask_users
from jetspark.nearest import did_you_mean
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.documents import ServerInfo, decode_document, encode_document
from jetspark.wire.js_api import DEFAULT_PREFIX, Call, api_prefix_of, parse_answer, subject_of

# -------------------------------------------------------------------------------------------------
# API requests and answers in the log: one line each to "jetspark.trace" at level DEBUG, with at
# most `MAX_TRACED_CHARS` characters of JSON. Payloads and headers of messages are not shown.
# Values of fields whose name suggests a secret, at any depth, and the user part of URLs are masked.
# Bytes that are not a JSON object are only counted.

MAX_TRACED_CHARS: Final = 2000
"""Characters shown of a request or answer."""

tracer = logging.getLogger("jetspark.trace")

_MESSAGE = frozenset({"data", "hdrs"})
_UNKNOWN = re.compile(r'unknown field "(.+)"')  # of Go's JSON


def describe_payload(payload: bytes) -> str:
    """A payload as text, without messages and secrets, at most MAX_TRACED_CHARS characters."""
    if not payload:
        return ""
    try:
        document = decode_document(payload, "document")
    except errors.DocumentError:
        return _size(payload)
    text = msgspec.json.encode(_masked(document)).decode()
    return (
        text
        if len(text) <= MAX_TRACED_CHARS
        else f"{text[:MAX_TRACED_CHARS]}… ({len(payload)} bytes)"
    )


def _size(payload: bytes) -> str:
    return f"({len(payload)} bytes)"


def _masked(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {
            key: MASK
            if (name == "message" and key in _MESSAGE) or is_secret_name(key)
            else _masked(item, key)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_masked(item, name) for item in value]
    return mask_users(value) if isinstance(value, str) else value


_REQUIRED_LEVEL: Final = "Nats-Required-Api-Level"


class ContextOptions(TypedDict, total=False):
    """Options of `Client.jetstream`, for type checkers."""

    timeout: Seconds
    domain: str | None
    api_prefix: str | None
    trace: bool


class Api:
    """The client, prefix, domain and timeout of JetStream API calls. Created by JetStream."""

    def __init__(
        self,
        client: CoreClient,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> None:
        seconds = in_seconds(timeout)
        if seconds is None or not seconds > 0:
            raise errors.ConfigError("timeout must be more than 0 seconds.")
        if domain is None and api_prefix is None:
            domain = client.options.jetstream_domain
            api_prefix = client.options.jetstream_api_prefix
        self.client = client
        self.timeout = seconds
        self.domain = domain
        self.prefix = api_prefix_of(domain, api_prefix)
        self.trace = trace

    async def call(
        self,
        call: Call,
        body: Mapping[str, Any] | None = None,
        needs: Sequence[Requirement] = (),
        /,
        **names: str,
    ) -> dict[str, Any]:
        """Make an API call; returns the answer without its envelope.

        `needs`: the server's features. Raises BadNameError before anything is sent,
        UnsupportedByServerError when the server answers that its API level is too low, the typed
        error of the answer, JetStreamError for an unreadable answer, JetStreamNotEnabledError
        without responders, and the errors of `Client.request`.
        """
        payload = b"" if body is None else encode_document(body)
        subject = subject_of(self.prefix, call, names)
        newest = max(needs, default=None)
        level = 0 if newest is None else API_LEVELS[newest.version]
        answer = await self.request(subject, payload, question=call.question, level=level)
        try:
            return parse_answer(call, answer, names)
        except errors.APIError as error:
            if unknown := _UNKNOWN.search(error.description):
                sentence = f"The server knows no field {unknown[1]!r} of a configuration"
                sentence += did_you_mean(
                    unknown[1], nested_names(StreamConfig) | nested_names(ConsumerConfig)
                )
                raise type(error)(error.code, error.err_code, error.description, sentence) from None
            if newest is None or error.err_code != REQUIRED_API_LEVEL:
                raise
            raise newest.unsupported_error("older") from None

    async def request(
        self, subject: str, payload: bytes, *, question: bool = False, level: int = 0
    ) -> bytes:
        """One request to a full subject; returns the response unparsed.

        After a lost link, a `question` is sent again on the next one. `level`: the API level that
        the server must have (ADR-44).

        Raises JetStreamNotEnabledError without responders, and the errors of `Client.request`.
        """
        self.note_request(subject, payload)
        send = self.client.ask if question else self.client.request
        try:
            headers = {_REQUIRED_LEVEL: str(level)} if level else None
            reply = await send(subject, payload, timeout=self.timeout, headers=headers)
        except errors.JetsparkError as error:
            if self.trace:
                tracer.debug("<<< %s %s: %s", subject, type(error).__name__, error)
            if isinstance(error, errors.NoRespondersError):
                raise self._no_jetstream() from None
            raise
        self.note_answer(subject, reply.data)
        return reply.data

    def note_request(self, subject: str, payload: bytes) -> None:
        """Log a request that bypasses `call`, if this context traces."""
        if self.trace:
            tracer.debug(">>> %s %s", subject, describe_payload(payload))

    def note_answer(self, subject: str, payload: bytes) -> None:
        """Log an answer, if this context traces."""
        if self.trace:  # a message may happen to be JSON
            is_message = ".DIRECT.GET." in subject
            tracer.debug(
                "<<< %s %s", subject, _size(payload) if is_message else describe_payload(payload)
            )

    def _no_jetstream(self) -> errors.JetStreamNotEnabledError:
        responder = "this server"
        if self.domain is not None:
            responder = f"the domain {self.domain!r}"
        elif self.prefix != DEFAULT_PREFIX:
            responder = f"the API prefix {self.prefix!r}"
        sentence = (
            f"JetStream does not respond on {responder}: it is not enabled there, or not reachable."
        )
        return errors.JetStreamNotEnabledError(503, NOT_ENABLED, "JetStream not enabled", sentence)

    @property
    def server(self) -> ServerInfo | None:
        """The connected server if it is the one that answers; otherwise None."""
        return self.client.server_info if self.prefix == DEFAULT_PREFIX else None


class Paged(Listing[ItemT]):
    """A list that the server answers in pages: `async for`, or `await paged.all()`.

    Requests nothing before the first item; each `async for` starts anew. The pages are not a
    snapshot: items created or deleted meanwhile may be missing or come twice. An unreadable item is
    reported and left out.

    Example:
        ```python
        names = js.stream_names()
        print("ORDERS" in await names.all())  # True
        ```
    """

    def __init__(
        self,
        api: Api,
        call: Call,
        key: str,
        convert: Callable[[Any], ItemT],
        body: Mapping[str, Any],
        **names: str,
    ) -> None:
        super().__init__(self._pages)
        self._api = api
        self._call = call
        self._key = key
        self._convert = convert
        self._body = body
        self._names = names
        self.missing: list[str] = []
        """Streams or consumers that did not answer in the last iteration."""
        self.offline: dict[str, str] = {}
        """Streams or consumers that the server cannot run, with its reason (2.12)."""

    async def _pages(self) -> AsyncIterator[ItemT]:
        self.missing = []
        self.offline = {}
        offset = 0
        before: list[Any] = []
        while True:
            body = {**self._body, "offset": offset}
            page = await self._api.call(self._call, body, **self._names)
            items = page.get(self._key) or []
            if items == before:  # a server that counts wrong would send it without an end
                return
            # Each page names all missing ones again.
            for name in page.get("missing") or []:
                if name not in self.missing:
                    self.missing.append(name)
            self.offline.update(page.get("offline") or {})
            for item in items:
                try:
                    converted = self._convert(item)
                except errors.DocumentError as error:
                    self._api.client.report(error)
                    continue
                yield converted
            offset += len(items)
            if offset >= page.get("total", 0):
                return
            before = items
