"""JetStream: the way in to everything about streams and consumers (rows J1, J14).

Contract: a context is cheap, holds no state of the server's and needs no closing; several with
different domains or timeouts may share one client. Each noun has its own module, which says what
its calls promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetspark.jetstream.api import Api
from jetspark.jetstream.backup.backup import BackupCalls
from jetspark.jetstream.backup.restore import RestoreCalls
from jetspark.jetstream.batches.calls import BatchCalls
from jetspark.jetstream.consumers.control import ConsumerControlCalls
from jetspark.jetstream.documents import AccountInfo
from jetspark.jetstream.documents.document import Configuration, from_wire, json_of
from jetspark.jetstream.events.events import EventCalls
from jetspark.jetstream.ordered.calls import OrderedCalls
from jetspark.jetstream.publishing.calls import PublishCalls
from jetspark.jetstream.publishing.counters import CounterCalls
from jetspark.jetstream.publishing.schedules import ScheduleCalls
from jetspark.jetstream.streams.calls import StreamCalls
from jetspark.jetstream.streams.templates import TemplateCalls
from jetspark.subjects import check_publish_subject
from jetspark.timestamps import Seconds
from jetspark.wire import js_api

if TYPE_CHECKING:
    from jetspark.client.client import Client


class JetStream(
    StreamCalls,
    CounterCalls,
    ScheduleCalls,
    OrderedCalls,
    ConsumerControlCalls,
    PublishCalls,
    BatchCalls,
    EventCalls,
    BackupCalls,
    RestoreCalls,
    TemplateCalls,
):
    """JetStream over a client.

    `timeout`: seconds for each API call and ack, default 5. `domain`: a JetStream domain, such as
    that behind a leaf node. `api_prefix`: the whole prefix instead of "$JS.API", for an API
    imported from another account. With neither, what the connection's options say, which a
    context of the `nats` command may have set. `trace`: log each API request and answer to
    "jetspark.trace" at level DEBUG, without messages and secrets. Raises ConfigError when both
    are given, BadNameError and BadSubjectError for unusable ones.
    """

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
    def client(self) -> Client:
        """The connection below."""
        return self._api.client

    @property
    def timeout(self) -> float:
        """Seconds for each API call and ack."""
        return self._api.timeout

    @property
    def api_prefix(self) -> str:
        """What every API subject begins with."""
        return self._api.prefix

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
        the answer's error is (StreamNotFoundError, APIError …), ConfigError for a document that
        is no JSON object, JetStreamError when the answer is none.
        """
        check_publish_subject(subject)
        payload = b"" if document is None else json_of(document)
        answer = await self._api.request(f"{self.api_prefix}.{subject}", payload)
        return js_api.parse_document(subject, answer, {})

    def __repr__(self) -> str:
        return f"JetStream(api_prefix={self.api_prefix!r}, timeout={self.timeout:g})"
