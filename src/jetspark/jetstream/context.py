"""JetStream: the way in to everything about streams and consumers (rows J1, J14).

Contract: a context is cheap, holds no state of the server's and needs no closing; several with
different domains or timeouts may share one client. Each noun has its own module, which says what
its calls promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.jetstream.api import Api
from jetspark.jetstream.consumers import ConsumerCalls
from jetspark.jetstream.document import from_wire
from jetspark.jetstream.documents import AccountInfo
from jetspark.jetstream.events import EventCalls
from jetspark.jetstream.publish import PublishCalls
from jetspark.jetstream.stored import StoredCalls
from jetspark.jetstream.streams import StreamCalls
from jetspark.wire import js_api

if TYPE_CHECKING:
    from jetspark.client.client import Client


class JetStream(StreamCalls, StoredCalls, ConsumerCalls, PublishCalls, EventCalls):
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
        timeout: float = 5.0,
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

    def __repr__(self) -> str:
        return f"JetStream(api_prefix={self.api_prefix!r}, timeout={self.timeout:g})"
