"""JetStream without the buckets and object stores that are built on it: all calls in one class.

Contract: a context is cheap, holds no state of the server and needs no closing; several with
different domains or timeouts may share one client. Each part's module has the contract of its
calls.
"""

from __future__ import annotations

from typing import Any, Final, Unpack

import jetspark.errors as errors
from jetspark.client.client import CoreClient
from jetspark.documents.configuration import Configuration, json_of
from jetspark.documents.document import from_wire
from jetspark.documents.streams import AccountInfo
from jetspark.jetstream.api import Api, ContextOptions
from jetspark.jetstream.events import EventCalls
from jetspark.jetstream.publish import PublishCalls
from jetspark.jetstream.streams import StreamCalls
from jetspark.subjects import check_publish_subject
from jetspark.wire import js_api
from jetspark.wire.documents import ServerInfo

_TEMPLATES: Final = "STREAM.TEMPLATE."


class JetStreamContext(
    StreamCalls,
    PublishCalls,
    EventCalls,
):
    """See `jetspark.JetStream`, which adds buckets and object stores."""

    def __init__(self, client: CoreClient, **options: Unpack[ContextOptions]) -> None:
        self._api = Api(client, **options)

    @property
    def api(self) -> Api:
        """The JetStream API as its calls reach it, for classes built on JetStream."""
        return self._api

    @property
    def client(self) -> CoreClient:
        """The client that it uses."""
        return self._api.client

    @property
    def timeout(self) -> float:
        """Seconds for each API call and ack."""
        return self._api.timeout

    @property
    def api_prefix(self) -> str:
        """The start of every API subject."""
        return self._api.prefix

    @property
    def server_info(self) -> ServerInfo | None:
        """The server that answers API calls: the connected one.

        None before the first connection, and behind a domain or prefix.
        """
        return self._api.server

    async def account_info(self) -> AccountInfo:
        """The account's use of JetStream, and its limits."""
        return from_wire(AccountInfo, await self._api.call(js_api.ACCOUNT_INFO))

    async def api_request(
        self, subject: str, document: Configuration | None = None
    ) -> dict[str, Any]:
        """Make any call of the JetStream API with a document of your own.

        `subject`: what follows the prefix, such as "STREAM.CREATE.ORDERS". `document`: the whole
        request, as a mapping, JSON text, or the path of a JSON file. Sent unchanged; only the
        subject is checked. Returns the parsed JSON with all its fields, `type` too. Raises the
        answer's error (StreamNotFoundError, APIError …), ConfigError for a document that is not a
        JSON object, BadSubjectError, JetStreamError when the answer is not a JSON object,
        UnsupportedByServerError for stream templates, which servers before 2.14 have.
        """
        check_publish_subject(subject)
        server = self._api.server
        if subject.startswith(_TEMPLATES) and server is not None and server.at_least(2, 14):
            # Nobody would answer.
            raise errors.UnsupportedByServerError("A stream template", "< 2.14", server.version)
        payload = b"" if document is None else json_of(document)
        answer = await self._api.request(f"{self.api_prefix}.{subject}", payload)
        return js_api.parse_document(subject, answer, {})

    def __repr__(self) -> str:
        return f"JetStream(api_prefix={self.api_prefix!r}, timeout={self.timeout:g})"
