"""JetStream without async: the way in to everything about streams and consumers.

Contract: that of `jetspark.jetstream.context`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetspark.blocking.jetstream.backup import BackupCalls
from jetspark.blocking.jetstream.batch import BatchCalls
from jetspark.blocking.jetstream.consumer_control import ConsumerControlCalls
from jetspark.blocking.jetstream.counters import CounterCalls
from jetspark.blocking.jetstream.events import EventCalls
from jetspark.blocking.jetstream.ordered import OrderedCalls
from jetspark.blocking.jetstream.publish import PublishCalls
from jetspark.blocking.jetstream.schedules import ScheduleCalls
from jetspark.blocking.jetstream.stored import StoredCalls
from jetspark.blocking.jetstream.streams import StreamCalls
from jetspark.blocking.jetstream.templates import TemplateCalls
from jetspark.blocking.kv import BucketCalls
from jetspark.blocking.objects import ObjectStoreCalls
from jetspark.face import JetStream as AsyncJetStream
from jetspark.jetstream.documents import AccountInfo
from jetspark.jetstream.documents.document import Configuration
from jetspark.timestamps import Seconds

if TYPE_CHECKING:
    from jetspark.blocking.client import Client


class JetStream(
    StreamCalls,
    StoredCalls,
    CounterCalls,
    ScheduleCalls,
    OrderedCalls,
    ConsumerControlCalls,
    PublishCalls,
    BatchCalls,
    EventCalls,
    BackupCalls,
    TemplateCalls,
    BucketCalls,
    ObjectStoreCalls,
):
    """JetStream over a client.

    `timeout`: seconds for each API call and ack, default 5. `domain`: a JetStream domain, such as
    that behind a leaf node. `api_prefix`: the whole prefix instead of "$JS.API", for an API
    imported from another account. With neither, what the connection's options say, which a
    context of the `nats` command may have set. `trace`: log each API request and answer to
    "jetspark.trace" at level DEBUG, without messages and secrets. Raises ConfigError when both
    are given, BadNameError and BadSubjectError for unusable ones.
    """

    _inner: AsyncJetStream

    def __init__(
        self,
        client: Client,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> None:
        self._client = client
        self._thread = client._thread
        self._caller = client._caller
        self._inner = AsyncJetStream(
            client._inner, timeout=timeout, domain=domain, api_prefix=api_prefix, trace=trace
        )

    @property
    def client(self) -> Client:
        """The connection below."""
        return self._client

    @property
    def timeout(self) -> float:
        """Seconds for each API call and ack."""
        return self._inner.timeout

    @property
    def api_prefix(self) -> str:
        """What every API subject begins with."""
        return self._inner.api_prefix

    def account_info(self) -> AccountInfo:
        """What the account uses and may use."""
        return self._thread.run(self._inner.account_info)

    def api_request(self, subject: str, document: Configuration | None = None) -> dict[str, Any]:
        """Any call of the JetStream API: the document is sent and the answer given as they are.

        See `jetspark.jetstream.JetStream.api_request`.
        """
        return self._thread.run(self._inner.api_request, subject, document)

    def __repr__(self) -> str:
        return repr(self._inner)
