"""JetStream without buckets and object stores, which are built on it: the sum of its parts.

Contract: a context is cheap, holds no state of the server's and needs no closing; several with
different domains or timeouts may share one client. Each part has its own module, which says what
its calls promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetspark.documents.configuration import Configuration, json_of
from jetspark.documents.document import from_wire
from jetspark.documents.streams import AccountInfo
from jetspark.jetstream.api import Api
from jetspark.jetstream.consumers import ConsumerCalls
from jetspark.jetstream.events import EventCalls
from jetspark.jetstream.ordered import OrderedCalls
from jetspark.jetstream.publish import PublishCalls
from jetspark.jetstream.streams import StreamCalls
from jetspark.subjects import check_publish_subject
from jetspark.timestamps import Seconds
from jetspark.wire import js_api

if TYPE_CHECKING:
    from jetspark.client.client import Client
    from jetspark.wire.documents import ServerInfo


class JetStreamContext(
    StreamCalls,
    PublishCalls,
    ConsumerCalls,
    OrderedCalls,
    EventCalls,
):
    """See `jetspark.JetStream`, which adds buckets and object stores."""

    def __init__(
        self,
        client: Client,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> None:
        self._api = Api(client, timeout=timeout, domain=domain, api_prefix=api_prefix, trace=trace)

    @property
    def api(self) -> Api:
        """How its calls reach the server: for what is built on JetStream."""
        return self._api

    @property
    def client(self) -> Client:
        """The connection that it uses."""
        return self._api.client

    @property
    def timeout(self) -> float:
        """Seconds for each API call and ack."""
        return self._api.timeout

    @property
    def api_prefix(self) -> str:
        """What every API subject begins with."""
        return self._api.prefix

    @property
    def server_info(self) -> ServerInfo | None:
        """The server that answers API calls: the connected one.

        None before the first connection, and behind a domain or prefix, where it is unknown.
        """
        return self._api.server

    async def account_info(self) -> AccountInfo:
        """What the account uses and may use."""
        return from_wire(AccountInfo, await self._api.call(js_api.ACCOUNT_INFO))

    async def api_request(
        self, subject: str, document: Configuration | None = None
    ) -> dict[str, Any]:
        """Any call of the JetStream API: the document is sent and the answer given as they are.

        `subject`: what follows the prefix, such as "STREAM.CREATE.ORDERS". `document`: the whole
        request, as a mapping, JSON text, or the path of a JSON file. The answer is parsed JSON with
        all its fields, `type` too. Nothing is added and only the subject is checked. Raises what
        the answer's error is (StreamNotFoundError, APIError …), ConfigError for a document that is
        no JSON object, BadSubjectError, JetStreamError when the answer is no JSON object.
        """
        check_publish_subject(subject)
        payload = b"" if document is None else json_of(document)
        answer = await self._api.request(f"{self.api_prefix}.{subject}", payload)
        return js_api.parse_document(subject, answer, {})

    def __repr__(self) -> str:
        return f"JetStream(api_prefix={self.api_prefix!r}, timeout={self.timeout:g})"
